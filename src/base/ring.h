// A bounded queue between one producer and one consumer, without locks.
//
// Threads: push, reserve, commit, full by the producer only; front, peek, pop by the consumer only;
// size, empty, capacity by anyone, exact only while the other side is still. "One" means at any
// moment: a side may move between threads if the threads hand over under a lock.
// All memory is taken by the constructor; slots are reused, never destroyed before the ring is.
#pragma once

#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

namespace weft {

inline constexpr std::size_t kCacheLineBytes = 64;

template <class T>
class SpscRing {
  static_assert(std::is_nothrow_default_constructible_v<T>);

 public:
  // Room for at least `capacity_min` entries, rounded up to a power of two. If there is no memory,
  // capacity() is 0 and the ring is full and empty at once; the owner checks that after creation.
  // REQUIRES: 0 < capacity_min <= 2^31.
  explicit SpscRing(std::size_t capacity_min)
      : slots_(allocate(capacity_min)),
        capacity_(slots_ == nullptr ? 0 : std::bit_ceil(capacity_min)) {}
  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  // Producer. Copies `value` in; false if the ring is full, and then nothing has changed.
  [[nodiscard]] bool push(const T& value) {
    T* slot = reserve();
    if (slot == nullptr) return false;
    *slot = value;
    commit();
    return true;
  }

  // Producer. The slot that the next commit() publishes, to be filled in place; null if full. It
  // holds whatever an earlier entry left there. `ahead` > 0 names later slots, published together
  // by commit(n).
  [[nodiscard]] T* reserve(std::size_t ahead = 0) noexcept {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail + ahead - head_seen_ >= capacity_) {
      head_seen_ = head_.load(std::memory_order_acquire);
      if (tail + ahead - head_seen_ >= capacity_) return nullptr;
    }
    return &slots_[(tail + ahead) & (capacity_ - 1)];
  }

  // Producer. REQUIRES: the last `count` slots were reserved.
  void commit(std::size_t count = 1) noexcept {
    tail_.store(tail_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }

  // Consumer. The oldest entry, null if there is none. Stays valid, and may be changed in place,
  // until pop().
  [[nodiscard]] T* front() noexcept { return peek(0); }

  // Consumer. The entry `ahead` places behind the oldest, null if there are not that many.
  [[nodiscard]] T* peek(std::size_t ahead) noexcept {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    if (tail_seen_ - head <= ahead) {
      tail_seen_ = tail_.load(std::memory_order_acquire);
      if (tail_seen_ - head <= ahead) return nullptr;
    }
    return &slots_[(head + ahead) & (capacity_ - 1)];
  }

  // Consumer. REQUIRES: peek(count - 1) is not null.
  void pop(std::size_t count = 1) noexcept {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    assert(tail_.load(std::memory_order_relaxed) - head >= count);
    head_.store(head + count, std::memory_order_release);
  }

  [[nodiscard]] std::size_t size() const noexcept {
    const std::size_t head = head_.load(std::memory_order_acquire);
    return tail_.load(std::memory_order_acquire) - head;
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool full() const noexcept { return size() >= capacity_; }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }

 private:
  static T* allocate(std::size_t capacity_min) {
    assert(capacity_min > 0 && capacity_min <= (std::size_t{1} << 31));
    const std::size_t count = std::bit_ceil(capacity_min);
    // An array too large for the address space would throw even with std::nothrow.
    if (count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T)) return nullptr;
    return new (std::nothrow) T[count];
  }

  const std::unique_ptr<T[]> slots_;
  const std::size_t capacity_;

  // Counters run freely and are masked on use. Each side keeps a private copy of the other's
  // counter beside its own, so that a queue neither full nor empty costs no cache-line transfer.
  alignas(kCacheLineBytes) std::atomic<std::size_t> head_{0};
  std::size_t tail_seen_ = 0;  // consumer's
  alignas(kCacheLineBytes) std::atomic<std::size_t> tail_{0};
  std::size_t head_seen_ = 0;  // producer's
};

}  // namespace weft
