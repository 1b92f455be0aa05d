#include "weft/endpoint/latency.h"

#include <algorithm>

#include "weft/common/sysinfo.h"

namespace weft::cli {
namespace {

Outcome<void> time_round_trips(double seconds, std::uint64_t messages, const PingPong& ping_pong,
                               PhaseResult& result) {
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  std::int64_t at_ns = now_ns();
  while (at_ns < end_ns && result.messages < messages) {
    if (auto ok = ping_pong.round_trip(); !ok) return ok;
    const std::int64_t done_ns = now_ns();
    result.samples_ns.push_back(done_ns - at_ns);
    at_ns = done_ns;
    ++result.messages;
  }
  return {};
}

}  // namespace

Outcome<PhaseResult> time_ping_pong(const PhaseLimits& limits, const PingPong& ping_pong) {
  PhaseResult result;
  PhaseResult warmup;
  result.samples_ns.reserve(std::min<std::uint64_t>(limits.messages, 1U << 20U));
  if (auto ok = time_round_trips(limits.warmup_seconds, limits.messages, ping_pong, warmup); !ok) {
    return tl::unexpected(ok.error());
  }
  if (auto ok = ping_pong.begin(); !ok) return tl::unexpected(ok.error());
  const double cpu = process_cpu_s();
  const std::int64_t begin_ns = now_ns();
  if (auto ok = time_round_trips(limits.seconds, limits.messages, ping_pong, result); !ok) {
    return tl::unexpected(ok.error());
  }
  result.seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  result.cpu_s = process_cpu_s() - cpu;
  if (auto ok = ping_pong.end(result.messages); !ok) return tl::unexpected(ok.error());
  return result;
}

}  // namespace weft::cli
