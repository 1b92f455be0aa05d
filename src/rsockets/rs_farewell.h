// The end of an rsocket's stream as the peer is told of it: a shutdown, a disconnect, or one after
// the other. Each is a message, which waits for a control slot. A table: docs/states.md shows it.
//
// Values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::rsockets {

enum class FarewellState : std::uint8_t {
  kOpen,
  kShutdownDue,    // to be said as soon as there is a slot; the same of a disconnect
  kShutdownSaid,   // we send no more
  kDisconnectDue,  //
  kDisconnectSaid  // we leave
};

enum class FarewellEvent : std::uint8_t {
  kShutdownHeldUp,  // there is no slot
  kShutdownSent,
  kDisconnectHeldUp,
  kDisconnectSent,
};

using FarewellArrow = Arrow<FarewellState, FarewellEvent>;
[[nodiscard]] std::span<const FarewellArrow> farewell_arrows() noexcept;
[[nodiscard]] std::string_view describe(FarewellState state) noexcept;
[[nodiscard]] std::string_view describe(FarewellEvent event) noexcept;

class RsFarewell {
 public:
  [[nodiscard]] FarewellState state() const { return state_; }
  [[nodiscard]] bool shutdown_due() const { return state_ == FarewellState::kShutdownDue; }
  [[nodiscard]] bool disconnect_due() const { return state_ == FarewellState::kDisconnectDue; }
  [[nodiscard]] bool left() const { return state_ == FarewellState::kDisconnectSaid; }
  // The peer knows that we send no more.
  [[nodiscard]] bool shutdown_said() const {
    return state_ == FarewellState::kShutdownSaid || left();
  }
  // For an event that this state has an arrow for.
  void advance(FarewellEvent event) { weft::advance(farewell_arrows(), state_, event); }

 private:
  FarewellState state_ = FarewellState::kOpen;
};

}  // namespace weft::rsockets
