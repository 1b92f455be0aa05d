#include "verbs/work_queues.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "verbs/cq.h"
#include "verbs/posting.h"
#include "verbs/srq.h"

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

WorkQueues::WorkQueues(const QpOptions& options, std::uint32_t qp_num)
    : qp_num_(qp_num),
      signal_all_(options.signal_all),
      reuses_cut_off_(options.type == QpType::kUc),
      on_step_(options.on_step),
      send_cq_(std::static_pointer_cast<CompletionQueueImpl>(options.send_cq)),
      recv_cq_(std::static_pointer_cast<CompletionQueueImpl>(options.recv_cq)),
      srq_(std::static_pointer_cast<SharedReceiveQueueImpl>(options.srq)) {}

WorkQueues::~WorkQueues() = default;

Status WorkQueues::allocate(const QpOptions& o) {
  assert(sq_.size() == 0 && rq_.size() == 0);
  const std::size_t sge_bytes = o.max_send_sge * sizeof(Sge);
  const std::size_t tail =
      std::max({proto::kSendTailMin, sge_bytes, static_cast<std::size_t>(o.max_inline_bytes)});
  if (!sq_.allocate(std::max(o.max_send_wr, 1U), tail)) return fail(Error::kNoMemory);
  caps_.max_send_wr = o.max_send_wr == 0 ? 0 : sq_.capacity();
  caps_.max_send_sge = std::max(o.max_send_sge, 1U);
  caps_.max_inline_bytes =
      static_cast<std::uint32_t>(std::min<std::size_t>(sq_.tail_bytes(), limits::kInlineBytes));
  if (srq_ != nullptr) return {};
  return allocate_receives(o, caps_, rq_);
}

Posted WorkQueues::post_receives(std::span<const RecvWr> wrs) {
  assert(srq_ == nullptr);
  const os::SpinGuard lock(rq_lock_);
  return queue_receives(wrs, caps_.max_recv_sge, rq_, &freed_.receives);
}

bool WorkQueues::take_receive(proto::RecvWqe& out) {
  if (has_cut_off_ && reuses_cut_off_) {
    copy_recv(cut_off_->wqe, out);
    has_cut_off_ = false;
    return true;
  }
  if (srq_ != nullptr) {
    if (!srq_->take(out)) return false;
  } else {
    if (caps_.max_recv_wr == 0 || rq_.head() == rq_.tail()) return false;
    copy_recv(rq_.at(rq_.head()), out);
    rq_.retire();
  }
  if (on_step_) tell({.what = Step::What::kReceiveTaken});
  return true;
}

void WorkQueues::cut_off(const proto::RecvWqe& wqe) noexcept {
  assert(cut_off_ != nullptr);
  copy_recv(wqe, cut_off_->wqe);
  has_cut_off_ = true;
}

Status WorkQueues::reserve_cut_off() {
  if (cut_off_ == nullptr) cut_off_.reset(new (std::nothrow) CutOff);
  if (cut_off_ == nullptr) return fail(Error::kNoMemory);
  return {};
}

void WorkQueues::complete(const proto::SendDone& done) {
  if (done.status != WcStatus::kSuccess) failed_ = true;
  if (on_step_) {
    const bool completes = done.signaled && send_cq_ != nullptr && !muted_;
    tell({.what = Step::What::kCompleted,
          .completes = completes,
          .request = sq_.head() - 1,
          .wr_id = done.wr_id});
  }
  if (!done.signaled || send_cq_ == nullptr || muted_) return;
  WorkCompletion wc;
  wc.wr_id = done.wr_id;
  wc.status = done.status;
  wc.op = completed_op(done.op);
  wc.byte_len = done.byte_len;
  wc.qp_num = qp_num_;
  wc.vendor_error = done.vendor_error;
  send_cq_->push(wc, done.status != WcStatus::kSuccess, {&freed_.sends, sq_.head()});
}

void WorkQueues::complete(const proto::RecvDone& done) {
  if (done.status != WcStatus::kSuccess) failed_ = true;
  ++received_;
  if (recv_cq_ == nullptr || muted_) return;
  if (on_step_) tell({.what = Step::What::kReceived, .wr_id = done.wr_id});
  WorkCompletion wc;
  wc.wr_id = done.wr_id;
  wc.status = done.status;
  wc.op = done.immediate ? WcOp::kRecvWithImm : WcOp::kRecv;
  wc.flags = done.flags;
  wc.byte_len = done.byte_len;
  wc.qp_num = qp_num_;
  wc.vendor_error = done.vendor_error;
  wc.invalidated_rkey = done.invalidated.value;
  wc.imm_data = done.imm_data;
  const bool solicited = done.status != WcStatus::kSuccess || has(done.flags, WcFlags::kSolicited);
  // The slots of a shared queue are free when their receives are taken.
  recv_cq_->push(wc, solicited,
                 srq_ != nullptr ? SlotsToFree{} : SlotsToFree{&freed_.receives, received_});
}

void WorkQueues::flush_receives() {
  if (std::exchange(has_cut_off_, false)) {
    proto::RecvDone done;
    done.wr_id = cut_off_->wqe.wr_id;
    done.status = WcStatus::kFlushed;
    complete(done);
  }
  if (!has_own_receives()) return;
  { const os::SpinGuard lock(rq_lock_); }
  while (rq_.head() != rq_.tail()) {
    proto::RecvDone done;
    done.wr_id = rq_.at(rq_.head()).wr_id;
    done.status = WcStatus::kFlushed;
    rq_.retire();
    complete(done);
  }
}

void WorkQueues::flush_sends(WcStatus oldest) {
  while (sq_.head() != sq_.tail()) {
    const proto::SendWqe& wqe = sq_.at(sq_.head());
    proto::SendDone done;
    done.wr_id = wqe.wr_id;
    done.status = std::exchange(oldest, WcStatus::kFlushed);
    done.op = wqe.op;
    done.signaled = true;
    sq_.retire();
    complete(done);
  }
}

void WorkQueues::forget_completions() {
  if (send_cq_ != nullptr) send_cq_->forget(qp_num_);
  if (recv_cq_ != nullptr && recv_cq_ != send_cq_) recv_cq_->forget(qp_num_);
  // The engine has these requests behind it.
  freed_.sends.store(sq_.head(), std::memory_order_release);
  freed_.receives.store(received_, std::memory_order_release);
}

void WorkQueues::forget_sends() noexcept {
  while (sq_.head() != sq_.tail()) sq_.retire();
  freed_.sends.store(sq_.head(), std::memory_order_release);
}

void WorkQueues::forget_receives() noexcept {
  has_cut_off_ = false;
  if (!has_own_receives()) return;
  while (rq_.head() != rq_.tail()) rq_.retire();
  received_ = rq_.head();
  freed_.receives.store(received_, std::memory_order_release);
}

}  // namespace weft::verbs
