#include "weft/endpoint/connect.h"

#include "weft/common/sysinfo.h"

namespace weft::cli {

Outcome<void> Connector::connect(const SocketAddress& server, const Json& ready, Watch&) {
  server_ = server;
  server_.set_port(static_cast<std::uint16_t>(get_count(ready, "port")));
  token_ = get_count(ready, "token");
  return {};
}

// One set-up alone, not counted.
Outcome<void> Connector::only(ConnectKind kind, Watch& watch) {
  PhaseResult ignored;
  if (auto ok = start(kind); !ok) return ok;
  while (under_way() != 0) {
    if (auto ok = wait_some(watch, ignored); !ok) return ok;
  }
  return {};
}

Outcome<PhaseResult> Connector::run(Phase phase, const PhaseLimits& limits, Watch& watch) {
  if (auto ok = only(ConnectKind::kBegin, watch); !ok) return tl::unexpected(ok.error());
  const std::size_t at_once = phase == Phase::kLatency ? 1 : spec_.depth;
  PhaseResult result;
  const double cpu = process_cpu_s();
  const std::int64_t begin_ns = now_ns();
  const std::int64_t end_ns = begin_ns + static_cast<std::int64_t>(limits.seconds * 1e9);
  std::uint64_t started = 0;
  bool more = true;
  while (more || under_way() != 0) {
    more = more && started < limits.messages && now_ns() < end_ns;
    if (more && under_way() < at_once) {
      if (auto ok = start(ConnectKind::kSetUp); !ok) {
        return tl::unexpected(watch.explain(ok.error()));
      }
      ++started;
      continue;
    }
    if (under_way() == 0) break;
    if (auto ok = wait_some(watch, result); !ok) return tl::unexpected(ok.error());
  }
  result.seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  result.cpu_s = process_cpu_s() - cpu;
  if (auto ok = only(ConnectKind::kEnd, watch); !ok) return tl::unexpected(ok.error());
  return result;
}

}  // namespace weft::cli
