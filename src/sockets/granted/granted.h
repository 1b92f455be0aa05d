// libweft-sockets.so, which `weft run --sockets` preloads: a busy connection has a ring of shared
// memory beside it, which its reader grants. A descriptor number is the kernel's TCP
// socket, always; a call that is not seen is an ordinary call on it.
//
//   number_table.cc    what is known of each descriptor number
//   ring_lane.cc       a connection that may have a ring beside it; ring_lane.h names its parts
//   join.cc            how it comes to have one; rendezvous.cc: how its ends find each other;
//                      segment.cc: the memory that they share
//   lane_calls.cc      octets by the ring, or by TCP (src/sockets/grant is the protocol);
//                      lane_receive.cc: the calls that receive; lane_file.cc: octets of a file
//   spiller.cc         octets that nobody reads from the ring go to TCP
//   lane_end.cc        ... and then the number is the kernel's alone
//   holders.cc         how many processes have a socket that fork() has shared
//   number_states.cc   which path each connection takes, and why
//   granted_data.cc    the program's calls that move data
//   granted_wait.cc    poll, select, epoll
//   granted_options.cc options, shutdown, ioctl
//   granted_numbers.cc calls that make, copy and close numbers
//   granted_process.cc fork, exec, programs that are started, passing numbers on
//   granted_raw.cc     system calls by their number: syscall(2)
//   for_others.cc      what `weft run` and the library of IWARP mode look for
//
// Threads: any. A program's own calls come in here, so nothing of the C++ library that allocates
// may be on the way of data.
#pragma once

#include "sockets/granted/join.h"
#include "sockets/granted/lane_calls.h"
#include "sockets/granted/lane_end.h"
#include "sockets/granted/number_table.h"
#include "sockets/granted/ring_lane.h"
#include "sockets/real_calls.h"

// The C library's function of the name, past ours.
#define WEFT_NEXT(name) \
  static const auto next = reinterpret_cast<decltype(&name)>(::weft::sockets::real_symbol(#name))

namespace weft::sockets::granted {

// A call that moves data on `fd`: counted, and served by `laned` with the number's lane if its ring
// may come into it, else by `plain`.
template <class Plain, class Laned>
auto serve(int fd, Call call, Plain plain, Laned laned) {
  Number* number = numbers::find(fd);
  if (number == nullptr) return plain();
  std::uint32_t calls = number->calls.load(std::memory_order_relaxed);
  // A lane that is there still is being left by another thread, and has octets in its ring perhaps.
  if (calls == kKernels && number->lane.load(std::memory_order_acquire) == nullptr) return plain();
  if (const std::uint32_t busy = busy_calls(); calls != kKernels && calls <= busy) {
    // A call may go uncounted beside another thread's. None undoes leave_to_kernel().
    const bool counted = number->calls.compare_exchange_strong(calls, calls + 1);
    if (counted && calls == busy) join::begin(fd, *number);
  }
  const Use use(*number, call);
  Lane* lane = use.lane();
  if (lane == nullptr) return plain();
  // ... of the socket that had this number before.
  if (!lane->live.load(std::memory_order_acquire) && number->calls.load() != kKernels)
    return plain();
  if (!lane->meeting.settled.load(std::memory_order_relaxed)) {
    join::go_on(*lane, fd, *number, call);
  }
  const Direction& direction = call == Call::kReceives ? lane->in : lane->out;
  if (!direction.counted()) return plain();
  pthread_testcancel();  // as the kernel's call would: before any lock is held
  return laned(*lane);
}

// The numbers that this message hands to another process have another holder from now on.
void note_passed(const msghdr* message);
// The next program takes the place of this one: what lies in rings goes to TCP, of all numbers.
void before_exec();
// A child is about to be made past fork()'s handlers, by these flags of clone(2).
void before_clone(unsigned long flags);
// The numbers that came with this message mean something new.
void note_arrived(const msghdr& message);

}  // namespace weft::sockets::granted
