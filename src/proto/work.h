// Work queues as the core sees them: rings of work queue elements (WQEs) between one producer (the
// verbs layer, posts serialized by its lock) and one consumer (the thread that runs the stream).
#pragma once

#include <weft/types.h>

#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/cache_line.h"
#include "base/seq.h"

namespace weft::proto {

// Header of a send WQE; the SGEs, or the inline payload, follow it in its slot.
struct SendWqe {
  std::uint64_t wr_id = 0;
  std::uint64_t remote_to = 0;
  std::uint64_t end_offset = 0;  // transmit stream offset behind its last octet, once built
  std::uint64_t imm_data = 0;    // Immediate; atomics: compare or add value
  std::uint32_t length = 0;      // payload bytes
  Stag remote_stag;              // also the STag to invalidate
  SendOp op = SendOp::kSend;
  SendFlags flags = SendFlags::kNone;
  std::uint8_t sge_count = 0;
  bool answered = false;  // Reads and atomics: the response is in
  std::uint32_t ask = 0;  // with acks: the first Ack that covers it, by number
  // sizeof is 48: the tail below starts 16-aligned.

  [[nodiscard]] bool has_flag(SendFlags f) const noexcept { return has(flags, f); }
  [[nodiscard]] bool is_inline() const noexcept { return has(flags, SendFlags::kInline); }
  [[nodiscard]] bool awaits_response() const noexcept {
    return op == SendOp::kRead || op == SendOp::kFetchAdd || op == SendOp::kCmpSwap;
  }
  [[nodiscard]] Sge* sges() noexcept { return reinterpret_cast<Sge*>(this + 1); }
  [[nodiscard]] const Sge* sges() const noexcept { return reinterpret_cast<const Sge*>(this + 1); }
  [[nodiscard]] std::uint8_t* inline_data() noexcept {
    return reinterpret_cast<std::uint8_t*>(this + 1);
  }
};
static_assert(sizeof(SendWqe) % 16 == 0);

// Atomics and window binds need these beside one SGE; they lie behind sges()[0] in the slot.
struct AtomicArgs {
  std::uint64_t swap = 0;
  std::uint64_t compare_mask = 0;
  std::uint64_t add_swap_mask = 0;
};
struct BindArgs {
  Stag region;
  Access access = Access::kNone;
  std::uint64_t length = 0;
};
// Bytes of tail every send slot has at least.
inline constexpr std::size_t kSendTailMin = sizeof(Sge) + sizeof(AtomicArgs);
static_assert(sizeof(BindArgs) <= sizeof(AtomicArgs));

inline AtomicArgs& atomic_args(SendWqe& wqe) {
  return *reinterpret_cast<AtomicArgs*>(wqe.sges() + 1);
}
inline BindArgs& bind_args(SendWqe& wqe) { return *reinterpret_cast<BindArgs*>(wqe.sges() + 1); }

// Header of a posted receive; its SGEs follow in the slot.
struct RecvWqe {
  std::uint64_t wr_id = 0;
  std::uint32_t length = 0;  // bytes of all SGEs, at most 2^32 - 1
  std::uint32_t sge_count = 0;
  [[nodiscard]] Sge* sges() noexcept { return reinterpret_cast<Sge*>(this + 1); }
  [[nodiscard]] const Sge* sges() const noexcept { return reinterpret_cast<const Sge*>(this + 1); }
};
static_assert(sizeof(RecvWqe) % 16 == 0);

// A ring of fixed-size slots, each a header and a tail. Indices run freely and are masked on use.
// Threads: reserve and commit by the producer, the rest by the consumer; size() by anyone.
template <class Wqe>
class WorkRing {
 public:
  WorkRing() = default;
  WorkRing(const WorkRing&) = delete;
  WorkRing& operator=(const WorkRing&) = delete;
  ~WorkRing() {
    if (profile::kHeap && !lent_) std::free(memory_);
  }

