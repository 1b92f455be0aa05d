// Whether a wired queue pair has a connection, see Wiring. A table: docs/states.md shows it.
//
// Values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::verbs {

enum class WiringPhase : std::uint8_t {
  kUnwired,  // RESET, INIT, ERROR
  kSeeking,  // no connection: trying, waiting to be found, or (dormant) doing nothing until work
  kLinking,  // the lane is being given the socket
  kLinked,   // the lane has it
};

enum class WiringStep : std::uint8_t {
  kSought,   // the peer, from now on or again
  kFound,    // both ends mean each other
  kLinked,   // the lane has taken the socket
  kLost,     // the connection, or what was to become one
  kStopped,  // the queue pair has left RTR and RTS
};

using WiringArrow = Arrow<WiringPhase, WiringStep>;
[[nodiscard]] std::span<const WiringArrow> wiring_arrows() noexcept;
[[nodiscard]] std::string_view describe(WiringPhase phase) noexcept;
[[nodiscard]] std::string_view describe(WiringStep step) noexcept;

}  // namespace weft::verbs
