// The cancellation of an operation: it ends with ECANCELED as soon as the peer can no longer reach
// its memory, and is revoked where the peer takes too long for that.
//
// Values: the time is an argument.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdint>

namespace weft::exs {

using Clock = std::chrono::steady_clock;
using Instant = Clock::time_point;

class Cancellation {
 public:
  // The application has cancelled it. Again: nothing changes.
  void want() {
    if (state_ == State::kNone) state_ = State::kWanted;
  }
  [[nodiscard]] bool wanted() const { return state_ != State::kNone; }
  // The application has had its event, and the peer reaches the memory no more. The operation keeps
  // its place until the peer has said that it will not try to.
  [[nodiscard]] bool revoked() const { return state_ == State::kRevoked; }
  [[nodiscard]] bool pending() const { return state_ == State::kWanted; }

  // Gives the peer until now + `limit`, if it has not been given a time. Until when it has.
  // REQUIRES pending().
  Instant give_time(Instant now, Clock::duration limit) {
    assert(pending());
    if (due_ == Instant{}) due_ = now + limit;
    return due_;
  }
  // The time that the peer had is over, and `moved`, a number that changes when something does, is
  // what it was a time earlier. If it is not, the peer is given `limit` more.
  [[nodiscard]] bool is_stuck(Instant now, std::uint64_t moved, Clock::duration limit) {
    if (!pending() || now < due_) return false;
    if (moved_then_ == moved) return true;
    moved_then_ = moved;
    due_ = now + limit;
    return false;
  }
  // REQUIRES pending().
  void revoke() {
    assert(pending());
    state_ = State::kRevoked;
  }

 private:
  enum class State : std::uint8_t { kNone, kWanted, kRevoked };

  State state_ = State::kNone;
  Instant due_{};                                 // none yet
  std::uint64_t moved_then_ = ~std::uint64_t{0};  // a number that `moved` never is
};

}  // namespace weft::exs
