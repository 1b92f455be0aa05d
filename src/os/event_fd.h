// Descriptors that one thread makes readable to wake others: eventfds. No call here is a
// cancellation point, and none changes whether a descriptor blocks.
#pragma once

#include <sys/eventfd.h>

#include <cstdint>

#include "os/calls.h"
#include "os/fd.h"

namespace weft::os {

// Readable from the start if `count` is not 0. `flags`: of eventfd(2), beside EFD_CLOEXEC.
// None, with errno, where there are no descriptors.
[[nodiscard]] inline Fd make_event(unsigned count = 0, int flags = EFD_NONBLOCK) noexcept {
  return Fd(::eventfd(count, flags | EFD_CLOEXEC));
}

// Makes it readable. Fails only where the counter is full, and then it is readable.
inline void raise_event(int fd, std::uint64_t count = 1) noexcept {
  static_cast<void>(!calls::write(fd, &count, sizeof count));
}

// No longer readable; of a semaphore, one less. True: it was raised.
// REQUIRES: EFD_NONBLOCK, or that it is raised.
inline bool lower_event(int fd) noexcept {
  std::uint64_t count = 0;
  return calls::read(fd, &count, sizeof count) > 0;
}

}  // namespace weft::os
