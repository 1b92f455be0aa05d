// Calls on a number with a lane: octets by its ring while that is granted, else by TCP.
//
// Threads: any.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "sockets/granted/ring_lane.h"

namespace weft::sockets::granted {

// The call as the program made it, to the kernel.
class AsAsked {
 public:
  template <class Function>
  AsAsked(const Function& function)  // NOLINT(google-explicit-constructor): stands in for it
      : context_(const_cast<Function*>(&function)),
        run_([](void* context) -> ssize_t { return (*static_cast<Function*>(context))(); }) {}
  ssize_t operator()() const { return run_(context_); }

 private:
  void* context_;
  ssize_t (*run_)(void*);
};

// Results as recv(2) and send(2), errno too. `flags` of those calls.
[[nodiscard]] ssize_t receive(Lane& lane, int fd, const iovec* parts, std::size_t count, int flags,
                              AsAsked as_asked);
[[nodiscard]] ssize_t transmit(Lane& lane, int fd, const iovec* parts, std::size_t count, int flags,
                               AsAsked as_asked);

// As sendfile(2): `count` octets of the file `in`. A few go by the ring, like octets of memory.
[[nodiscard]] ssize_t transmit_file(Lane& lane, int out, int in, off64_t* offset, std::size_t count,
                                    AsAsked as_asked);
// Whether a call that sends would do so by the ring now.
[[nodiscard]] bool may_send_by_ring(const Lane& lane, int fd);

// Octets that the peer is just taking back from the ring, as many as TCP has soon: a program that
// was told of octets counts them, and takes 0 for the end.
[[nodiscard]] std::uint64_t await_taken_back(const Lane& lane, int fd);

// Octets of this process that lie in the ring go to TCP, also if that takes a moment; the ring is
// not used again.
void take_back_all(Lane& lane, int fd);
// The same without waiting, if no thread of this process is at it; the ring may be used again after
// `ban_ns`. For the spiller, which has no number of its own to lose.
void spill(Lane& lane, std::int64_t now);

// A window that is never to be opened again stays as it is.
inline void swap_window(const Lane& lane, GrantWindow before, GrantWindow now) {
  GrantMemory m = lane.rings.in();
  // The writer reads this line: it is taken from it only to be changed.
  if (m.load(GrantWord::kWindow) == before)
    static_cast<void>(m.swap(GrantWord::kWindow, before, now));
}
inline void open_window(const Lane& lane) { swap_window(lane, kWindowClosed, kWindowOpen); }
inline void close_window(const Lane& lane) { swap_window(lane, kWindowOpen, kWindowClosed); }

// Octets of the peer that lie in the ring.
[[nodiscard]] inline std::uint64_t unread(const Lane& lane) {
  const GrantMemory m = lane.rings.in();
  const std::uint64_t take = m.load(GrantWord::kTake);
  const std::uint64_t bytes = m.load(GrantWord::kWritten) - (take >> 1U);
  return (take & kTaken) == 0 && bytes <= kRingBytes ? bytes : 0;
}
[[nodiscard]] inline bool readable(const Lane& lane) { return unread(lane) != 0; }

}  // namespace weft::sockets::granted
