// The end of a socket as its application wants it: exs_shutdown, exs_close, SO_LINGER.
//
// Values: the time is an argument. With the mutex of the socket.
#pragma once

#include <cassert>
#include <chrono>
#include <cstdint>

#include "exs/core/cancellation.h"

namespace weft::exs {

class SocketEnd {
 public:
  // Nothing more will be sent, by exs_shutdown or exs_close.
  void shut() {
    if (asked_ == Asked::kNothing) asked_ = Asked::kShutdown;
  }
  [[nodiscard]] bool shutting() const { return asked_ != Asked::kNothing; }
  // The socket goes: by exs_close, or since nobody will have it.
  void close() { asked_ = Asked::kClose; }
  [[nodiscard]] bool closing() const { return asked_ == Asked::kClose; }

  // SO_LINGER. `wait` of zero: the connection is reset by exs_close.
  void linger(bool on, std::chrono::seconds wait) {
    assert(wait >= wait.zero());
    abortive_ = on && wait == wait.zero();
    wait_ = on ? wait : wait.zero();
  }
  // From now on the end waits for nothing.
  void abort() {
    abortive_ = true;
    by_ = Instant::max();
  }
  [[nodiscard]] bool abortive() const { return abortive_; }

  // exs_close has begun: when it is to abort() what is left. Instant::max(): never.
  // REQUIRES closing().
  Instant limit(Instant now) {
    assert(closing());
    if (wait_ != wait_.zero()) by_ = now + wait_;
    return by_;
  }
  // As limit() has said, or never.
  [[nodiscard]] Instant due() const { return by_; }

 private:
  enum class Asked : std::uint8_t { kNothing, kShutdown, kClose };

  Asked asked_ = Asked::kNothing;
  bool abortive_ = false;
  std::chrono::seconds wait_{0};  // zero: as long as it needs
  Instant by_ = Instant::max();
};

}  // namespace weft::exs
