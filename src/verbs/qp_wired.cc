// A queue pair that the program wires by hand: its own moves between the states, the connection
// that its wiring finds, and what the end of one means (docs/personality.md).
#include <utility>

#include "io/log.h"
#include "verbs/cq.h"
#include "verbs/qp.h"
#include "verbs/rendezvous.h"
#include "verbs/srq.h"
#include "verbs/wiring.h"

namespace weft::verbs {

// REQUIRES: the device has a rendezvous. Once, before others see the queue pair.
void QueuePairImpl::prepare_wiring() {
  const auto type = type_ == QpType::kRc ? roce::QpType::kRc : roce::QpType::kUc;
  wiring_ = std::make_shared<Wiring>(device_.self(), number_, type);
  wiring_->belongs_to(weak_from_this());
  device_.rendezvous()->publish(number_, wiring_);
  state_.store(QpState::kReset, std::memory_order_release);
}

bool QueuePairImpl::is_wired() const noexcept {
  return wiring_ != nullptr && !reserved_.load(std::memory_order_acquire);
}

Status QueuePairImpl::wire(const WiringToReceive& attributes) {
  if (!device_.usable()) return fail(Error::kBadState);
  if (wiring_ == nullptr) return fail(Error::kUnsupported);
  Status result;
  std::uint32_t generation = 0;
  lane_.exclusively([&] {
    if (retired_ || !is_wired() || state() != QpState::kInit) {
      result = fail(Error::kBadState);
      return;
    }
    generation = ++generation_;
    stranded_ = false;
    if (type_ == QpType::kRc) ird_.store(attributes.reads_served, std::memory_order_relaxed);
    state_.store(QpState::kRtr, std::memory_order_release);
  });
  if (!result) return result;
  result = wiring_->begin(attributes, generation);
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
  if (wiring_ == nullptr) return fail(Error::kUnsupported);
  if (attributes.psn > kPsnMask || attributes.reads_asked > limits::kOrd) {
    return fail(Error::kInvalidArgument);
  }
  if (!is_wired() || state() != QpState::kRtr) return fail(Error::kBadState);
  wiring_->begin_sending(attributes);
  Status result;
  lane_.exclusively([&] {
    if (retired_ || state() != QpState::kRtr) {
      result = fail(Error::kBadState);
      return;
    }
    if (type_ == QpType::kRc) ord_.store(attributes.reads_asked, std::memory_order_relaxed);
    rnr_retry_ = attributes.rnr_retry;
    // Nothing of ours is on a connection yet, so it can go without a trace.
    if (lane_.live() && !wiring_->agrees(peer_psn_)) lane_.stream()->abort();
    state_.store(QpState::kRts, std::memory_order_release);
    if (!lane_.live() || lane_.stream()->finished()) return;
    tell_limits(*lane_.stream());
    lane_.stream()->pause(false);
  });
  return result;
}

void QueuePairImpl::tell_limits(proto::Stream& stream) const {
  stream.limit_outstanding(ord_.load(std::memory_order_relaxed));
  stream.allow_refusals(rnr_retry_);
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
    const bool heard = now != QpState::kRts || wiring_->agrees(peer_psn);
    const bool taken = lane_.live() || stranded_;
    if (retired_ || taken || !wired || !heard || generation != generation_) {
      result = fail(Error::kBadState);
      return;
    }
    peer_psn_ = peer_psn;
    proto::StreamParams mine = params;
    mine.id = stream_id();
    mine.acks = type_ == QpType::kRc;
    mine.unreliable = !mine.acks;
    writes_seen_ = 0;
    work_failed_ = false;
    overflow_.store(false, std::memory_order_relaxed);
    result = lane_.open(std::move(transport), std::move(trace), mine,
                        remote_access_.load(std::memory_order_relaxed), poller());
    if (!result) return;
    if (now == QpState::kRts) {
      tell_limits(*lane_.stream());
    } else {
      lane_.stream()->pause(true);  // in RTR nothing is sent but answers
    }
    lane_.look_alone();
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
  if (!is_wired() || sq_.size() == 0 || lane_.live()) return;
  const bool due = state() == QpState::kRts || (state() == QpState::kSqd && stranded_);
  if (due && wiring_->work_waits()) lose_work();
}

// Of an unreliable queue pair: what is queued has been sent, as far as anybody can tell.
void QueuePairImpl::lose_work() {
  { const io::SpinGuard lock(sq_lock_); }
  while (sq_.head() != sq_.tail()) {
    proto::SendWqe& wqe = sq_.at(sq_.head());
    const bool local = wqe.op == SendOp::kBindWindow || wqe.op == SendOp::kLocalInvalidate;
    proto::SendDone done;
    done.wr_id = wqe.wr_id;
    done.status = local ? local_operation(wqe) : WcStatus::kSuccess;
    done.op = wqe.op;
    done.signaled = done.status != WcStatus::kSuccess || wqe.has_flag(SendFlags::kSignaled);
    done.byte_len = wqe.length;
    sq_.retire();
    send_done(done);
  }
}

// The stream is down. True: the queue pair stays as it is. To it, a peer that went is one that does
// not answer, which only the retries find out.
bool QueuePairImpl::outlives_link(proto::StreamEnd how) {
  if (!is_wired()) return false;
  if (muted_) return true;  // on its way to RESET
  const QpState now = state();
  const bool wired = now == QpState::kRtr || now == QpState::kRts || now == QpState::kSqd;
  const bool quiet = how == proto::StreamEnd::kOrderly || how == proto::StreamEnd::kLost;
  if (retired_ || !wired || !quiet || work_failed_) return false;
  if (type_ == QpType::kUc) lose_work();
  stranded_ = type_ == QpType::kRc && lane_.stream()->left_in_the_middle();
  const io::SpinGuard lock(notices_lock_);
  notices_.generation = generation_;
  notices_.outlived = true;
  notices_.stranded = stranded_;
  notices_due_.store(true, std::memory_order_release);
  return true;
}

bool QueuePairImpl::retries_exhausted(std::uint32_t generation) {
  bool failed = false;
  lane_.exclusively([&] {
    const bool waits = state() == QpState::kRts || (state() == QpState::kSqd && stranded_);
    if (retired_ || lane_.live() || generation != generation_ || !waits) return;
    { const io::SpinGuard lock(sq_lock_); }
    if (sq_.size() == 0) return;
    if (type_ == QpType::kUc) return lose_work();
    failed = true;
    state_.store(QpState::kError, std::memory_order_release);
    flush_unsent(WcStatus::kRetryExceeded);
    flush_receives();
    if (srq_ != nullptr) raise(AsyncEventType::kQpLastWqeReached);
  });
  return failed;
}

// --- states ---

// Status of wire() and start_sending() apart, as for any queue pair; but RESET is possible from
// everywhere, ends the connection, and forgets all requests.
Status QueuePairImpl::modify_wired(QpState to) {
  Status result;
  const QpState from = state();
  switch (to) {
    case QpState::kReset:
      wiring_->stop();
      lane_.exclusively([&] {
        muted_ = true;
        lane_.send_left_ack();
        if (lane_.live()) lane_.stream()->abort();
        flush_to_nowhere();
        muted_ = false;
        ++generation_;
        stranded_ = false;
        state_.store(QpState::kReset, std::memory_order_release);
        // As on adapters: programs that wire anew do not expect what was before.
        if (retired_) return;
        send_cq_->forget(number_);
        recv_cq_->forget(number_);
      });
      return {};
    case QpState::kInit:
      lane_.exclusively([&] {
        if (state() == QpState::kReset) {
          state_.store(QpState::kInit, std::memory_order_release);
        } else if (state() != QpState::kInit) {
          result = fail(Error::kBadState);
        }
      });
      return result;
    case QpState::kError:
      wiring_->stop();
      lane_.exclusively([&] {
        lane_.send_left_ack();
        state_.store(QpState::kError, std::memory_order_release);
        // Sending may have found that the peer is gone.
        if (lane_.live() && !lane_.stream()->is_down()) return lane_.stream()->abort();
        flush_receives();
      });
      return {};
    case QpState::kRtr:
    case QpState::kRts:
      // Without attributes only what changes nothing, and back from SQD.
      if (to == from) return {};
      if (from == QpState::kSqd && to == QpState::kRts) break;
      return fail(Error::kBadState);
    case QpState::kSqd:
    case QpState::kSqe: break;
  }
  return modify_connected(to);
}

}  // namespace weft::verbs
