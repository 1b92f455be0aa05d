// What the stream asks of its queue pair, and what it reports.
#include <atomic>
#include <utility>

#include "io/clock.h"
#include "io/log.h"
#include "verbs/connection.h"
#include "verbs/cq.h"
#include "verbs/pd.h"
#include "verbs/posting.h"
#include "verbs/qp.h"
#include "verbs/srq.h"
#include "verbs/window.h"
#include "verbs/wiring.h"

namespace weft::verbs {

namespace {

WcOp completed_op(SendOp op) {
  switch (op) {
    case SendOp::kSend:
    case SendOp::kSendInvalidate:
    case SendOp::kImmediate: return WcOp::kSend;
    case SendOp::kWrite:
    case SendOp::kWriteImm: return WcOp::kWrite;
    case SendOp::kRead: return WcOp::kRead;
    case SendOp::kFetchAdd: return WcOp::kFetchAdd;
    case SendOp::kCmpSwap: return WcOp::kCmpSwap;
    case SendOp::kLocalInvalidate: return WcOp::kLocalInvalidate;
    case SendOp::kBindWindow: return WcOp::kBindWindow;
  }
  return WcOp::kSend;
}

}  // namespace

bool QueuePairImpl::take_receive(proto::RecvWqe& out) {
  if (cut_off_ != nullptr && type_ == QpType::kUc) {
    copy_recv(cut_off_->wqe, out);
    cut_off_.reset();
    return true;
  }
  if (srq_ != nullptr) return srq_->take(out);
  if (caps_.max_recv_wr == 0 || rq_.head() == rq_.tail()) return false;
  copy_recv(rq_.at(rq_.head()), out);
  rq_.retire();
  return true;
}

void QueuePairImpl::receive_cut_off(const proto::RecvWqe& wqe) {
  cut_off_ = std::make_unique<CutOff>();
  copy_recv(wqe, cut_off_->wqe);
}

void QueuePairImpl::send_done(const proto::SendDone& done) {
  if (done.status != WcStatus::kSuccess) work_failed_ = true;
  if (!done.signaled || send_cq_ == nullptr || muted_) return;
  WorkCompletion wc;
  wc.wr_id = done.wr_id;
  wc.status = done.status;
  wc.op = completed_op(done.op);
  wc.byte_len = done.byte_len;
  wc.qp_num = number_;
  wc.vendor_error = done.vendor_error;
  send_cq_->push(wc, done.status != WcStatus::kSuccess);
}

void QueuePairImpl::recv_done(const proto::RecvDone& done) {
  if (done.status != WcStatus::kSuccess) work_failed_ = true;
  if (recv_cq_ == nullptr || muted_) return;
  WorkCompletion wc;
  wc.wr_id = done.wr_id;
  wc.status = done.status;
  wc.op = done.immediate ? WcOp::kRecvWithImm : WcOp::kRecv;
  wc.flags = done.flags;
  wc.byte_len = done.byte_len;
  wc.qp_num = number_;
  wc.vendor_error = done.vendor_error;
  wc.invalidated_rkey = done.invalidated.value;
  wc.imm_data = done.imm_data;
  recv_cq_->push(wc, done.status != WcStatus::kSuccess || has(done.flags, WcFlags::kSolicited));
}

WcStatus QueuePairImpl::local_operation(proto::SendWqe& wqe) {
  if (wqe.op == SendOp::kBindWindow) return execute_bind(*pd_, stream_id(), wqe);
  return execute_local_invalidate(*pd_, stream_id(), wqe);
}

proto::Violation QueuePairImpl::remote_invalidate(Stag stag) {
  return execute_remote_invalidate(*pd_, stream_id(), stag);
}

// Atomic among all streams of all devices, and with the CPU's own atomics.
std::uint64_t QueuePairImpl::execute_atomic(std::uint8_t* target, const AtomicRequest& request) {
  const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(target));
  std::uint64_t old = word.load(std::memory_order_acquire);
  while (!word.compare_exchange_weak(old, atomic_result(request, old), std::memory_order_acq_rel)) {
  }
  return old;
}

proto::TxBatch* QueuePairImpl::acquire_batch() { return device_.batches().acquire(); }
void QueuePairImpl::release_batch(proto::TxBatch* batch) { device_.batches().release(batch); }
std::uint8_t* QueuePairImpl::acquire_carry(std::size_t size) {
  return device_.carries().acquire(size);
}
void QueuePairImpl::release_carry(std::uint8_t* carry, std::size_t size) {
  device_.carries().release(carry, size);
}

void QueuePairImpl::raise(AsyncEventType type) {
  if (retired_) return;
  AsyncEvent event;
  event.type = type;
  event.qp = handle_;
  event.object = static_cast<const QueuePair*>(this);
  device_.raise(std::move(event));
}

void QueuePairImpl::log_violation(proto::Violation violation, TerminateCode code, bool by_peer) {
  if (!io::log_enabled(LogLevel::kInfo)) return;
  const std::string peer =
      connection_ == nullptr ? std::string("?") : connection_->peer_address().text();
  if (by_peer) {
    io::log(LogLevel::kInfo, "qp {}: {} sent Terminate {}/{}/{:02x}: {}", number_, peer, code.layer,
            code.etype, code.code, weft::describe(code));
  } else {
    io::log(LogLevel::kInfo, "qp {}: {}: {}; Terminate {}/{}/{:02x}", number_, peer,
            proto::info(violation).name, code.layer, code.etype, code.code);
  }
}

