#include "roce/greeting_states.h"

namespace weft::roce {

namespace {

using S = GreetingState;
using E = GreetingEvent;

constexpr GreetingArrow kArrows[] = {
    {S::kAwaitingRequest, E::kAsks, S::kSendingRequest},
    {S::kAwaitingRequest, E::kRequestCame, S::kAsked},
    {S::kAwaitingRequest, E::kSealedRequestCame, S::kSendingChallenge},
    {S::kAwaitingRequest, E::kOtherSecret, S::kSendingAnswer},
    {S::kAwaitingRequest, E::kFailed, S::kFailed},
    {S::kSendingRequest, E::kSent, S::kAwaitingReply},
    {S::kSendingRequest, E::kFailed, S::kFailed},
    {S::kAwaitingReply, E::kChallengeCame, S::kSendingProof},
    {S::kAwaitingReply, E::kAccepted, S::kAccepted},
    {S::kAwaitingReply, E::kDeclined, S::kDeclined},
    {S::kAwaitingReply, E::kFailed, S::kFailed},
    {S::kSendingProof, E::kSent, S::kAwaitingAnswer},
    {S::kSendingProof, E::kFailed, S::kFailed},
    {S::kAwaitingAnswer, E::kAccepted, S::kAccepted},
    {S::kAwaitingAnswer, E::kDeclined, S::kDeclined},
    {S::kAwaitingAnswer, E::kFailed, S::kFailed},
    {S::kSendingChallenge, E::kSent, S::kAwaitingProof},
    {S::kSendingChallenge, E::kFailed, S::kFailed},
    {S::kAwaitingProof, E::kProofCame, S::kAsked},
    {S::kAwaitingProof, E::kOtherSecret, S::kSendingAnswer},
    {S::kAwaitingProof, E::kFailed, S::kFailed},
    {S::kAsked, E::kAnswered, S::kSendingAnswer},
    {S::kSendingAnswer, E::kAccepted, S::kAccepted},
    {S::kSendingAnswer, E::kDeclined, S::kDeclined},
    {S::kSendingAnswer, E::kFailed, S::kFailed},
};

}  // namespace

std::span<const GreetingArrow> greeting_arrows() noexcept { return kArrows; }

std::string_view describe(GreetingState state) noexcept {
  switch (state) {
    case S::kAwaitingRequest: return "AwaitingRequest";
    case S::kSendingRequest: return "SendingRequest";
    case S::kAwaitingReply: return "AwaitingReply";
    case S::kSendingProof: return "SendingProof";
    case S::kAwaitingAnswer: return "AwaitingAnswer";
    case S::kSendingChallenge: return "SendingChallenge";
    case S::kAwaitingProof: return "AwaitingProof";
    case S::kAsked: return "Asked";
    case S::kSendingAnswer: return "SendingAnswer";
    case S::kAccepted: return "Accepted";
    case S::kDeclined: return "Declined";
    case S::kFailed: return "Failed";
  }
  return "unknown state";
}

std::string_view describe(GreetingEvent event) noexcept {
  switch (event) {
    case E::kAsks: return "asks";
    case E::kSent: return "sent";
    case E::kRequestCame: return "request came";
    case E::kSealedRequestCame: return "sealed request came";
    case E::kChallengeCame: return "challenge came";
    case E::kProofCame: return "proof came";
    case E::kOtherSecret: return "other secret";
    case E::kAnswered: return "answered";
    case E::kAccepted: return "yes sent or come";
    case E::kDeclined: return "no sent or come";
    case E::kFailed: return "failed";
  }
  return "unknown event";
}

}  // namespace weft::roce
