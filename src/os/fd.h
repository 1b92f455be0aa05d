// A file descriptor that is closed with its owner, and may be a connection's.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "os/cancel.h"
#include "os/close_in_child.h"
#include "os/fork.h"

namespace weft::os {

// Move-only; one owner at a time, any thread. A descriptor made by Fd::closed_in_child() is closed
// in a child by fork(), and then not by the child's copy of this object: its number may be somebody
// else's by then. Other descriptors are closed wherever the object dies.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  [[nodiscard]] static Fd closed_in_child(int fd) noexcept {
    Fd out(fd);
    if (fd >= 0) {
      out.generation_ = fork_generation();
      close_in_child(fd);
    }
    return out;
  }

  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), generation_(std::exchange(other.generation_, 0)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset(std::exchange(other.fd_, -1));
      generation_ = std::exchange(other.generation_, 0);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // Closes what it has, and has `fd`, no connection, from now on. errno stays as it is.
  void reset(int fd = -1) noexcept {
    const int old = std::exchange(fd_, fd);
    const bool ours = leave_connection(old);
    if (old < 0 || !ours) return;
    // Descriptors are closed in destructors, where nobody may be cancelled.
    const NoCancel guard;
    const int error = errno;
    ::close(old);
    errno = error;
  }
  // The descriptor is the caller's, and no connection any more. -1: there is none, or fork() has
  // closed it.
  [[nodiscard]] int release() noexcept {
    const int fd = std::exchange(fd_, -1);
    return leave_connection(fd) ? fd : -1;
  }

 private:
  // False: fork() has closed `fd` in this process.
  bool leave_connection(int fd) noexcept {
    const std::uint32_t generation = std::exchange(generation_, 0);
    if (generation == 0) return true;
    if (generation != fork_generation()) return false;
    forget_in_child(fd);
    return true;
  }

  int fd_ = -1;
  std::uint32_t generation_ = 0;  // 0: not a connection
};

}  // namespace weft::os
