// Ping-pong over RDMA. Send and Write with Immediate answer each other in kind; a Write is followed
// by an empty Send in the same list, since only that tells the target's program that it is there;
// Reads and atomics answer themselves.
#include "weft/endpoint/latency.h"
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

Outcome<PhaseResult> RdmaClient::run_latency(const PhaseLimits& limits, Watch& watch) {
  if (is_answered(spec_.op)) {  // the completion is what is timed: each must come
    for (RdmaLink& link : links_) link.window = link.window.every_one();
  }
  return time_ping_pong(
      limits, {[&] { return one_round_trip(links_.front(), watch); },
               [&] { return exchange(NoteKind::kBegin, 0, watch); },
               [&](std::uint64_t messages) { return exchange(NoteKind::kEnd, messages, watch); }});
}

}  // namespace weft::cli
