// Passing descriptors on to other processes (SCM_RIGHTS).
//
// Threads: any.
#pragma once

#include <sys/socket.h>

namespace weft::sockets {

// A message whose descriptors are about to be passed on: ends of channels are replaced by ordinary
// sockets for the receiver.
class PassedOn {
 public:
  explicit PassedOn(const msghdr* message);
  ~PassedOn();
  PassedOn(const PassedOn&) = delete;
  PassedOn& operator=(const PassedOn&) = delete;
  [[nodiscard]] bool ready() const { return ready_; }  // false with errno
  [[nodiscard]] const msghdr* message() const { return changed_ ? &copy_ : given_; }

 private:
  static constexpr int kMost = 253;  // the kernel's limit for one message
  const msghdr* given_;
  msghdr copy_{};
  bool changed_ = false;
  bool ready_ = true;
  alignas(cmsghdr) char control_[2048];
  int made_[kMost];
  int made_count_ = 0;
};

}  // namespace weft::sockets
