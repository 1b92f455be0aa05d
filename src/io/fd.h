// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

#include "io/cancel.h"
#include "io/fork.h"

namespace weft::io {

// Move-only; one owner at a time, any thread. A descriptor made by Fd::connection() is closed in a
// child by fork(), and then not by the child's copy of this object: its number may be somebody
// else's by then. Other descriptors are closed wherever the object dies.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  [[nodiscard]] static Fd connection(int fd) noexcept {
    Fd out(fd);
    if (fd >= 0) {
      out.generation_ = fork_generation();
      close_in_child(fd);
    }
    return out;
  }

  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  Fd(Fd&& o) noexcept
      : fd_(std::exchange(o.fd_, -1)), generation_(std::exchange(o.generation_, 0)) {}
  Fd& operator=(Fd&& o) noexcept {
    if (this != &o) {
      reset();
      fd_ = std::exchange(o.fd_, -1);
      generation_ = std::exchange(o.generation_, 0);
    }
    return *this;
  }
  ~Fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

  void reset() noexcept {
    const int fd = std::exchange(fd_, -1);
    const std::uint32_t generation = std::exchange(generation_, 0);
    if (fd < 0) return;
    if (generation != 0) {
      if (generation != fork_generation()) return;
      forget_in_child(fd);
    }
    // Descriptors are closed in destructors, where nobody may be cancelled.
    const NoCancel guard;
    ::close(fd);
  }

 private:
  int fd_ = -1;
  std::uint32_t generation_ = 0;  // 0: not a connection
};

}  // namespace weft::io
