// A queue pair that the program wires by hand: its own moves between the states, the connection
// that its wiring finds, and what the end of one means (docs/personality.md).
#include <utility>

#include "os/log.h"
#include "verbs/cq.h"
#include "verbs/oob/peer_directory.h"
#include "verbs/oob/wiring.h"
#include "verbs/qp.h"
#include "verbs/srq.h"

namespace weft::verbs {

// REQUIRES: the device has a peer directory. Once, before others see the queue pair.
void QueuePairImpl::prepare_wiring() {
  const auto type = type_ == QpType::kRc ? roce::QpType::kRc : roce::QpType::kUc;
  wired_.wiring = std::make_shared<Wiring>(device_.self(), number(), type);
  wired_.wiring->belongs_to(weak_from_this());
  device_.peer_directory()->publish(number(), wired_.wiring);
  state_.store(QpState::kReset, std::memory_order_release);
}

bool QueuePairImpl::is_wired() const noexcept {
  return wired_.wiring != nullptr && !reserved_.load(std::memory_order_acquire);
}

Status QueuePairImpl::wire(const WiringToReceive& attributes) {
  if (!device_.usable()) return fail(Error::kBadState);
  if (wired_.wiring == nullptr) return fail(Error::kUnsupported);
  Status result;
  std::uint32_t generation = 0;
  lane_.exclusively([&] {
    if (retired_ || !is_wired() || state() != QpState::kInit) {
      result = fail(Error::kBadState);
      return;
    }
    generation = ++wired_.generation;
    wired_.stranded = false;
    if (type_ == QpType::kRc) ird_.store(attributes.reads_served, std::memory_order_relaxed);
    state_.store(QpState::kRtr, std::memory_order_release);
  });
  if (!result) return result;
  result = wired_.wiring->begin(attributes, generation);
  if (!result) {
    lane_.exclusively([&] {
      if (state() == QpState::kRtr) state_.store(QpState::kInit, std::memory_order_release);
    });
  }
  return result;
}

Status QueuePairImpl::start_sending(const WiringToSend& attributes) {
  constexpr std::uint32_t kPsnMask = 0xff'ffff;
  if (!device_.usable()) return fail(Error::kBadState);
  if (wired_.wiring == nullptr) return fail(Error::kUnsupported);
  if (attributes.psn > kPsnMask || attributes.reads_asked > limits::kOrd) {
    return fail(Error::kInvalidArgument);
  }
  if (!is_wired() || state() != QpState::kRtr) return fail(Error::kBadState);
  wired_.wiring->begin_sending(attributes);
  Status result;
  lane_.exclusively([&] {
    if (retired_ || state() != QpState::kRtr) {
      result = fail(Error::kBadState);
      return;
    }
    if (type_ == QpType::kRc) ord_.store(attributes.reads_asked, std::memory_order_relaxed);
    wired_.rnr_retry = attributes.rnr_retry;
    // Nothing of ours is on a connection yet, so it can go without a trace.
    if (lane_.live() && !wired_.wiring->agrees(wired_.peer_psn)) lane_.stream()->abort();
    state_.store(QpState::kRts, std::memory_order_release);
    if (!lane_.live() || lane_.stream()->finished()) return;
    tell_limits(*lane_.stream());
    lane_.stream()->pause(false);
  });
  return result;
}

void QueuePairImpl::tell_limits(proto::Stream& stream) const {
  stream.limit_outstanding(ord_.load(std::memory_order_relaxed));
  stream.allow_refusals(wired_.rnr_retry);
}

// --- the connection ---

Status QueuePairImpl::link(std::unique_ptr<io::Transport> transport,
                           std::unique_ptr<trace::Trace> trace, const proto::StreamParams& params,
                           std::uint32_t generation, std::uint32_t peer_psn) {
  if (!device_.usable()) return fail(Error::kBadState);
  Status result;
  lane_.exclusively([&] {
    const QpState now = state();
    const bool wired = now == QpState::kRtr || now == QpState::kRts;
    const bool heard = now != QpState::kRts || wired_.wiring->agrees(peer_psn);
    const bool taken = lane_.live() || wired_.stranded;
    if (retired_ || taken || !wired || !heard || generation != wired_.generation) {
      result = fail(Error::kBadState);
      return;
    }
    result = queues_.reserve_cut_off();
    if (!result) return;
    wired_.peer_psn = peer_psn;
    proto::StreamParams mine = params;
    mine.id = stream_id();
    set_wishes(mine, *transport);
    if (const auto* srq = queues_.srq()) mine.receive_pd = srq->pd()->number();
    mine.acks = type_ == QpType::kRc;
    mine.unreliable = !mine.acks;
    writes_seen_ = 0;
    queues_.set_failed(false);
    overflow_.store(false, std::memory_order_relaxed);
    result = put_on_link(transport, mine);
    if (!result) return;
    result = lane_.open(std::move(transport), std::move(trace), mine,
                        remote_access_.load(std::memory_order_relaxed));
    if (!result) return;
    if (now == QpState::kRts) {
      tell_limits(*lane_.stream());
    } else {
      lane_.stream()->pause(true);  // in RTR nothing is sent but answers
    }
    lane_.look();
  });
  return result;
}

// Every turn ends with note_waiting_work().
void QueuePairImpl::look_for_waiting_work() {
  lane_.exclusively([] {});
}

// Without a connection: the retries count from now, and the peer is sought, unless what waits was
// begun with the one before.
void QueuePairImpl::note_waiting_work() {
  if (!is_wired() || queues_.sends().size() == 0 || lane_.live()) return;
  const bool due = state() == QpState::kRts || (state() == QpState::kSqd && wired_.stranded);
  if (!due) return;
  switch (wired_.wiring->work_waits()) {
    case Wiring::Wait::kGoesOn: return;
    case Wiring::Wait::kLost: return lose_work();
    case Wiring::Wait::kOver: break;
  }
  queues_.await_posts();
  queues_.flush_sends(WcStatus::kRetryExceeded);
  static_cast<void>(end());
}

// The stream is down. True: the queue pair stays as it is. To it, a peer that went is one that does
// not answer, which only the retries find out.
bool QueuePairImpl::outlives_link(proto::StreamEnd how) {
  if (!is_wired()) return false;
  if (queues_.muted()) return true;  // on its way to RESET
  const QpState now = state();
  const bool wired = now == QpState::kRtr || now == QpState::kRts || now == QpState::kSqd;
  const bool quiet = how == proto::StreamEnd::kOrderly || how == proto::StreamEnd::kLost;
  if (retired_ || !wired || !quiet || queues_.failed()) return false;
  if (type_ == QpType::kUc) lose_work();
  wired_.stranded = type_ == QpType::kRc && lane_.stream()->left_in_the_middle();
  notices_.add([&](QpNotices::Notices& n) {
    n.generation = wired_.generation;
    n.outlived = true;
    n.stranded = wired_.stranded;
  });
  return true;
}

bool QueuePairImpl::retries_exhausted(std::uint32_t generation) {
  bool failed = false;
  lane_.exclusively([&] {
    const bool waits = state() == QpState::kRts || (state() == QpState::kSqd && wired_.stranded);
    if (retired_ || lane_.live() || generation != wired_.generation || !waits) return;
    queues_.await_posts();
    if (queues_.sends().size() == 0) return;
    if (type_ == QpType::kUc) return lose_work();
    failed = true;
    queues_.flush_sends(WcStatus::kRetryExceeded);
    static_cast<void>(end());
  });
  return failed;
}

// --- states ---

// Possible from everywhere, ends the connection, and forgets all requests.
Status QueuePairImpl::reset_wired() {
  wired_.wiring->stop();
  lane_.exclusively([&] {
    queues_.mute(true);
    lane_.send_left_ack();
    if (lane_.live()) lane_.stream()->abort();
    flush_to_nowhere();
    queues_.mute(false);
    ++wired_.generation;
    wired_.stranded = false;
    drain_event_due_ = false;
    state_.store(QpState::kReset, std::memory_order_release);
  });
  return {};
}

Status QueuePairImpl::end_wired() {
  wired_.wiring->stop();
  lane_.exclusively([&] {
    lane_.send_left_ack();
    // Sending may have found that the peer is gone.
    const bool ends_here = !lane_.live() || lane_.stream()->is_down();
    const bool fresh = state_.exchange(QpState::kError) != QpState::kError;
    if (!ends_here) return lane_.stream()->abort();
    queues_.flush_receives();
    if (fresh) tell_last_receive();
  });
  return {};
}

}  // namespace weft::verbs
