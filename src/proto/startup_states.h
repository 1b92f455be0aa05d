// How far the frames of a start-up have come, see Startup. A table: docs/states.md shows it.
//
// Values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::proto {

enum class StartupState : std::uint8_t {
  kAwaitingRequest,  // responder: read missing() octets
  kAwaitingReply,    // initiator: read missing() octets
  kRequestReady,     // responder: the application decides, accept() or reject()
  // In these to_send() is to be transmitted.
  kSendingRequest,   // initiator
  kSendingReply,     // responder: accepted
  kSendingReject,    // responder: the application has said no
  kSendingRevision,  // responder: the answer to revision 0, then it has failed
  kRejected,         // one of the applications said no; close
  kDone,             // result() holds; full operation begins
  kFailed,           // failure() says why; close. No Terminate: the peer may not speak MPA at all
};

enum class StartupEvent : std::uint8_t {
  kOffered,      // the initiator's Request is built
  kSent,         // the last octet of our frame
  kRequestCame,  // whole, and good
  kRevisionZero,
  kAccepted,
  kDeclined,
  kReplyCame,   // whole, and good
  kRejectCame,  // whole
  kFailed,
};

using StartupArrow = Arrow<StartupState, StartupEvent>;
[[nodiscard]] std::span<const StartupArrow> startup_arrows() noexcept;
[[nodiscard]] std::string_view describe(StartupState state) noexcept;
[[nodiscard]] std::string_view describe(StartupEvent event) noexcept;

[[nodiscard]] constexpr bool is_sending(StartupState state) noexcept {
  return state >= StartupState::kSendingRequest && state <= StartupState::kSendingRevision;
}

}  // namespace weft::proto
