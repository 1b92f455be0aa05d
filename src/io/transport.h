// A transport moves the bytes of one connection. It knows nothing of the protocol above it.
//
// One thread at a time: the lane that owns it excludes others. Nothing here blocks. Numbers of
// octets are returned as the kernel does it: what was moved, or a negative errno.
//
// Two ways to learn that there is something to do:
//
//   - while attended, somebody calls receive() again and again, and the transport may save its peer
//     the trouble of waking us;
//   - after settle(), `fd()` reports it, edge-triggered, for the events that events() names, or the
//     bell does.
#pragma once

#include <weft/address.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/slice.h"
#include "base/time.h"

namespace weft::io {

// The state of a peer that is silent.
struct PeerLiveness {
  std::uint64_t unacknowledged = 0;  // octets taken that the peer's host has not acknowledged
  std::uint64_t acknowledged = 0;    // octets that it has, so far
  Duration silent{0};  // since anything came from the peer's host, an answer to a probe too
};

class PathTransport;

class Transport {
 public:
  virtual ~Transport() = default;

  // Takes octets of the slices, in order.
  //   >= 0       so many were taken
  //   -EAGAIN    no room now: fd() reports when there is (events(true))
  //   -ENOBUFS, -ENOMEM   likewise, but fd() does not report it: try again in a while
  //   -EFAULT    memory named by the slices cannot be read
  //   other      the connection is over, for this reason
  [[nodiscard]] virtual std::ptrdiff_t send(std::span<const Slice> slices) = 0;

  // Memory into which the next octets may be written instead: then sent_there(), or send() in its
  // place. Empty: there is none, or no room.
  [[nodiscard]] virtual std::span<std::uint8_t> room() noexcept { return {}; }
  // The first `n` octets of room() are to be sent.
  virtual void sent_there(std::size_t /*n*/) noexcept {}

  // True: send() copies. What it took is released at once, and released() need not be asked.
  [[nodiscard]] virtual bool copies() const noexcept { return true; }
  // How many of the octets taken so far are those whose memory the transport no longer refers to.
  [[nodiscard]] virtual std::uint64_t released() const noexcept { return 0; }

  // Fills the slices, in order.
  //   > 0        so many octets came
  //   0          the peer has closed its side
  //   -EAGAIN    nothing there now
  //   -EFAULT    memory named by the slices cannot be written
  //   other      the connection is over, for this reason
  [[nodiscard]] virtual std::ptrdiff_t receive(std::span<const Slice> slices) = 0;

  // The next octets where they lie, in memory that the peer may write to at any moment: then
  // taken(), or receive() in its place. Empty: there is none, or nothing there; receive() says
  // what.
  [[nodiscard]] virtual std::span<const std::uint8_t> view() noexcept { return {}; }
  // The first `n` octets of view() have been received. The path may have changed since.
  virtual void taken(std::size_t /*n*/) noexcept {}

  // The descriptor that reports readiness, for epoll, and what to ask of it. `blocked`: send() had
  // no room. Register with EPOLLET.
  [[nodiscard]] virtual int fd() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t events(bool blocked) const noexcept = 0;
  // A second one, to be registered beside it for EPOLLIN; -1: there is none.
  [[nodiscard]] virtual int bell() const noexcept { return -1; }
  // fd() has reported something, and there is a bell.
  virtual void reported() noexcept {}
  // From now on a caller polls: fd() need not report.
  virtual void attend() noexcept {}
  // From now on no caller polls before fd() reports. True: something is there already; poll again.
  [[nodiscard]] virtual bool settle() noexcept { return false; }

  // A receive() of fewer octets than there was room for has emptied the transport: fd() reports
  // what comes later. False: only -EAGAIN says so.
  [[nodiscard]] virtual bool short_read_is_all() const noexcept { return true; }
  // A receive() that finds nothing costs no system call, nor does the peer pay for being looked at.
  [[nodiscard]] virtual bool cheap_to_look_at() const noexcept { return false; }
  // For such a one, while attended: a receive() now would find nothing. False: ask receive().
  [[nodiscard]] virtual bool is_quiet() noexcept { return false; }
  // Octets to read at once while it is not known where they belong.
  [[nodiscard]] virtual std::size_t read_ahead() const noexcept { return SIZE_MAX; }
  // After a send() without room: try again, whatever fd() has reported. Costs no system call.
  [[nodiscard]] virtual bool may_have_room() const noexcept { return false; }

  // Ends our direction, behind what was taken.
  virtual void shutdown_send() noexcept = 0;
  // Ends the connection; `reset`: the peer shall see that it was cut off. fd() is invalid
  // afterwards, so it leaves every epoll first.
  virtual void close(bool reset) noexcept = 0;

  [[nodiscard]] virtual PeerLiveness liveness() const = 0;
  // The peer's host is probed while it is silent, so that liveness() shows whether it is there.
  virtual void keep_alive(Duration /*limit*/) {}
  // Octets taken and not yet acknowledged by the peer's host. Cheaper than liveness().
  [[nodiscard]] virtual std::uint64_t unacknowledged() const = 0;
  // The transport itself, if it can move from TCP to a ring and back. Null: it stays what it is.
  [[nodiscard]] virtual PathTransport* movable() noexcept { return nullptr; }
  // "tcp" or "ring".
  [[nodiscard]] virtual const char* path() const noexcept = 0;
};

}  // namespace weft::io
