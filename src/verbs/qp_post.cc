// Posting: work requests become WQEs, and the doorbell.
#include <weft/limits.h>

#include <algorithm>
#include <cstring>

#include "verbs/cq.h"
#include "verbs/pd.h"
#include "verbs/progress.h"
#include "verbs/qp_exclusive.h"
#include "verbs/srq.h"
#include "verbs/window.h"

namespace weft::verbs {

namespace {

// A doorbell may wait for the next poll if the last flush was less than this ago: some 20 us.
constexpr std::uint64_t kDoorbellTicks = 50'000;
// The same in a stream of posts: other connections may have their turn between.
constexpr std::uint64_t kStreamTicks = 10 * kDoorbellTicks;
// ... and not more than this has been collected.
constexpr std::uint64_t kDoorbellBytes = 256U << 10U;
constexpr std::uint64_t kHeaderBytes = 24;
// While doorbells are being collected, one post in so many looks at the clock.
constexpr std::uint32_t kPostsPerLook = 4;

// On the way of every post an Error in a register, not a Status: that is stored in pieces and read
// back whole, which the CPU cannot forward.
constexpr Error kTaken{};

}  // namespace

Posted QueuePairImpl::post_send(std::span<const SendWr> wrs) {
  Posted posted;
  posted.error = may_post();
  if (posted.error != kTaken) return posted;
  {
    const std::lock_guard lock(sq_lock_);
    for (const SendWr& wr : wrs) {
      posted.error = enqueue(wr);
      if (posted.error != kTaken) break;
      ++posted.count;
    }
  }
  if (posted.count != 0) ring();
  return posted;
}

Status QueuePairImpl::queue_send(const SendWr& wr) {
  if (const Error error = may_post(); error != kTaken) return fail(error);
  const std::lock_guard lock(sq_lock_);
  if (const Error error = enqueue(wr); error != kTaken) return fail(error);
  return {};
}

Error QueuePairImpl::may_post() const {
  if (!device_.usable()) return Error::kBadState;
  const QpState now = state();
  if (now == QpState::kReset || now == QpState::kInit || now == QpState::kRtr) {
    return Error::kBadState;
  }
  return kTaken;
}

// Under sq_lock_.
Error QueuePairImpl::enqueue(const SendWr& wr) {
  proto::SendWqe* wqe = sq_.reserve();
  if (wqe == nullptr || caps_.max_send_wr == 0) return Error::kNoSpace;
  if (const Error error = fill(wr, *wqe); error != kTaken) return error;
  const std::uint64_t bytes = wqe->length + kHeaderBytes;
  sq_.commit();
  unflushed_bytes_.store(unflushed_bytes_.load(std::memory_order_relaxed) + bytes,
                         std::memory_order_relaxed);
  return kTaken;
}

void QueuePairImpl::ring() {
  if (!device_.usable()) return;
  if (may_defer()) {
    // A full barrier: who takes the flag back sees what was posted before. If it was set already,
    // whoever set it sees to it that the background thread looks.
    if (deferred_.exchange(true, std::memory_order_seq_cst)) return;
    be_watched();
    // Between our look and this, the background thread may have taken the connection back, or the
    // caller armed the CQ to sleep.
    if (has_poller() && send_cq_->note_doorbell(*this)) return;
  }
  kick();
}

// Under load doorbells are collected: the next poll rings them all with one system call. The first
// after a pause or a poll rings at once, unless the last call had many to carry: then there is a
// stream of them, and whoever keeps it up polls again. Only while a caller is polling.
bool QueuePairImpl::may_defer() {
  if (!has_poller() || state() != QpState::kRts || !room_to_collect()) return false;
  const bool streaming = streaming_.load(std::memory_order_relaxed);
  if (!streaming && polled_since_flush()) return false;
  const bool collecting = deferred_.load(std::memory_order_relaxed);
  if (collecting && sq_.tail() % kPostsPerLook != 0) return true;
  const std::uint64_t since = cpu_ticks() - last_flush_.load(std::memory_order_relaxed);
  return since < (streaming ? kStreamTicks : kDoorbellTicks);
}

// Somebody will poll soon: it is driven by pollers; or, one of too many for that, polls lie between
// its last flushes, and nobody is about to sleep instead.
bool QueuePairImpl::has_poller() const {
  if (adopted()) return true;
  return polled_between_flushes_.load(std::memory_order_relaxed) && live() && !send_cq_->armed() &&
         !recv_cq_->armed();
}

bool QueuePairImpl::polled_since_flush() const {
  return driven_.load(std::memory_order_relaxed) !=
             driven_at_flush_.load(std::memory_order_relaxed) ||
         send_cq_->polls() != polls_at_flush_.load(std::memory_order_relaxed);
}

bool QueuePairImpl::room_to_collect() const {
  return unflushed_bytes_.load(std::memory_order_relaxed) < kDoorbellBytes &&
         sq_.size() < sq_.capacity();
}

// Transmits now, or leaves it to the holder of the lock.
void QueuePairImpl::kick() {
  kick_.store(true, std::memory_order_seq_cst);
  if (!progress_lock_.try_lock_in_order()) return;
  kick_.store(false, std::memory_order_relaxed);
  if (live()) transmit();
  if (state() == QpState::kError) flush_posted();
  epilogue();
  settle();
}

// --- receives ---

Posted QueuePairImpl::post_recv(std::span<const RecvWr> wrs) {
  Posted posted;
  if (!device_.usable() || state() == QpState::kReset || srq_ != nullptr) {
    posted.error = srq_ != nullptr ? Error::kInvalidArgument : Error::kBadState;
    return posted;
  }
  {
    const std::lock_guard lock(rq_lock_);
    for (const RecvWr& wr : wrs) {
      proto::RecvWqe* wqe = rq_.reserve();
      if (wqe == nullptr || caps_.max_recv_wr == 0) {
        posted.error = Error::kNoSpace;
        break;
      }
      if (const Status built = build_recv(wr, caps_.max_recv_sge, *wqe); !built) {
        posted.error = built.error();
        break;
      }
      rq_.commit();
      ++posted.count;
    }
  }
  if (state() == QpState::kError && posted.count != 0) exclusively([&] { flush_receives(); });
  return posted;
}

// --- from work request to WQE ---

Error QueuePairImpl::fill(const SendWr& wr, proto::SendWqe& wqe) {
  wqe.wr_id = wr.wr_id;
  wqe.op = wr.op;
  wqe.flags = signal_all_ ? wr.flags | SendFlags::kSignaled : wr.flags;
  wqe.remote_to = wr.remote_addr;
  wqe.remote_stag = Stag{wr.rkey};
  wqe.imm_data = wr.imm_data;
  switch (wr.op) {
    case SendOp::kSendInvalidate:
      wqe.remote_stag = Stag{wr.invalidate_rkey};
      return fill_payload(wr, wqe);
    case SendOp::kSend:
    case SendOp::kWrite:
    case SendOp::kWriteImm: return fill_payload(wr, wqe);
    case SendOp::kRead:
      if (has(wr.flags, SendFlags::kInline) || ord_.load(std::memory_order_relaxed) == 0) {
        return Error::kInvalidArgument;
      }
      return fill_payload(wr, wqe);
    case SendOp::kFetchAdd:
    case SendOp::kCmpSwap: return fill_atomic(wr, wqe);
    case SendOp::kImmediate: return wr.sges.empty() ? kTaken : Error::kInvalidArgument;
    case SendOp::kLocalInvalidate: wqe.remote_stag = Stag{wr.invalidate_rkey}; return kTaken;
    case SendOp::kBindWindow: {
      const Status prepared = prepare_bind(wr, *pd_, wqe);
      return prepared ? kTaken : prepared.error();
    }
  }
  return Error::kInvalidArgument;
}

Error QueuePairImpl::fill_payload(const SendWr& wr, proto::SendWqe& wqe) {
  std::uint64_t total = 0;
  for (const Sge& sge : wr.sges) total += sge.length;
  if (total > limits::kMessageBytes) return Error::kInvalidArgument;
  wqe.length = static_cast<std::uint32_t>(total);
  if (has(wr.flags, SendFlags::kInline)) {
    if (total > caps_.max_inline_bytes) return Error::kInvalidArgument;
    std::uint8_t* to = wqe.inline_data();
    for (const Sge& sge : wr.sges) {
      if (sge.length == 0) continue;
      // The verbs carry addresses as numbers. NOLINTNEXTLINE(performance-no-int-to-ptr)
      std::memcpy(to, reinterpret_cast<const void*>(static_cast<std::uintptr_t>(sge.addr)),
                  sge.length);
      to += sge.length;
    }
    return kTaken;
  }
  if (wr.sges.size() > caps_.max_send_sge) return Error::kInvalidArgument;
  wqe.sge_count = static_cast<std::uint8_t>(wr.sges.size());
  std::copy(wr.sges.begin(), wr.sges.end(), wqe.sges());
  return kTaken;
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
