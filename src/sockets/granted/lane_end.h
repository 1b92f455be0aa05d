// Numbers that are the kernel's alone from now on: what lies in their rings goes to TCP.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "sockets/granted/number_table.h"
#include "sockets/own_memory.h"

namespace weft::sockets::granted {

// The number means something else now, or its socket has another holder, or an option that a ring
// does not know: `why`.
void leave_to_kernel(int fd, Why why);
// The number is about to be closed.
void leave_to_close(int fd);
// ... by a copy to it, which may fail, and closes nothing then.
void leave_to_copy(int fd);
// The number was closed by a call that was not seen, and is another one's now.
void forget_closed(int fd);
enum class How : std::uint8_t {
  kStays,     // the socket lives on
  kCloses,    // it is about to be closed: with octets that nobody has read, by a reset
  kMayClose,  // the same, in order: by an exec, which may fail
  kGone,      // the number is another one's already
};
// The same for all numbers in [first, last], each as `which` says; kGone: not this one.
void leave_range(unsigned first, unsigned last, How (*which)(int fd), Why why = Why::kShared);
inline How stays(int /*fd*/) { return How::kStays; }
inline How closes(int /*fd*/) { return How::kCloses; }
// A lane of a number that is another one's by now, or the kernel's alone.
void retire_stray(int fd, Number& number);
// From now on there are no lanes in this process, and no thread for them: it is about to give up
// calls or rights that they need.
void stop();

}  // namespace weft::sockets::granted
