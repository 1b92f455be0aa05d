#include "proto/startup_states.h"

namespace weft::proto {

namespace {

constexpr StartupArrow kStartup[] = {
    {StartupState::kAwaitingRequest, StartupEvent::kOffered, StartupState::kSendingRequest},
    {StartupState::kAwaitingRequest, StartupEvent::kRequestCame, StartupState::kRequestReady},
    {StartupState::kAwaitingRequest, StartupEvent::kRevisionZero, StartupState::kSendingRevision},
    {StartupState::kAwaitingRequest, StartupEvent::kFailed, StartupState::kFailed},
    {StartupState::kSendingRequest, StartupEvent::kSent, StartupState::kAwaitingReply},
    {StartupState::kSendingRequest, StartupEvent::kFailed, StartupState::kFailed},
    {StartupState::kAwaitingReply, StartupEvent::kReplyCame, StartupState::kDone},
    {StartupState::kAwaitingReply, StartupEvent::kRejectCame, StartupState::kRejected},
    {StartupState::kAwaitingReply, StartupEvent::kFailed, StartupState::kFailed},
    {StartupState::kRequestReady, StartupEvent::kAccepted, StartupState::kSendingReply},
    {StartupState::kRequestReady, StartupEvent::kDeclined, StartupState::kSendingReject},
    {StartupState::kRequestReady, StartupEvent::kFailed, StartupState::kFailed},
    {StartupState::kSendingReply, StartupEvent::kSent, StartupState::kDone},
    {StartupState::kSendingReply, StartupEvent::kFailed, StartupState::kFailed},
    {StartupState::kSendingReject, StartupEvent::kSent, StartupState::kRejected},
    {StartupState::kSendingReject, StartupEvent::kFailed, StartupState::kFailed},
    {StartupState::kSendingRevision, StartupEvent::kSent, StartupState::kFailed},
    {StartupState::kSendingRevision, StartupEvent::kFailed, StartupState::kFailed},
};

}  // namespace

std::span<const StartupArrow> startup_arrows() noexcept { return kStartup; }

std::string_view describe(StartupState state) noexcept {
  switch (state) {
    case StartupState::kAwaitingRequest: return "AwaitingRequest";
    case StartupState::kSendingRequest: return "SendingRequest";
    case StartupState::kAwaitingReply: return "AwaitingReply";
    case StartupState::kRequestReady: return "RequestReady";
    case StartupState::kSendingReply: return "SendingReply";
    case StartupState::kSendingReject: return "SendingReject";
    case StartupState::kSendingRevision: return "SendingRevision";
    case StartupState::kDone: return "Done";
    case StartupState::kRejected: return "Rejected";
    case StartupState::kFailed: return "Failed";
  }
  return "unknown state";
}

std::string_view describe(StartupEvent event) noexcept {
  switch (event) {
    case StartupEvent::kOffered: return "offered";
    case StartupEvent::kSent: return "sent";
    case StartupEvent::kRequestCame: return "Request came";
    case StartupEvent::kRevisionZero: return "revision 0 came";
    case StartupEvent::kAccepted: return "accepted";
    case StartupEvent::kDeclined: return "declined";
    case StartupEvent::kReplyCame: return "Reply came";
    case StartupEvent::kRejectCame: return "reject came";
    case StartupEvent::kFailed: return "failed";
  }
  return "unknown event";
}

}  // namespace weft::proto
