// How far one direction of a lane has come on its way to a ring. A table: docs/states.md shows it.
//
// Threads: any. Each event is followed at once or, where the state has no arrow for it, changes
// nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::sockets::granted {

enum class JoinState : std::uint8_t { kApart, kCounted, kJoined };

enum class JoinEvent : std::uint8_t {
  kCounts,      // what TCP has carried is written to the ring's words
  kMiscounted,  // a call was under way that was not counted, or TCP carried more meanwhile
  kAgreed,      // it was not so
  kForbidden,   // the peer has ended, or the number is left to the kernel
  kLeftAlone,   // the number is another one's: no call of the ring's rules comes any more
};

using JoinArrow = Arrow<JoinState, JoinEvent>;
[[nodiscard]] std::span<const JoinArrow> join_arrows() noexcept;
[[nodiscard]] std::string_view describe(JoinState state) noexcept;
[[nodiscard]] std::string_view describe(JoinEvent event) noexcept;

class Direction {
 public:
  // All calls go by the ring's rules, and count octets of TCP.
  [[nodiscard]] bool counted() const { return state_.load() != JoinState::kApart; }
  // In: windows may be opened. Out: calls may begin to use the ring.
  [[nodiscard]] bool joined() const { return state_.load() == JoinState::kJoined; }
  // False: the state has no arrow for the event.
  bool on(JoinEvent event);
  // REQUIRES: no call knows the lane.
  void begin_again() { state_.store(JoinState::kApart); }

 private:
  std::atomic<JoinState> state_{JoinState::kApart};
};

}  // namespace weft::sockets::granted
