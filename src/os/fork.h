// Nothing survives fork(). The child gets copies of our objects, shares our descriptors with
// the parent, and has none of our threads. Every object that matters asks its ForkGuard.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace weft::os {

namespace detail {
// Counts the forks that lead to this process, for the library that includes this.
inline std::atomic<std::uint32_t> g_fork_generation{1};
inline const int kCountError = pthread_atfork(
    nullptr, nullptr, [] { g_fork_generation.fetch_add(1, std::memory_order_relaxed); });
}  // namespace detail

[[nodiscard]] inline std::uint32_t fork_generation() noexcept {
  return detail::g_fork_generation.load(std::memory_order_relaxed);
}

// Remembers the process that made it. Costs one relaxed load to ask. Any thread.
class ForkGuard {
 public:
  ForkGuard() noexcept : generation_(fork_generation()) {}
  // True in a child of the process that made this object: touch nothing shared, take no lock.
  [[nodiscard]] bool forked() const noexcept { return generation_ != fork_generation(); }

 private:
  std::uint32_t generation_;
};

}  // namespace weft::os
