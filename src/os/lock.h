// Locks that Clang's analysis knows: a mutex and its condition, a mutex that readers share, and a
// spin lock for sections of some nanoseconds.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#include "base/cpu_pause.h"
#include "os/annotations.h"

namespace weft::os {

class WEFT_CAPABILITY("mutex") Mutex {
 public:
  void lock() WEFT_ACQUIRE() { mutex_.lock(); }
  void unlock() WEFT_RELEASE() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() WEFT_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

// The thread that has it may take it again.
class WEFT_CAPABILITY("mutex") RecursiveMutex {
 public:
  void lock() WEFT_ACQUIRE() { mutex_.lock(); }
  void unlock() WEFT_RELEASE() { mutex_.unlock(); }

 private:
  std::recursive_mutex mutex_;
};

// Holds a mutex for a scope. May be let go and taken again in between.
template <class AnyMutex>
class WEFT_SCOPED_CAPABILITY ScopedLock {
 public:
  explicit ScopedLock(AnyMutex& mutex) WEFT_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  // For a mutex that try_lock() has locked.
  ScopedLock(AnyMutex& mutex, std::adopt_lock_t) WEFT_REQUIRES(mutex) : mutex_(mutex) {}
  ~ScopedLock() WEFT_RELEASE() {
    if (held_) mutex_.unlock();
  }
  ScopedLock(const ScopedLock&) = delete;
  ScopedLock& operator=(const ScopedLock&) = delete;
  void lock() WEFT_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() WEFT_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  [[nodiscard]] bool held() const noexcept { return held_; }

 private:
  AnyMutex& mutex_;
  bool held_ = true;
};
using MutexLock = ScopedLock<Mutex>;

// Lets go of a Mutex for a scope, and takes it back at its end, whichever way that comes.
class WEFT_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) WEFT_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() WEFT_RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable for a Mutex. Wait in a loop that tests what is waited for: the analysis does
// not know that a predicate runs with the mutex.
class Condition {
 public:
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }
  void wait(Mutex& mutex) WEFT_REQUIRES(mutex) {
    const Borrowed native(mutex);
    condition_.wait(*native);
  }
  template <class Clock, class Span>
  std::cv_status wait_until(Mutex& mutex, std::chrono::time_point<Clock, Span> end)
      WEFT_REQUIRES(mutex) {
    const Borrowed native(mutex);
    return condition_.wait_until(*native, end);
  }
  template <class Rep, class Period>
  std::cv_status wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> span)
      WEFT_REQUIRES(mutex) {
    const Borrowed native(mutex);
    return condition_.wait_for(*native, span);
  }

 private:
  // The mutex as the standard library wants it, for one call. It stays locked when the call is
  // left, also when it is left because the thread is cancelled.
  class Borrowed {
   public:
    explicit Borrowed(Mutex& mutex) : native_(mutex.mutex_, std::adopt_lock) {}
    ~Borrowed() { native_.release(); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    std::unique_lock<std::mutex>& operator*() const { return native_; }

   private:
    mutable std::unique_lock<std::mutex> native_;
  };

  std::condition_variable condition_;
};

// Many readers or one writer.
class WEFT_CAPABILITY("shared mutex") SharedMutex {
 public:
  void lock() WEFT_ACQUIRE() { mutex_.lock(); }
  void unlock() WEFT_RELEASE() { mutex_.unlock(); }
  void lock_shared() WEFT_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void unlock_shared() WEFT_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

class WEFT_SCOPED_CAPABILITY WriteLock {
 public:
  explicit WriteLock(SharedMutex& mutex) WEFT_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~WriteLock() WEFT_RELEASE() { mutex_.unlock(); }
  WriteLock(const WriteLock&) = delete;
  WriteLock& operator=(const WriteLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class WEFT_SCOPED_CAPABILITY ReadLock {
 public:
  explicit ReadLock(SharedMutex& mutex) WEFT_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.lock_shared();
  }
  ~ReadLock() WEFT_RELEASE() { mutex_.unlock_shared(); }
  ReadLock(const ReadLock&) = delete;
  ReadLock& operator=(const ReadLock&) = delete;

 private:
  SharedMutex& mutex_;
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
