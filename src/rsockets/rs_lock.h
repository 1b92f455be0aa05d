// The mutex of an rsocket. It knows whether this thread is at it: a signal handler that uses the
// rsocket whose call it interrupted would wait for itself, and gets EDEADLK instead.
#pragma once

#include <array>
#include <atomic>
#include <chrono>

#include "os/lock.h"

namespace weft::rsockets {

class WEFT_CAPABILITY("mutex") RsMutex {
 public:
  void lock() WEFT_ACQUIRE() {
    enter();
    mutex_.lock();
  }
  void unlock() WEFT_RELEASE() {
    mutex_.unlock();
    leave();
  }
  // Around a sleep in the midst of a call: for a handler this thread is still at it, since what it
  // sleeps in has locks of its own.
  void unlock_for_sleep() WEFT_RELEASE() { mutex_.unlock(); }
  void lock_after_sleep() WEFT_ACQUIRE() { mutex_.lock(); }
  // Takes it and never lets go of it, since the process ends: the calls of other threads sleep from
  // here on, and this thread's own are told that it has it.
  void keep() WEFT_NOT_ANALYZED {
    mutex_.lock();
    t_keeps = true;
    kept_ = true;
  }
  // This thread has it, or is about to have it, or has just let go of it, or sleeps in its call.
  [[nodiscard]] bool is_this_threads() const noexcept {
    for (const RsMutex* one : t_held) {
      if (one == this) return true;
    }
    return t_keeps && kept_;
  }
  // It is at any of them.
  [[nodiscard]] static bool any_is_this_threads() noexcept {
    for (const RsMutex* one : t_held) {
      if (one != nullptr) return true;
    }
    return false;
  }

 private:
  friend class RsCondition;
  // Before the mutex is taken, and until it has been let go: a handler may come at any instruction.
  void enter() noexcept {
    for (const RsMutex*& one : t_held) {
      if (one != nullptr) continue;
      one = this;
      return;
    }
  }
  void leave() noexcept {
    for (const RsMutex*& one : t_held) {
      if (one != this) continue;
      one = nullptr;
      return;
    }
  }

  // A call holds one; handlers that interrupt each other, one each.
  static inline thread_local constinit std::array<const RsMutex*, 8> t_held{};
  static inline thread_local constinit bool t_keeps = false;
  std::atomic<bool> kept_ = false;
  os::Mutex mutex_;  // what this one is made of
};

using RsLock = os::ScopedLock<RsMutex>;

// Around a sleep in the midst of a call, also one that ends because the thread is cancelled.
class WEFT_SCOPED_CAPABILITY RsAsleep {
 public:
  explicit RsAsleep(RsMutex& mutex) WEFT_RELEASE(mutex) : mutex_(mutex) {
    mutex_.unlock_for_sleep();
  }
  ~RsAsleep() WEFT_RELEASE() { mutex_.lock_after_sleep(); }
  RsAsleep(const RsAsleep&) = delete;
  RsAsleep& operator=(const RsAsleep&) = delete;

 private:
  RsMutex& mutex_;
};

// To a handler, who sleeps here is still at the rsocket.
class RsCondition {
 public:
  void notify_all() noexcept { condition_.notify_all(); }
  void wait(RsMutex& mutex) WEFT_REQUIRES(mutex) WEFT_NOT_ANALYZED {
    condition_.wait(mutex.mutex_);
  }
  template <class Time>
  void wait_until(RsMutex& mutex, Time end) WEFT_REQUIRES(mutex) WEFT_NOT_ANALYZED {
    condition_.wait_until(mutex.mutex_, end);
  }

 private:
  os::Condition condition_;
};

}  // namespace weft::rsockets
