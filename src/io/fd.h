// A file descriptor that is closed with its owner, and may be a connection's.
#pragma once

#include <utility>

#include "io/fork.h"
#include "os/fd.h"

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
      out.generation_ = os::fork_generation();
      close_in_child(fd);
    }
    return out;
  }

  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  Fd(Fd&& o) noexcept : fd_(std::move(o.fd_)), generation_(std::exchange(o.generation_, 0)) {}
  Fd& operator=(Fd&& o) noexcept {
    if (this != &o) {
      reset();
      fd_ = std::move(o.fd_);
      generation_ = std::exchange(o.generation_, 0);
    }
    return *this;
  }
  ~Fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

  void reset() noexcept {
    const std::uint32_t generation = std::exchange(generation_, 0);
    if (generation != 0 && fd_) {
      if (generation != os::fork_generation()) return static_cast<void>(fd_.release());
      forget_in_child(fd_.get());
    }
    fd_.reset();
  }

 private:
  os::Fd fd_;
  std::uint32_t generation_ = 0;  // 0: not a connection
};

}  // namespace weft::io
