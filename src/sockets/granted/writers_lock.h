// The lock of those that send by a lane. It is in memory, so a thread that ends with it can't keep
// it: the next one takes it over.
//
// Threads: any of one process; fork() leaves a child no lane. A signal handler may interrupt the
// holder: it asks held_by() first. Steps of a machine take and release it (lane_calls.cc), which
// Clang's analysis can't follow.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::sockets::granted {

// The id of this thread, without a system call.
[[nodiscard]] std::uint32_t this_thread();

class WritersLock {
 public:
  [[nodiscard]] bool try_lock(std::uint32_t me) {
    std::uint32_t holder = 0;
    return holder_.compare_exchange_strong(holder, me);
  }
  // REQUIRES: not held_by(me).
  void lock(std::uint32_t me);
  // Nothing, where another one has it by now: a child that was made by a signal handler in the
  // midst of the call shares this memory with its parent, and both come here.
  void unlock(std::uint32_t me) { holder_.compare_exchange_strong(me, 0); }
  [[nodiscard]] bool held_by(std::uint32_t thread) const { return holder_.load() == thread; }

 private:
  std::atomic<std::uint32_t> holder_{0};  // the thread that has it, 0: none
};

// Holds it for a scope in which no machine runs.
class WritersGuard {
 public:
  WritersGuard(WritersLock& lock, std::uint32_t me) : lock_(lock), me_(me) { lock_.lock(me_); }
  ~WritersGuard() { lock_.unlock(me_); }
  WritersGuard(const WritersGuard&) = delete;
  WritersGuard& operator=(const WritersGuard&) = delete;

 private:
  WritersLock& lock_;
  std::uint32_t me_;
};

}  // namespace weft::sockets::granted
