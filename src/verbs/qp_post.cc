// Posting: work requests become WQEs, and the doorbell.
#include <weft/limits.h>

#include "verbs/cq.h"
#include "verbs/pd.h"
#include "verbs/posting.h"
#include "verbs/qp.h"
#include "verbs/srq.h"
#include "verbs/window.h"

namespace weft::verbs {

namespace {

// The weight of a request beside its payload when doorbells are collected.
constexpr std::uint64_t kHeaderBytes = 24;

}  // namespace

Posted QueuePairImpl::post_send(std::span<const SendWr> wrs) {
  Posted posted;
  posted.error = may_post();
  if (posted.error != kTaken) return posted;
  {
    const os::SpinGuard lock(queues_.send_lock());
    posted = post_each(wrs, [this](const SendWr& wr) { return enqueue(wr); });
  }
  if (posted.count != 0) ring();
  return posted;
}

Status QueuePairImpl::queue_send(const SendWr& wr) {
  if (const Error error = may_post(); error != kTaken) return fail(error);
  const os::SpinGuard lock(queues_.send_lock());
  if (const Error error = enqueue(wr); error != kTaken) return fail(error);
  return {};
}

Error QueuePairImpl::may_post() const {
  return device_.usable() ? may_send(state()) : Error::kBadState;
}

// Under the lock of the send queue.
Error QueuePairImpl::enqueue(const SendWr& wr) {
  proto::SendWqe* wqe = queues_.reserve_send();
  if (wqe == nullptr || queues_.caps().max_send_wr == 0) return Error::kNoSpace;
  if (const Error error = fill(wr, *wqe); error != kTaken) return error;
  const std::uint64_t bytes = wqe->length + kHeaderBytes;
  queues_.sends().commit();
  lane_.posts().note_posted(bytes);
  return kTaken;
}

void QueuePairImpl::ring() {
  if (!device_.usable()) return;
  if (state() == QpState::kRts) {
    lane_.ring_doorbell();
  } else {
    lane_.send_now();  // flushes
  }
}

// --- receives ---

Posted QueuePairImpl::post_recv(std::span<const RecvWr> wrs) {
  Posted posted;
  posted.error = !device_.usable()
                     ? Error::kBadState
                     : may_receive(state(), queues_.srq() != nullptr, queues_.caps(), wrs.size());
  if (posted.error != kTaken) return posted;
  posted = queues_.post_receives(wrs);
  if (state() == QpState::kError && posted.count != 0) {
    lane_.exclusively([&] { queues_.flush_receives(); });
  }
  if (lane_.awaits_receive()) lane_.receive_posted();
  return posted;
}

// --- from work request to WQE ---

Error QueuePairImpl::fill(const SendWr& wr, proto::SendWqe& wqe) {
  wqe.wr_id = wr.wr_id;
  wqe.op = wr.op;
  wqe.flags = queues_.signals_all() ? wr.flags | SendFlags::kSignaled : wr.flags;
  wqe.remote_to = wr.remote_addr;
  wqe.remote_stag = Stag{wr.rkey};
  wqe.imm_data = wr.imm_data;
  switch (wr.op) {
    case SendOp::kSendInvalidate:
      wqe.remote_stag = Stag{wr.invalidate_rkey};
      return fill_payload(wr, queues_.caps(), limits::kMessageBytes, wqe);
    case SendOp::kSend:
    case SendOp::kWrite:
    case SendOp::kWriteImm: return fill_payload(wr, queues_.caps(), limits::kMessageBytes, wqe);
    case SendOp::kRead:
      if (has(wr.flags, SendFlags::kInline) || ord_.load(std::memory_order_relaxed) == 0) {
        return Error::kInvalidArgument;
      }
      return fill_payload(wr, queues_.caps(), limits::kMessageBytes, wqe);
    case SendOp::kFetchAdd:
    case SendOp::kCmpSwap: return fill_atomic(wr, wqe);
    case SendOp::kImmediate:
      if (is_wired()) return fill_payload(wr, queues_.caps(), limits::kMessageBytes, wqe);
      return wr.sges.empty() ? kTaken : Error::kInvalidArgument;
    case SendOp::kLocalInvalidate: wqe.remote_stag = Stag{wr.invalidate_rkey}; return kTaken;
    case SendOp::kBindWindow: {
      const Status prepared = prepare_bind(wr, *pd_, wqe);
      return prepared ? kTaken : prepared.error();
    }
  }
  return Error::kInvalidArgument;
}

Error QueuePairImpl::fill_atomic(const SendWr& wr, proto::SendWqe& wqe) {
  const bool one_word = wr.sges.size() == 1 && wr.sges[0].length == sizeof(std::uint64_t);
  if (!one_word || has(wr.flags, SendFlags::kInline) || ord_.load(std::memory_order_relaxed) == 0) {
    return Error::kInvalidArgument;
  }
  wqe.length = sizeof(std::uint64_t);
  wqe.sge_count = 1;
  wqe.sges()[0] = wr.sges[0];
  wqe.imm_data = wr.compare_add;
  proto::AtomicArgs& args = proto::atomic_args(wqe);
  args.swap = wr.swap;
  args.compare_mask = wr.compare_mask;
  args.add_swap_mask = wr.op == SendOp::kFetchAdd ? wr.add_mask : wr.swap_mask;
  return kTaken;
}

}  // namespace weft::verbs
