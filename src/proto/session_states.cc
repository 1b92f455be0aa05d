#include "proto/session_states.h"

namespace weft::proto {

namespace {

using S = SessionState;
using E = SessionEvent;

constexpr SessionArrow kArrows[] = {
    {S::kNew, E::kBegun, S::kFrames},
    {S::kFrames, E::kRequestCame, S::kRequested},
    {S::kFrames, E::kAgreed, S::kAgreed},
    {S::kFrames, E::kRefused, S::kOver},
    {S::kFrames, E::kFailed, S::kOver},
    {S::kRequested, E::kAccepted, S::kReplying},
    {S::kRequested, E::kDeclined, S::kRefusing},
    {S::kRequested, E::kFailed, S::kOver},
    {S::kReplying, E::kAgreed, S::kAgreed},
    {S::kReplying, E::kFailed, S::kOver},
    {S::kRefusing, E::kRefused, S::kOver},
    {S::kRefusing, E::kFailed, S::kOver},
    {S::kAgreed, E::kRuns, S::kUp},
    {S::kAgreed, E::kRunsUnproved, S::kFirstFpdu},
    {S::kAgreed, E::kRunsToEnd, S::kUnusable},
    {S::kAgreed, E::kFailed, S::kOver},
    {S::kFirstFpdu, E::kFirstFpdu, S::kUp},
    {S::kFirstFpdu, E::kStreamDown, S::kOver},
    {S::kUnusable, E::kStreamDown, S::kOver},
    {S::kUp, E::kStreamDown, S::kOver},
};

}  // namespace

std::span<const SessionArrow> session_arrows() noexcept { return kArrows; }

std::string_view describe(SessionState s) noexcept {
  switch (s) {
    case SessionState::kNew: return "New";
    case SessionState::kFrames: return "Frames";
    case SessionState::kRequested: return "Requested";
    case SessionState::kReplying: return "Replying";
    case SessionState::kRefusing: return "Refusing";
    case SessionState::kAgreed: return "Agreed";
    case SessionState::kFirstFpdu: return "FirstFpdu";
    case SessionState::kUnusable: return "Unusable";
    case SessionState::kUp: return "Up";
    case SessionState::kOver: return "Over";
  }
  return "unknown state";
}

std::string_view describe(SessionEvent e) noexcept {
  switch (e) {
    case SessionEvent::kBegun: return "begun";
    case SessionEvent::kRequestCame: return "Request came";
    case SessionEvent::kAccepted: return "accepted";
    case SessionEvent::kDeclined: return "declined";
    case SessionEvent::kAgreed: return "agreed";
    case SessionEvent::kRefused: return "refused";
    case SessionEvent::kFailed: return "failed";
    case SessionEvent::kRuns: return "runs";
    case SessionEvent::kRunsUnproved: return "runs, first FPDU due";
    case SessionEvent::kRunsToEnd: return "runs for its Terminate";
    case SessionEvent::kFirstFpdu: return "first FPDU";
    case SessionEvent::kStreamDown: return "stream down";
  }
  return "unknown event";
}

}  // namespace weft::proto