void QueuePairImpl::first_fpdu() {
  const io::SpinGuard lock(notices_lock_);
  notices_.connection = connection_;
  notices_.first_fpdu = true;
  notices_due_.store(true, std::memory_order_release);
}

void QueuePairImpl::stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) {
  if (outlives_link(how)) return;
  state_.store(QpState::kError, std::memory_order_release);
  // Posts that were under way when the state changed are in the queue by the time we have the lock.
  { const io::SpinGuard lock(sq_lock_); }
  flush_posted();
  flush_receives();
  if (srq_ != nullptr && !retired_) raise(AsyncEventType::kQpLastWqeReached);
  const io::SpinGuard lock(notices_lock_);
  notices_.connection = connection_;
  notices_.down = true;
  notices_.how = how;
  notices_.code = code;
  notices_.by_peer = by_peer;
  notices_.generation = generation_;
  notices_due_.store(true, std::memory_order_release);
}

void QueuePairImpl::flush_receives() {
  if (const std::unique_ptr<CutOff> first = std::move(cut_off_)) {
    proto::RecvDone done;
    done.wr_id = first->wqe.wr_id;
    done.status = WcStatus::kFlushed;
    recv_done(done);
  }
  if (srq_ != nullptr || caps_.max_recv_sge == 0) return;
  { const io::SpinGuard lock(rq_lock_); }
  while (rq_.head() != rq_.tail()) {
    proto::RecvDone done;
    done.wr_id = rq_.at(rq_.head()).wr_id;
    done.status = WcStatus::kFlushed;
    rq_.retire();
    recv_done(done);
  }
}

// Posted in the error state, or before there was a connection.
void QueuePairImpl::flush_posted() {
  if (proto::Stream* stream = lane_.stream()) {
    stream->flush_posted();
    return;
  }
  flush_unsent(WcStatus::kFlushed);
}

// What no stream has begun. REQUIRES: there is none now.
void QueuePairImpl::flush_unsent(WcStatus oldest) {
  while (sq_.head() != sq_.tail()) {
    const proto::SendWqe& wqe = sq_.at(sq_.head());
    proto::SendDone done;
    done.wr_id = wqe.wr_id;
    done.status = std::exchange(oldest, WcStatus::kFlushed);
    done.op = wqe.op;
    done.signaled = true;
    sq_.retire();
    send_done(done);
  }
}

void QueuePairImpl::flush_to_nowhere() {
  while (sq_.head() != sq_.tail()) sq_.retire();
  if (proto::Stream* stream = lane_.stream()) stream->flush_posted();
  cut_off_.reset();
  if (srq_ != nullptr || caps_.max_recv_sge == 0) return;
  while (rq_.head() != rq_.tail()) rq_.retire();
}

Instant QueuePairImpl::now() { return io::now(); }

void QueuePairImpl::add_counters(Counters& sum) const { lane_.add_counters(sum); }

// --- behind each turn ---

void QueuePairImpl::turn_done() {
  if (state() == QpState::kError && sq_.size() != 0) flush_posted();
  proto::Stream* stream = lane_.stream();
  if (stream == nullptr || !lane_.live()) {
    note_waiting_work();
    return;
  }
  wake_who_waits_for_writes();
  if (overflow_.load(std::memory_order_relaxed) && stream->state() == proto::StreamState::kRts) {
    stream->fail(proto::Violation::kLocalFault);
    lane_.transmit();
  }
  if (drain_event_due_ && stream->send_drained()) {
    drain_event_due_ = false;
    raise(AsyncEventType::kSqDrained);
  }
}

// See CompletionQueueImpl::wake_idle(). A Write that came while requests were outstanding wakes
// when the last of them is gone, which may be without a completion.
void QueuePairImpl::wake_who_waits_for_writes() {
  const std::uint64_t writes =
      lane_.stream()->counters().rx_messages[static_cast<std::size_t>(Opcode::kWrite)].get();
  if (writes == writes_seen_) return;
  if (send_cq_ == nullptr || send_cq_ == recv_cq_ || !send_cq_->armed() || sq_.size() != 0) return;
  writes_seen_ = writes;
  send_cq_->wake_idle();
}

void QueuePairImpl::lane_left() {
  if (notices_due_.load(std::memory_order_acquire)) tell_connection();
}

void QueuePairImpl::tell_connection() {
  const std::shared_ptr<QueuePairImpl> self = weak_from_this().lock();
  while (true) {
    Notices notices;
    {
      const io::SpinGuard lock(notices_lock_);
      if (telling_) return;  // the thread that tells will find the rest
      if (!notices_due_.exchange(false, std::memory_order_acq_rel)) return;
      notices = std::exchange(notices_, {});
      telling_ = true;
    }
    if (notices.connection == nullptr && is_wired()) {
      wiring_->link_lost(notices.generation, !notices.outlived  ? LinkEnd::kError
                                             : notices.stranded ? LinkEnd::kStranded
                                                                : LinkEnd::kIdle);
      look_for_waiting_work();  // posted while the wiring had a connection
    }
    if (notices.connection != nullptr) {
      if (notices.first_fpdu) notices.connection->on_first_fpdu();
      if (notices.down) {
        notices.connection->on_stream_down(notices.how, notices.code, notices.by_peer);
      }
    }
    notices = {};  // perhaps the last one to hold the connection
    const io::SpinGuard lock(notices_lock_);
    telling_ = false;
  }
}

}  // namespace weft::verbs
