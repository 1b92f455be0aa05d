// How far an exchange of hellos has come, see Greeting. A table: docs/states.md shows it.
//
// Values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::roce {

enum class GreetingState : std::uint8_t {
  kAwaitingRequest,   // listener
  kSendingRequest,    // connector
  kAwaitingReply,     // connector: the answer, or a challenge before it
  kSendingProof,      // connector
  kAwaitingAnswer,    // connector, behind the proof
  kSendingChallenge,  // listener
  kAwaitingProof,     // listener
  kAsked,             // listener: the peer's hello is there, answer() is due
  kSendingAnswer,     // listener
  kAccepted,          // over: the next octet belongs to the stream
  kDeclined,          // over: verdict() says why
  kFailed,            // over: error() says why
};

enum class GreetingEvent : std::uint8_t {
  kAsks,         // connector: the request is built
  kSent,         // the last octet of a message that is no answer
  kRequestCame,  // and there is no secret
  kSealedRequestCame,
  kChallengeCame,
  kProofCame,    // a good one
  kOtherSecret,  // listener: only one end has one, or they differ
  kAnswered,     // listener: the answer is built
  kAccepted,     // the answer has been sent, or has come
  kDeclined,     // the same
  kFailed,
};

using GreetingArrow = Arrow<GreetingState, GreetingEvent>;
[[nodiscard]] std::span<const GreetingArrow> greeting_arrows() noexcept;
[[nodiscard]] std::string_view describe(GreetingState state) noexcept;
[[nodiscard]] std::string_view describe(GreetingEvent event) noexcept;

// to_send() is not empty.
[[nodiscard]] constexpr bool is_sending(GreetingState state) noexcept {
  return state == GreetingState::kSendingRequest || state == GreetingState::kSendingProof ||
         state == GreetingState::kSendingChallenge || state == GreetingState::kSendingAnswer;
}
// missing() octets are awaited.
[[nodiscard]] constexpr bool is_receiving(GreetingState state) noexcept {
  return state == GreetingState::kAwaitingRequest || state == GreetingState::kAwaitingReply ||
         state == GreetingState::kAwaitingAnswer || state == GreetingState::kAwaitingProof;
}

}  // namespace weft::roce
