// Locks that Clang's analysis knows: a mutex, and a spin lock for sections of some nanoseconds.
#pragma once

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "base/cpu_pause.h"
#include "os/annotations.h"

namespace weft::os {

class WEFT_CAPABILITY("mutex") Mutex {
 public:
  void lock() WEFT_ACQUIRE() { mutex_.lock(); }
  void unlock() WEFT_RELEASE() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() WEFT_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

// Holds a Mutex for a scope. May be let go and taken again in between.
class WEFT_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) WEFT_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() WEFT_RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void lock() WEFT_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() WEFT_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// Not recursive, not fair. lock() spins a little, then yields the CPU: the holder may have been
// preempted.
class WEFT_CAPABILITY("mutex") SpinLock {
 public:
  [[nodiscard]] bool try_lock() noexcept WEFT_TRY_ACQUIRE(true) {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void lock() noexcept WEFT_ACQUIRE() {
    for (unsigned spins = 0; held_.exchange(true, std::memory_order_acquire); ++spins) {
      while (held_.load(std::memory_order_relaxed)) {
        if (++spins < kSpins) {
          cpu_pause();
        } else {
          sched_yield();
        }
      }
    }
  }
  void unlock() noexcept WEFT_RELEASE() { held_.store(false, std::memory_order_release); }

 private:
  static constexpr unsigned kSpins = 200;
  std::atomic<bool> held_{false};
};

class WEFT_SCOPED_CAPABILITY SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) WEFT_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  ~SpinGuard() WEFT_RELEASE() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace weft::os
