#include "weft/perf/perf_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "weft/common/arguments.h"
#include "weft/common/net.h"
#include "weft/common/parse.h"

namespace weft::cli {
namespace {

// Reads a comma-separated list with `parse`. An empty text leaves `out` alone.
template <class T, class Parse>
Outcome<void> read_list(std::string_view option, const std::string& text, std::vector<T>& out,
                        Parse parse) {
  if (text.empty()) return {};
  out.clear();
  for (const std::string& item : split_list(text)) {
    const auto value = parse(item);
    if (!value) return named(option, value.error());
    out.push_back(static_cast<T>(*value));
  }
  return {};
}

template <class T, class Parse>
Outcome<void> read_value(std::string_view option, const std::string& text, T& out, Parse parse) {
  if (text.empty()) return {};
  const auto value = parse(text);
  if (!value) return named(option, value.error());
  out = static_cast<T>(*value);
  return {};
}

auto count_between(std::uint64_t low, std::uint64_t high) {
  return [low, high](std::string_view text) { return parse_count(text, low, high); };
}

Outcome<double> parse_phase_seconds(std::string_view text) {
  const auto seconds = parse_seconds(text);
  if (seconds && *seconds > perf_limits::kPhaseSeconds) {
    return usage_error(fmt::format("'{}' is over {} s", text, perf_limits::kPhaseSeconds));
  }
  return seconds;
}

Outcome<void> read_contenders(const PerfOptions& o, PlanRequest& r) {
  using namespace perf_limits;
  Outcome<void> ok;
  const auto then = [&ok](Outcome<void> next) {
    if (ok) ok = std::move(next);
  };
  then(read_list("--transport", o.transports, r.transports, parse_transport));
  then(read_list("--op", o.ops, r.ops, parse_operation));
  then(read_list("--size", o.sizes, r.sizes, parse_size));
  then(read_list("--depth", o.depths, r.depths, count_between(1, kDepth)));
  then(read_list("--batch", o.batches, r.batches, count_between(1, kDepth)));
  then(read_list("--connections", o.connections, r.connections, count_between(1, kConnections)));
  then(read_list("--idle", o.idle, r.idle, count_between(0, kIdle)));
  then(read_list("--crc", o.crc, r.crc, parse_on_off));
  then(read_list("--markers", o.markers, r.markers, parse_on_off));
  then(read_list("--fpdu", o.fpdu, r.fpdu, parse_fpdu));
  then(read_list("--path", o.path, r.path, parse_path));
  then(read_list("--tcp-mode", o.tcp_mode, r.tcp_modes, parse_tcp_mode));
  then(read_value("--inline", o.inline_bytes, r.inline_bytes, count_between(0, kInlineBytes)));
  if (!ok || o.sweep.empty()) return ok;
  if (!o.sizes.empty()) return usage_error("--sweep and --size exclude each other");
  const auto sizes = parse_sweep(o.sweep);
  if (!sizes) return named("--sweep", sizes.error());
  r.sizes = *sizes;
  return {};
}

Outcome<void> read_amounts(const PerfOptions& o, PlanRequest& r) {
  constexpr std::uint64_t kMany = 1'000'000'000'000;
  Outcome<void> ok;
  const auto then = [&ok](Outcome<void> next) {
    if (ok) ok = std::move(next);
  };
  then(read_value("--rounds", o.rounds, r.rounds, count_between(1, perf_limits::kRounds)));
  then(read_value("--duration", o.duration, r.seconds, parse_phase_seconds));
  r.latency_seconds = std::max(r.seconds / 4, 0.02);
  r.warmup_seconds = std::min(r.seconds / 5, 0.05);
  r.verify_seconds = std::min(r.seconds, 0.2);
  then(
      read_value("--latency-duration", o.latency_duration, r.latency_seconds, parse_phase_seconds));
  then(read_value("--warmup", o.warmup, r.warmup_seconds, parse_phase_seconds));
  then(read_value("--iterations", o.iterations, r.iterations, count_between(1, kMany)));
  then(read_value("--bytes", o.bytes, r.bytes, parse_size));
  if (!ok) return ok;
  const int ways = !o.duration.empty() + !o.iterations.empty() + !o.bytes.empty();
  if (ways > 1) return usage_error("--duration, --iterations and --bytes exclude each other");
  return {};
}

Outcome<void> read_what(const PerfOptions& o, PlanRequest& r) {
  if (o.latency_only && o.bandwidth_only) {
    return usage_error(
        "--latency and --bandwidth exclude each other; without either, both are "
        "measured");
  }
  const bool measured = !o.verify_only;
  r.verify = o.verify || o.verify_only;
  r.bandwidth = measured && !o.latency_only;
  r.latency = measured && !o.bandwidth_only;
  if (!o.mode.empty() && o.mode != "poll" && o.mode != "sleep") {
    return usage_error(fmt::format("--mode: '{}' is not a mode; it can be poll or sleep", o.mode));
  }
  r.sleep = o.mode == "sleep";
  if (o.tcp_congestion.empty() || o.tcp_congestion == "same") return {};
  if (auto ok = check_congestion(o.tcp_congestion); !ok) {
    return named("--tcp-congestion", ok.error());
  }
  r.tcp_congestion = o.tcp_congestion;
  return {};
}

void fill(std::string& text, std::string_view value) {
  if (text.empty()) text = value;
}

void add_contender_options(Arguments& command, PerfOptions& o) {
  const std::string group = "What to compare (lists with commas: every combination is measured)";
  const auto add = [&](const char* name, std::string& text, const char* type, const char* help) {
    command.add_option(name, text, help).type_name(type).group(group);
  };
  add("--op", o.ops, "OP",
      "write, read, send, write-imm, fetch-add, cmp-swap, connect. Default: write");
  add("--transport", o.transports, "T", "rdma, tcp (plain sockets). Default: rdma");
  add("--size", o.sizes, "SIZE",
      "Bytes per message; k, M, G and KiB, MiB, GiB are powers of 1024, kB, MB, GB of 1000. "
      "Default: 64k");
  add("--sweep", o.sweep, "FROM..TO", "The powers of two in this range instead");
  add("--depth", o.depths, "N", "Messages outstanding per connection. Default: 128");
  add("--batch", o.batches, "N", "Messages posted as one list. Default: 1");
  add("--connections", o.connections, "N", "Connections that carry messages. Default: 1");
  add("--idle", o.idle, "N", "Idle connections open beside them. Default: 0");
  add("--crc", o.crc, "on|off", "CRC32C on every FPDU. Default: as configured");
  add("--markers", o.markers, "on|off", "MPA markers. Default: as configured");
  add("--fpdu", o.fpdu, "SIZE", "FPDU size: auto, mss, 16k or 64k. Default: as configured");
  add("--path", o.path, "PATH",
      "What carries RDMA inside this machine: auto, tcp, or ring (shared memory, without CRC and "
      "markers). Default: as configured");
  add("--inline", o.inline_bytes, "BYTES", "Post messages up to this size inline. Default: 0");
  add("--tcp-mode", o.tcp_mode, "MODE",
      "How plain TCP receives: raw (into a buffer), copy (and from there to its place). Default: "
      "raw");
}

void add_amount_options(Arguments& command, PerfOptions& o) {
  const std::string group = "How long";
  const auto add = [&](const char* name, std::string& text, const char* type, const char* help) {
    command.add_option(name, text, help).type_name(type).group(group);
  };
  add("--duration", o.duration, "TIME", "Length of each bandwidth phase. Default: 0.5 s");
  add("--latency-duration", o.latency_duration, "TIME",
      "Length of each latency phase. Default: a quarter of --duration");
  add("--warmup", o.warmup, "TIME",
      "Warm-up before each bandwidth phase. Default: a fifth of --duration, at most 50 ms");
  add("--iterations", o.iterations, "N", "Messages per phase, instead of a time");
  add("--bytes", o.bytes, "SIZE", "Bytes per bandwidth phase, instead of a time");
  add("--rounds", o.rounds, "N",
      "Rounds; every contender of one size has a turn in each. Default: 3");
  command.add_flag("--latency", o.latency_only, "Measure latency only").group(group);
  command.add_flag("--bandwidth", o.bandwidth_only, "Measure bandwidth only").group(group);
  command
      .add_flag("--verify", o.verify, "First run a pass that compares every byte where it arrived")
      .group(group);
  command.add_flag("--verify-only", o.verify_only, "Run only that pass").group(group);
  command
      .add_option(
          "--preset", o.preset,
          "main: RDMA Write, Read and Send beside TCP, 64 B to 1400 kB, 128 messages outstanding "
          "and one, with --self by shared memory too, verified first. "
          "Other options override it")
      .type_name("NAME")
      .group(group);
}

void add_how_options(Arguments& command, PerfOptions& o) {
  const std::string group = "How";
  const auto add = [&](const char* name, std::string& text, const char* type, const char* help) {
    command.add_option(name, text, help).type_name(type).group(group);
  };
  add("--mode", o.mode, "poll|sleep", "How both sides wait. Default: poll (sleep on one core)");
  add("--congestion", o.congestion, "NAME",
      "TCP congestion control under RDMA, or keep. Default: as configured");
  add("--tcp-congestion", o.tcp_congestion, "NAME",
      "Congestion control of plain TCP: same (as RDMA), keep (the system's), or a name. Default: "
      "same");
  add("--pin", o.pin, "CPU", "Run on this CPU only");
  command.add_flag("--no-pin", o.no_pin, "With --self: do not give each side a CPU of its own")
      .group(group);
}

}  // namespace

void add_perf_options(Arguments& command, PerfOptions& o) {
  const std::string roles = "Role (one of them)";
  command.add_option("peer", o.peer, "Client: the server, HOST or HOST:PORT (default port 7471)")
      .type_name("HOST[:PORT]")
      .group(roles);
  command
      .add_option("--listen", o.listen,
                  "Server: wait for clients on [ADDRESS:]PORT, one after another")
      .type_name("[ADDRESS:]PORT")
      .group(roles);
  command.add_flag("--server", o.server, "Server on the default port, 7471").group(roles);
  command.add_flag("--self", o.self, "Both: the server is a second process on this machine")
      .group(roles);
  command.add_flag("--once", o.once, "Server: end after one client").group(roles);
  command.add_flag("-6,--ipv6", o.ipv6, "With --self: over ::1 instead of 127.0.0.1").group(roles);
  command.add_option("--announce-fd", o.announce_fd).group("");
  add_contender_options(command, o);
  add_amount_options(command, o);
  add_how_options(command, o);
  const std::string output = "Output";
  command.add_flag("--json", o.json, "Results as JSON on stdout").group(output);
  command.add_flag("--csv", o.csv, "Results as CSV on stdout").group(output);
  command.add_flag("-q,--quiet", o.quiet, "No progress line; a server says nothing").group(output);
  add_common_options(command, o.common);
}

Outcome<void> apply_preset(PerfOptions& o) {
  if (o.preset.empty()) return {};
  if (o.preset != "main") {
    return usage_error(
        fmt::format("--preset: '{}' is not a preset; the only one is main", o.preset));
  }
  fill(o.transports, "tcp,rdma");
  fill(o.ops, "write,read,send");
  if (o.sweep.empty()) fill(o.sizes, "64,4096,50000,500000,1400000");
  fill(o.tcp_mode, "raw,copy");
  // Plain TCP has one message under way; RDMA is shown with many and with one.
  fill(o.depths, "128,1");
  if (o.self) fill(o.path, "tcp,ring");
  fill(o.rounds, "3");
  if (o.iterations.empty() && o.bytes.empty()) fill(o.duration, "0.08");
  fill(o.latency_duration, "0.03");
  o.verify = true;
  return {};
}

Outcome<void> apply_to_config(const PerfOptions& o, Config& config) {
  if (o.congestion.empty()) return {};
  if (auto ok = check_congestion(o.congestion); !ok) {
    return named("--congestion", ok.error());
  }
  for (const char* key : {"loopback_congestion", "congestion"}) {
    std::string why;
    if (!config.set(key, o.congestion, &why, "--congestion")) {
      return usage_error(why);
    }
  }
  return {};
}

Outcome<PlanRequest> make_request(const PerfOptions& o, const Config& config) {
  PlanRequest request;
  request.crc = {config.crc};
  request.markers = {config.markers};
  request.fpdu = {config.fpdu};
  request.path = {config.path};
  if (auto ok = read_contenders(o, request); !ok) return tl::unexpected(ok.error());
  if (auto ok = read_amounts(o, request); !ok) return tl::unexpected(ok.error());
  if (auto ok = read_what(o, request); !ok) return tl::unexpected(ok.error());
  if (o.json && o.csv) return usage_error("--json and --csv exclude each other");
  request.ring_at_first_depth = !o.preset.empty();
  return request;
}

}  // namespace weft::cli
