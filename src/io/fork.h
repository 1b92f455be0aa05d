// What survives fork(): nothing. The child gets copies of our objects, shares our descriptors with
// the parent, and has none of our threads. Every object that matters asks its ForkGuard.
//
// Sockets noted by close_in_child() are closed in the child by the fork itself, so that a child
// that lives on does not keep connections of its parent open.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::io {

namespace detail {
extern std::atomic<std::uint32_t> g_fork_generation;  // counts the forks that lead to this process
}

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

// From now on fork() closes `fd` in the child; until forget_in_child(fd), which must come before
// the descriptor is closed here. No lock, any thread. Descriptors above kForkFdsMax are left alone.
inline constexpr int kForkFdsMax = 1 << 20;
void close_in_child(int fd) noexcept;
void forget_in_child(int fd) noexcept;

}  // namespace weft::io
