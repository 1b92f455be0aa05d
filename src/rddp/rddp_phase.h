// How far a connection of rddp_channel.h has come. A table: docs/states.md shows it.
//
// Values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::rddp {

enum class Phase : std::uint8_t {
  kIdle,      // no transport yet
  kStarting,  // frames are being exchanged
  kRequest,   // responder: accept() or reject()
  kUp,        // full operation
  kDown,      // was up; all work has completed
  kRefused,   // the peer's application said no, or ours did
  kFailed,    // start-up failed
};

enum class PhaseEvent : std::uint8_t {
  kBegun,        // initiate(), respond()
  kRequested,    // the peer's Request is whole
  kAnswered,     // accept(), reject()
  kEstablished,  // both frames are exchanged
  kNoMemory,
  kRefused,
  kFailed,  // the peer broke a rule of start-up, or closed
  kLost,    // the transport is gone
  kAborted,
  kEnded,  // the stream
};

using PhaseArrow = Arrow<Phase, PhaseEvent>;
[[nodiscard]] std::span<const PhaseArrow> phase_arrows() noexcept;
[[nodiscard]] std::string_view describe(Phase phase) noexcept;
[[nodiscard]] std::string_view describe(PhaseEvent event) noexcept;

}  // namespace weft::rddp
