#include "rsockets/rs_farewell.h"

namespace weft::rsockets {

namespace {

using State = FarewellState;
using Event = FarewellEvent;

constexpr FarewellArrow kFarewell[] = {
    {State::kOpen, Event::kShutdownHeldUp, State::kShutdownDue},
    {State::kOpen, Event::kShutdownSent, State::kShutdownSaid},
    {State::kOpen, Event::kDisconnectHeldUp, State::kDisconnectDue},
    {State::kOpen, Event::kDisconnectSent, State::kDisconnectSaid},
    {State::kShutdownDue, Event::kShutdownHeldUp, State::kShutdownDue},
    {State::kShutdownDue, Event::kShutdownSent, State::kShutdownSaid},
    {State::kShutdownDue, Event::kDisconnectHeldUp, State::kDisconnectDue},
    {State::kShutdownDue, Event::kDisconnectSent, State::kDisconnectSaid},
    {State::kShutdownSaid, Event::kDisconnectHeldUp, State::kDisconnectDue},
    {State::kShutdownSaid, Event::kDisconnectSent, State::kDisconnectSaid},
    {State::kDisconnectDue, Event::kDisconnectHeldUp, State::kDisconnectDue},
    {State::kDisconnectDue, Event::kDisconnectSent, State::kDisconnectSaid},
};

}  // namespace

std::span<const FarewellArrow> farewell_arrows() noexcept { return kFarewell; }

std::string_view describe(FarewellState state) noexcept {
  switch (state) {
    case FarewellState::kOpen: return "Open";
    case FarewellState::kShutdownDue: return "ShutdownDue";
    case FarewellState::kShutdownSaid: return "ShutdownSaid";
    case FarewellState::kDisconnectDue: return "DisconnectDue";
    case FarewellState::kDisconnectSaid: return "DisconnectSaid";
  }
  return "unknown state";
}

std::string_view describe(FarewellEvent event) noexcept {
  switch (event) {
    case FarewellEvent::kShutdownHeldUp: return "shutdown held up";
    case FarewellEvent::kShutdownSent: return "shutdown sent";
    case FarewellEvent::kDisconnectHeldUp: return "disconnect held up";
    case FarewellEvent::kDisconnectSent: return "disconnect sent";
  }
  return "unknown event";
}

}  // namespace weft::rsockets
