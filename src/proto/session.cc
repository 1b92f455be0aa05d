#include "proto/session.h"

#include <bit>
#include <cassert>

namespace weft::proto {

std::string_view describe(SessionFault fault) noexcept {
  switch (fault) {
    case SessionFault::kNone: return "closed in good order";
    case SessionFault::kProtocol: return "not the MPA frame that was due";
    case SessionFault::kClosedByPeer: return "closed by the peer during start-up";
    case SessionFault::kTransport: return "the transport was lost";
    case SessionFault::kRequestTimeout: return "no MPA Request in time";
    case SessionFault::kSendTimeout: return "the peer did not take the MPA Reply in time";
    case SessionFault::kReplyTimeout: return "no MPA Reply in time";
    case SessionFault::kRtrTimeout: return "no FPDU in time after the MPA Reply";
    case SessionFault::kUnusableReply: return "the MPA Reply cannot be worked with";
    case SessionFault::kEndedUnused: return "it ended before its first FPDU";
    case SessionFault::kStreamLost: return "the connection was lost";
    case SessionFault::kTerminated: return "ended by a Terminate";
    case SessionFault::kAborted: return "aborted by the application";
  }
  return "unknown failure";
}

std::string_view SessionFailure::text() const noexcept {
  switch (fault) {
    case SessionFault::kProtocol: return describe(startup);
    case SessionFault::kTransport: return describe(error);
    default: return describe(fault);
  }
}

bool Session::on(SessionEvent event) noexcept { return follow(session_arrows(), state_, event); }

// --- begin ---

Status Session::request(const StartupOffer& offer) {
  assert(state_ == SessionState::kNew);
  auto startup = Startup::initiator(offer);
  if (!startup) return fail(startup.error());
  startup_ = std::make_unique<Startup>(*startup);
  initiator_ = true;
  return {};
}

void Session::begin(Instant now) {
  if (!initiator_) startup_ = std::make_unique<Startup>(Startup::responder());
  on(SessionEvent::kBegun);
  arm(initiator_ ? limits_.reply_timeout : limits_.request_timeout, now);
}

void Session::arm(Duration limit, Instant now) {
  deadline_ = limit.count() == 0 ? Instant::never() : now + limit;
}

// --- frames ---

std::span<const std::uint8_t> Session::to_send() const noexcept {
  if (startup_ == nullptr || state_ == SessionState::kNew) return {};
  return startup_->to_send();
}

void Session::sent(std::size_t n) {
  startup_->sent(n);
  follow_startup();
}

std::size_t Session::wanted() const noexcept {
  if (state_ == SessionState::kRequested) return 1;
  if (state_ != SessionState::kFrames || startup_ == nullptr) return 0;
  if (startup_->missing() == 0) return 0;
  return initiator_ ? startup_->missing_with_words() : startup_->room() + 1;
}

void Session::arrived(std::span<const std::uint8_t> octets) {
  if (octets.empty() || (state_ != SessionState::kFrames && state_ != SessionState::kRequested)) {
    return;
  }
  (void)startup_->received(octets);  // what goes wrong shows in its state
  follow_startup();
}

void Session::peer_closed() {
  if (state_ != SessionState::kFrames && state_ != SessionState::kRequested) return;
  startup_->peer_closed();
  follow_startup();
}

void Session::transport_lost(Error error) {
  fail_with({.fault = SessionFault::kTransport, .error = error});
}

void Session::follow_startup() {
  switch (startup_->state()) {
    case StartupState::kAwaitingRequest:
    case StartupState::kSendingRequest:
    case StartupState::kAwaitingReply:
    case StartupState::kSendingReply:
    case StartupState::kSendingReject:
    case StartupState::kSendingRevision: return;
    case StartupState::kRequestReady:
      if (!on(SessionEvent::kRequestCame)) return;  // it has been told
      deadline_ = Instant::never();
      note(SessionNotice::kRequest);
      return;
    case StartupState::kDone:
      if (!on(SessionEvent::kAgreed)) return;
      deadline_ = Instant::never();
      note(SessionNotice::kAgreed);
      return;
    case StartupState::kRejected:
      if (!on(SessionEvent::kRefused)) return;
      deadline_ = Instant::never();
      if (initiator_) note(SessionNotice::kRejected);
      return;
    case StartupState::kFailed: fail_startup(); return;
  }
}

void Session::fail_startup() {
  const StartupFailure why = startup_->failure();
  if (why == StartupFailure::kClosedByPeer) {
    fail_with({.fault = SessionFault::kClosedByPeer});
  } else {
    fail_with({.fault = SessionFault::kProtocol, .startup = why});
  }
}

// Ends a set-up whose stream does not run.
void Session::fail_with(const SessionFailure& failure) {
  const bool tell = state_ != SessionState::kRefusing;  // the application has already said no
  if (!on(SessionEvent::kFailed)) return;
  deadline_ = Instant::never();
  failure_ = failure;
  notices_ = 0;
  if (tell) note(SessionNotice::kFailed);
}

// --- the responder's answer ---

Status Session::accept(const StartupOffer& offer, Instant now) {
  if (state_ != SessionState::kRequested) return fail(Error::kBadState);
  if (const Status built = startup_->accept(offer); !built) return built;
  on(SessionEvent::kAccepted);
  arm(limits_.request_timeout, now);
  return {};
}

Status Session::reject(std::span<const std::uint8_t> private_data, Instant now) {
  if (state_ != SessionState::kRequested) return fail(Error::kBadState);
  if (const Status built = startup_->reject(private_data); !built) return built;
  on(SessionEvent::kDeclined);
  arm(limits_.request_timeout, now);
  return {};
}

// --- the stream's life ---

void Session::stream_running(Instant now) {
  assert(state_ == SessionState::kAgreed);
  if (agreed().startup_failure) {
    on(SessionEvent::kRunsToEnd);
  } else if (!initiator_ && agreed().peer_to_peer && !first_fpdu_seen_) {
    on(SessionEvent::kRunsUnproved);
    arm(limits_.rtr_timeout, now);
  } else {
    on(SessionEvent::kRuns);
    establish();
  }
  if (end_ != StreamEnd::kOpen) {
    tell_end();
  } else if (abort_wanted_) {
    note(SessionNotice::kAbortStream);
  }
}

void Session::first_fpdu() {
  first_fpdu_seen_ = true;
  if (on(SessionEvent::kFirstFpdu)) establish();
}

void Session::stream_down(StreamEnd how) {
  end_ = how;
  // Before the owner has said that it runs, kEstablished is told first.
  if (state_ != SessionState::kAgreed) tell_end();
}

void Session::establish() {
  established_ = true;
  deadline_ = Instant::never();
  note(SessionNotice::kEstablished);
}

void Session::tell_end() {
  const bool unusable = state_ == SessionState::kUnusable;
  if (!on(SessionEvent::kStreamDown)) return;
  if (failure_.fault == SessionFault::kNone) {
    if (abort_wanted_) {
      failure_.fault = SessionFault::kAborted;
    } else if (unusable) {
      failure_.fault = SessionFault::kUnusableReply;
    } else if (end_ == StreamEnd::kTerminated) {
      failure_.fault = SessionFault::kTerminated;
    } else if (end_ == StreamEnd::kLost) {
      failure_.fault = SessionFault::kStreamLost;
    } else if (!established_) {
      failure_.fault = SessionFault::kEndedUnused;
    }
  }
  deadline_ = Instant::never();
  note(established_ ? SessionNotice::kEnded : SessionNotice::kFailed);
}

// --- the end ---

void Session::abort() {
  switch (state_) {
    case SessionState::kAgreed: abort_wanted_ = true; return;  // until the owner says that it runs
    case SessionState::kFirstFpdu:
    case SessionState::kUnusable:
    case SessionState::kUp:
      abort_wanted_ = true;
      note(SessionNotice::kAbortStream);
      return;
    default: fail_with({.fault = SessionFault::kAborted}); return;
  }
}

void Session::expired(Instant now) {
  if (now < deadline_) return;
  deadline_ = Instant::never();
  switch (state_) {
    case SessionState::kFrames:
      fail_with(
          {.fault = initiator_ ? SessionFault::kReplyTimeout : SessionFault::kRequestTimeout});
      return;
    case SessionState::kReplying:
    case SessionState::kRefusing: fail_with({.fault = SessionFault::kSendTimeout}); return;
    case SessionState::kFirstFpdu:
      failure_.fault = SessionFault::kRtrTimeout;
      note(SessionNotice::kAbortStream);
      return;
    default: return;
  }
}

// --- notices ---

void Session::note(SessionNotice notice) noexcept {
  notices_ |= static_cast<std::uint8_t>(1U << static_cast<unsigned>(notice));
}

SessionNotice Session::take_notice() noexcept {
  if (notices_ == 0) return SessionNotice::kNone;
  const int first = std::countr_zero(notices_);
  notices_ &= static_cast<std::uint8_t>(notices_ - 1);
  return static_cast<SessionNotice>(first);
}

}  // namespace weft::proto
