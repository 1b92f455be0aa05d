// The library that `weft run --sockets=granted` preloads. A descriptor number is the kernel's TCP
// socket, always; a call that is not seen is an ordinary call on it.
//
//   number_table.cc    what is known of each descriptor number
//   granted_data.cc    calls that move data
//   granted_numbers.cc calls that make, copy and close numbers
//   granted_process.cc fork, exec, programs that are started, passing numbers on
//
// Threads: any. A program's own calls come in here, so nothing of the C++ library that allocates
// may be on the way of data.
#pragma once

#include "sockets/granted/number_table.h"
#include "sockets/real_calls.h"

#define WEFT_SEEN extern "C" __attribute__((visibility("default")))
// The C library's function of the name, past ours.
#define WEFT_NEXT(name) \
  static const auto next = reinterpret_cast<decltype(&name)>(::weft::sockets::real_symbol(#name))

namespace weft::sockets::granted {

// Counts one call that moves data on `fd`.
inline void note_call(int fd) {
  Number* number = numbers::find(fd);
  if (number == nullptr) return;
  const std::uint32_t calls = number->calls.load(std::memory_order_relaxed);
  if (calls == kKernels || calls > kBusyCalls) return;
  // A call may go uncounted beside another thread's. None undoes leave_to_kernel().
  std::uint32_t expected = calls;
  number->calls.compare_exchange_strong(expected, calls + 1, std::memory_order_relaxed);
}

// The numbers that this message hands to another process have another holder from now on.
void note_passed(const msghdr* message);
// The numbers that came with this message mean something new.
void note_arrived(const msghdr& message);

}  // namespace weft::sockets::granted
