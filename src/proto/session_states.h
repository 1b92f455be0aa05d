// How far the start of a connection has come, see proto::Session. A table: docs/states.md shows it.
//
// Values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::proto {

enum class SessionState : std::uint8_t {
  kNew,
  kFrames,     // Request or Reply under way; responder: nobody has been asked yet
  kRequested,  // responder: the application's turn
  kReplying,   // responder: accepted, the Reply is being sent
  kRefusing,   // responder: the last octets are being sent, then it is over
  kAgreed,     // the stream is being made
  kFirstFpdu,  // responder, peer-to-peer: the stream runs, its first FPDU is awaited
  kUnusable,   // initiator: the stream runs for its Terminate alone
  kUp,
  kOver,
};

enum class SessionEvent : std::uint8_t {
  kBegun,         // the transport is connected
  kRequestCame,   // whole
  kAccepted,      // by the application
  kDeclined,      // by the application
  kAgreed,        // both frames are through
  kRefused,       // one of them says no
  kFailed,        // a frame, a time limit, the transport; or abort()
  kRuns,          // the stream, in full operation
  kRunsUnproved,  // the stream, and its first FPDU has still to come
  kRunsToEnd,     // the stream, for its Terminate
  kFirstFpdu,
  kStreamDown,
};

using SessionArrow = Arrow<SessionState, SessionEvent>;
[[nodiscard]] std::span<const SessionArrow> session_arrows() noexcept;
[[nodiscard]] std::string_view describe(SessionState state) noexcept;
[[nodiscard]] std::string_view describe(SessionEvent event) noexcept;

}  // namespace weft::proto
