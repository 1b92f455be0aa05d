// TCP_NODELAY of a socket with a ring: on for the ring's sake, whatever the program thinks of it.
// Octets of the ring bring no acknowledgment that Nagle's algorithm could wait for.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::sockets::granted {

class NodelayForRing {
 public:
  enum class Program : std::uint8_t { kUnknown, kOff, kOn };

  // REQUIRES: no call knows the lane.
  void begin_again() {
    is_ours_ = false;
    program_ = Program::kUnknown;
  }

  // From now on it is on.
  void turn_on(int fd);
  // As the program wants it again, if turn_on() was called.
  void give_back(int fd) const;
  // Whether the kernel's option is no longer the program's.
  [[nodiscard]] bool is_ours() const { return is_ours_.load(); }
  // The program has set it. REQUIRES: is_ours().
  void note_set(int fd, bool on);
  // kUnknown: the kernel's is the program's still.
  [[nodiscard]] Program programs() const { return program_.load(); }

 private:
  std::atomic<bool> is_ours_{false};
  std::atomic<Program> program_{Program::kUnknown};
};

}  // namespace weft::sockets::granted
