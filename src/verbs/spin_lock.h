// A lock for sections of some nanoseconds, and the clock that paces doorbells.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <chrono>
#endif

namespace weft {

inline void cpu_pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Not recursive, not fair. lock() spins a little, then yields the CPU: the holder may have been
// preempted.
class SpinLock {
 public:
  bool try_lock() noexcept {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void lock() noexcept {
    for (unsigned spins = 0; !try_lock(); ++spins) {
      if (spins < kSpins) {
        cpu_pause();
      } else {
        sched_yield();
      }
    }
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

  // For a pair of threads of which one leaves a note and then tries the lock, while the other gives
  // the lock up and then looks for notes: in one total order, so that one of them sees the other.
  bool try_lock_in_order() noexcept { return !held_.exchange(true, std::memory_order_seq_cst); }
  void unlock_in_order() noexcept { held_.store(false, std::memory_order_seq_cst); }

 private:
  static constexpr unsigned kSpins = 200;
  std::atomic<bool> held_{false};
};

// Ticks of the CPU's constant-rate counter: cheaper than any clock call, good for "was this a
// moment ago". Compare differences with kDoorbellTicks only.
inline std::uint64_t cpu_ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace weft
