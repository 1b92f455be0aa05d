#include "weft/perf/perf_messages.h"

#include <algorithm>
#include <limits>

namespace weft::cli {
namespace {

std::uint32_t get_u32(const Json& object, const char* key) {
  // Out of range becomes a value that check() refuses.
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::min(get_count(object, key), kMax));
}

int get_int(const Json& object, const char* key) {
  return static_cast<int>(
      std::min<std::uint64_t>(get_count(object, key), std::numeric_limits<int>::max()));
}

}  // namespace

Json to_json(const TestSpec& spec) {
  return Json{{"transport", name_of(spec.transport)},
              {"op", name_of(spec.op)},
              {"size", spec.size},
              {"depth", spec.depth},
              {"batch", spec.batch},
              {"connections", spec.connections},
              {"idle", spec.idle},
              {"inline", spec.inline_bytes},
              {"crc", spec.crc},
              {"markers", spec.markers},
              {"fpdu", name_of(spec.fpdu)},
              {"path", name_of(spec.path)},
              {"tcp_mode", name_of(spec.tcp_mode)},
              {"sleep", spec.sleep},
              {"verify", spec.verify},
              {"tcp_congestion", spec.tcp_congestion}};
}

Outcome<TestSpec> spec_from_json(const Json& object) {
  TestSpec spec;
  const auto transport = parse_transport(get_text(object, "transport"));
  const auto op = parse_operation(get_text(object, "op"));
  const auto fpdu = parse_fpdu(get_text(object, "fpdu"));
  const auto path = parse_path(get_text(object, "path"));
  const auto tcp_mode = parse_tcp_mode(get_text(object, "tcp_mode"));
  if (!transport) return tl::unexpected(transport.error());
  if (!op) return tl::unexpected(op.error());
  if (!fpdu) return tl::unexpected(fpdu.error());
  if (!path) return tl::unexpected(path.error());
  if (!tcp_mode) return tl::unexpected(tcp_mode.error());
  spec.transport = *transport;
  spec.op = *op;
  spec.fpdu = *fpdu;
  spec.path = *path;
  spec.tcp_mode = *tcp_mode;
  spec.size = get_count(object, "size");
  spec.depth = get_u32(object, "depth");
  spec.batch = get_u32(object, "batch");
  spec.connections = get_u32(object, "connections");
  spec.idle = get_u32(object, "idle");
  spec.inline_bytes = get_u32(object, "inline");
  spec.crc = get_bool(object, "crc");
  spec.markers = get_bool(object, "markers");
  spec.sleep = get_bool(object, "sleep");
  spec.verify = get_bool(object, "verify");
  spec.tcp_congestion = get_text(object, "tcp_congestion");
  if (auto ok = check(spec); !ok) return tl::unexpected(ok.error());
  return spec;
}

Json to_json(const LinkFacts& facts) {
  return Json{{"congestion", facts.congestion},
              {"path", facts.path},
              {"send_buffer_bytes", facts.send_buffer_bytes},
              {"receive_buffer_bytes", facts.receive_buffer_bytes},
              {"crc", facts.crc},
              {"markers", facts.markers},
              {"max_ulpdu_bytes", facts.max_ulpdu_bytes},
              {"mpa_revision", facts.mpa_revision},
              {"idle_bytes", facts.idle_bytes}};
}

LinkFacts facts_from_json(const Json& object) {
  LinkFacts facts;
  facts.congestion = get_text(object, "congestion");
  facts.path = get_text(object, "path");
  facts.send_buffer_bytes = get_int(object, "send_buffer_bytes");
  facts.receive_buffer_bytes = get_int(object, "receive_buffer_bytes");
  facts.crc = get_bool(object, "crc");
  facts.markers = get_bool(object, "markers");
  facts.max_ulpdu_bytes = get_u32(object, "max_ulpdu_bytes");
  facts.mpa_revision = get_u32(object, "mpa_revision");
  facts.idle_bytes = get_number(object, "idle_bytes");
  return facts;
}

Json to_json(const ServerReport& report) {
  return Json{{"cpu_s", report.cpu_s},
              {"messages", report.messages},
              {"verified_bytes", report.verified_bytes}};
}

ServerReport report_from_json(const Json& object) {
  ServerReport report;
  report.cpu_s = get_number(object, "cpu_s");
  report.messages = get_count(object, "messages");
  report.verified_bytes = get_count(object, "verified_bytes");
  return report;
}

}  // namespace weft::cli
