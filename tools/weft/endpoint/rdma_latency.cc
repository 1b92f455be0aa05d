// Ping-pong over RDMA. Send and Write with Immediate answer each other in kind; a Write is followed
// by an empty Send in the same list, since only that tells the target's program that it is there;
// Reads and atomics answer themselves.
#include <algorithm>

#include "weft/common/sysinfo.h"
#include "weft/endpoint/rdma_client.h"

namespace weft::cli {

Outcome<void> RdmaClient::one_round_trip(RdmaLink& link, Watch& watch) {
  if (is_answered(spec_.op)) {
    prepare_message(link, 0, 0);
    if (!post_prepared(link, 1)) return tl::unexpected(watch.explain(why_not_posted()));
    while (!link.window.idle()) {
      if (auto ok = pump(true, watch); !ok) return ok;
    }
    return {};
  }
  const std::uint64_t before = pongs_;
  if (!post_ping(link)) return tl::unexpected(watch.explain(why_not_posted()));
  while (pongs_ == before) {
    if (auto ok = pump(true, watch); !ok) return ok;
  }
  return {};
}

Outcome<void> RdmaClient::time_round_trips(double seconds, std::uint64_t messages, Watch& watch,
                                           PhaseResult& result) {
  RdmaLink& link = links_.front();
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  std::int64_t at_ns = now_ns();
  while (at_ns < end_ns && result.messages < messages) {
    if (auto ok = one_round_trip(link, watch); !ok) return tl::unexpected(ok.error());
    const std::int64_t done_ns = now_ns();
    result.samples_ns.push_back(done_ns - at_ns);
    at_ns = done_ns;
    ++result.messages;
  }
  return {};
}

Outcome<PhaseResult> RdmaClient::run_latency(const PhaseLimits& limits, Watch& watch) {
  if (is_answered(spec_.op)) {  // the completion is what is timed: each must come
    for (RdmaLink& link : links_) link.window = link.window.every_one();
  }
  PhaseResult result;
  result.samples_ns.reserve(std::min<std::uint64_t>(limits.messages, 1U << 20U));
  PhaseResult warmup;
  if (auto ok = time_round_trips(limits.warmup_seconds, limits.messages, watch, warmup); !ok) {
    return tl::unexpected(ok.error());
  }
  if (auto ok = exchange(NoteKind::kBegin, 0, watch); !ok) return tl::unexpected(ok.error());
  const double cpu = process_cpu_s();
  const std::int64_t begin_ns = now_ns();
  if (auto ok = time_round_trips(limits.seconds, limits.messages, watch, result); !ok) {
    return tl::unexpected(ok.error());
  }
  result.seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  result.cpu_s = process_cpu_s() - cpu;
  if (auto ok = exchange(NoteKind::kEnd, result.messages, watch); !ok) {
    return tl::unexpected(ok.error());
  }
  return result;
}

}  // namespace weft::cli