  // Room for at least `depth` WQEs with `tail_bytes` behind each. Once, before use. False: no
  // memory. The memory is not touched before it is used, so idle queues cost address space only.
  [[nodiscard]] bool allocate(std::uint32_t depth, std::size_t tail_bytes) {
    capacity_ = std::bit_ceil(depth);
    stride_ = stride(tail_bytes);
    memory_ =
        static_cast<std::uint8_t*>(std::aligned_alloc(64, (stride_ * capacity_ + 63) / 64 * 64));
    return memory_ != nullptr;
  }

  // The same in memory of the caller's, which outlives the ring: memory_needed() octets, as aligned
  // as any object. Null: false.
  static constexpr std::size_t memory_needed(std::uint32_t depth, std::size_t tail_bytes) noexcept {
    return stride(tail_bytes) * std::bit_ceil(depth);
  }
  [[nodiscard]] bool use(void* memory, std::uint32_t depth, std::size_t tail_bytes) noexcept {
    capacity_ = std::bit_ceil(depth);
    stride_ = stride(tail_bytes);
    memory_ = static_cast<std::uint8_t*>(memory);
    lent_ = true;
    return memory_ != nullptr;
  }

  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t tail_bytes() const noexcept { return stride_ - sizeof(Wqe); }

  // Producer: the slot behind the last committed one; null if full.
  [[nodiscard]] Wqe* reserve() noexcept { return reserve(head_); }
  // The same where a slot stays taken for longer than the consumer needs it: until `freed`, an
  // index that follows head(), has passed it. Every call names the same one.
  [[nodiscard]] Wqe* reserve(const std::atomic<std::uint32_t>& freed) noexcept {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - freed_seen_ >= capacity_) {
      freed_seen_ = freed.load(std::memory_order_acquire);
      if (tail - freed_seen_ >= capacity_) return nullptr;
    }
    return new (raw(tail)) Wqe;
  }
  void commit(std::uint32_t count = 1) noexcept {
    tail_.store(tail_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }

  // Consumer.
  [[nodiscard]] Wqe& at(std::uint32_t index) noexcept {
    return *std::launder(reinterpret_cast<Wqe*>(raw(index)));
  }
  [[nodiscard]] std::uint32_t head() const noexcept {
    return head_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t tail() const noexcept {
    return tail_.load(std::memory_order_acquire);
  }
  void retire() noexcept { head_.store(head() + 1, std::memory_order_release); }

  [[nodiscard]] std::uint32_t size() const noexcept {
    const std::uint32_t head = head_.load(std::memory_order_acquire);
    return tail_.load(std::memory_order_acquire) - head;
  }
  // Slots that are not free: see reserve().
  [[nodiscard]] std::uint32_t taken(const std::atomic<std::uint32_t>& freed) const noexcept {
    const std::uint32_t before = freed.load(std::memory_order_acquire);
    return tail_.load(std::memory_order_acquire) - before;
  }

 private:
  static constexpr std::size_t stride(std::size_t tail_bytes) noexcept {
    return (sizeof(Wqe) + tail_bytes + 15) / 16 * 16;
  }
  [[nodiscard]] std::uint8_t* raw(std::uint32_t index) noexcept {
    return memory_ + static_cast<std::size_t>(index & (capacity_ - 1)) * stride_;
  }

  std::uint8_t* memory_ = nullptr;
  std::size_t stride_ = 0;
  std::uint32_t capacity_ = 0;
  bool lent_ = false;  // memory_ is the caller's
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> head_{0};
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> tail_{0};
  std::uint32_t freed_seen_ = 0;  // producer's
};

using SendQueue = WorkRing<SendWqe>;
using RecvQueue = WorkRing<RecvWqe>;

// How a work request ended, on its way to a completion queue.
struct SendDone {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  SendOp op = SendOp::kSend;
  bool signaled = false;  // or failed: a completion is due
  std::uint32_t byte_len = 0;
  std::uint32_t vendor_error = 0;
};
struct RecvDone {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  WcFlags flags = WcFlags::kNone;
  bool immediate = false;  // the opcode is RecvWithImm
  std::uint32_t byte_len = 0;
  std::uint32_t vendor_error = 0;
  Stag invalidated;
  std::uint64_t imm_data = 0;
};

}  // namespace weft::proto
