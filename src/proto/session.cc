#include "proto/session.h"

#include <algorithm>
#include <cassert>
#include <new>

namespace weft::proto {

std::string_view describe(SessionFault fault) noexcept {
  switch (fault) {
    case SessionFault::kNone: return "no failure";
    case SessionFault::kProtocol: return "not the MPA frame that was due";
    case SessionFault::kClosedByPeer: return "closed by the peer during start-up";
    case SessionFault::kTransportLost: return "reset during start-up";
    case SessionFault::kTransportTimed: return "no acknowledgment in time during start-up";
    case SessionFault::kRequestTimeout: return "no MPA Request in time";
    case SessionFault::kSendTimeout: return "the peer did not take the MPA Reply in time";
    case SessionFault::kReplyTimeout: return "no MPA Reply in time";
    case SessionFault::kRtrTimeout: return "no FPDU in time after the MPA Reply";
    case SessionFault::kUnusableReply: return "the MPA Reply cannot be worked with";
    case SessionFault::kEnded: return "it ended before its first FPDU";
    case SessionFault::kAborted: return "aborted by the application";
    case SessionFault::kNoMemory: return "out of memory";
  }
  return "unknown failure";
}

Session::Session(const SessionLimits& limits, SessionHost& host, CarryPool& pool)
    : limits_(limits), host_(host), pool_(pool) {}

Session::~Session() { drop_startup(); }

// --- begin ---

Status Session::make_startup() {
  assert(phase_ == Phase::kIdle);
  std::uint8_t* const at = pool_.acquire_carry(kStartupBytes);
  if (at == nullptr) return fail(Error::kNoMemory);
  assert(reinterpret_cast<std::uintptr_t>(at) % alignof(Startup) == 0);
  startup_ = new (at) Startup(Startup::responder());
  return {};
}

void Session::drop_startup() noexcept {
  if (startup_ == nullptr) return;
  auto* const at = reinterpret_cast<std::uint8_t*>(startup_);
  startup_->~Startup();
  startup_ = nullptr;
  pool_.release_carry(at, kStartupBytes);
}

void Session::arm(Duration limit) {
  deadline_ = limit.count() == 0 ? Instant::never() : host_.now() + limit;
}

Status Session::await_request() {
  if (const Status made = make_startup(); !made) return made;
  phase_ = Phase::kFrames;
  arm(limits_.request_timeout);
  return {};
}

Status Session::start(const StartupOffer& offer, const StreamOwner& owner) {
  if (const Status made = make_startup(); !made) return made;
  if (const Status built = startup_->request(offer); !built) {
    drop_startup();
    return built;
  }
  owner_.emplace(owner);
  initiator_ = true;
  phase_ = Phase::kFrames;
  arm(limits_.reply_timeout);
  return {};
}

// --- the responder's answer ---

Status Session::accept(const StartupOffer& offer, const StreamOwner& owner) {
  if (phase_ != Phase::kRequested) return fail(Error::kBadState);
  if (const Status built = startup_->accept(offer); !built) return built;
  owner_.emplace(owner);
  phase_ = Phase::kReplying;
  arm(limits_.request_timeout);
  return {};
}

Status Session::reject(std::span<const std::uint8_t> private_data) {
  if (phase_ != Phase::kRequested) return fail(Error::kBadState);
  if (const Status built = startup_->reject(private_data); !built) return built;
  phase_ = Phase::kRefusing;
  arm(limits_.request_timeout);
  return {};
}

std::size_t Session::private_data_max() const noexcept {
  return startup_ == nullptr ? 0 : startup_->private_data_max();
}

// --- receive ---

// An initiator reads the Reply where it is kept, and not an octet more: what follows belongs to the
// stream. A responder must find out whether anything comes behind the Request.
void Session::want_frame(RxPlan& plan, std::span<std::uint8_t> scratch) {
  constexpr std::size_t kFrameAndMore = kMpaFrameSize + kMaxPrivateData + 1;
  assert(scratch.size() >= kFrameAndMore);
  const bool in_place = initiator_ && startup_ != nullptr && startup_->missing() != 0;
  scratch_ = in_place ? nullptr : scratch.data();
  const std::span<std::uint8_t> to = in_place ? startup_->slot() : scratch.first(kFrameAndMore);
  plan.slices[0] = {to.data(), to.size()};
  plan.count = 1;
  plan.bytes = to.size();
}

void Session::frame_arrived(std::size_t n) {
  if (n == 0 || startup_ == nullptr || phase_ == Phase::kDown) return;
  if (scratch_ == nullptr) {
    startup_->filled(n);
  } else {
    (void)startup_->received({scratch_, n});  // what goes wrong shows in its state
  }
  step();
}

void Session::feed(std::span<std::uint8_t> bytes) {
  if (!stream_) {
    if (bytes.empty() || startup_ == nullptr || phase_ == Phase::kDown) return;
    const Result<std::size_t> taken = startup_->received(bytes);
    step();
    if (!taken) return;
    bytes = bytes.subspan(*taken);
  }
  if (!stream_ || bytes.empty()) return;
  stream_->feed(bytes);
  settle();
}

void Session::peer_closed() {
  if (stream_) {
    stream_->peer_closed();
    settle();
    return;
  }
  if (startup_ == nullptr || phase_ == Phase::kRefusing || phase_ == Phase::kDown) return;
  startup_->peer_closed();
  step();
}

void Session::transport_lost(bool timed_out) {
  if (stream_) {
    stream_->transport_lost(timed_out);
    settle();
    return;
  }
  const auto fault = timed_out ? SessionFault::kTransportTimed : SessionFault::kTransportLost;
  fail_with({.fault = fault}, true);
}

void Session::memory_fault() {
  if (!stream_) return transport_lost(false);
  stream_->memory_fault();
  settle();
}

// --- send ---

bool Session::tx_pending() const noexcept {
  if (stream_) return stream_->tx_pending();
  return startup_ != nullptr && phase_ != Phase::kDown && !startup_->to_send().empty();
}

std::span<const Slice> Session::gather() {
  if (!stream_) {
    if (!tx_pending()) return {};
    const std::span<const std::uint8_t> bytes = startup_->to_send();
    // The transport only reads; a gather list has no const form.
    frame_ = {const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
    return {&frame_, 1};
  }
  const TxBatch* const batch = stream_->gather();
  if (batch == nullptr) {
    settle();
    return {};
  }
  return {batch->slices + batch->slice_next, batch->slice_count - batch->slice_next};
}

void Session::sent(std::size_t n) {
  if (stream_) {
    stream_->sent(n);
    settle();
    return;
  }
  if (n == 0 || startup_ == nullptr) return;
  frames_sent_ += n;
  startup_->sent(n);
  step();
}

void Session::released(std::size_t n) {
  const StreamOffset held = frames_sent_ - frames_released_;
  const std::size_t frame = n < held ? n : static_cast<std::size_t>(held);
  frames_released_ += frame;
  if (stream_) {
    stream_->released(n - frame);
    settle();
  }
  if (frame != 0) finish();
}

void Session::acked(StreamOffset offset) {
  if (!stream_ || offset < frames_sent_) return;
  stream_->acked(offset - frames_sent_);
  settle();
}

void Session::transport_closed() {
  frames_released_ = frames_sent_;
  if (stream_) {
    stream_->transport_closed();
    settle();
  }
  finish();
}

// --- start-up goes on ---

void Session::step() {
  switch (startup_->state()) {
    case StartupState::kSending:
    case StartupState::kAwaitingRequest:
    case StartupState::kAwaitingReply: return;
    case StartupState::kRequestReady:
      if (phase_ != Phase::kFrames) return;
      phase_ = Phase::kRequested;
      deadline_ = Instant::never();
      host_.request_arrived(startup_->peer());
      return;
    case StartupState::kDone: begin_stream(); return;
    case StartupState::kRejected:
      phase_ = Phase::kDown;
      deadline_ = Instant::never();
      if (initiator_) host_.rejected(startup_->peer());
      finish();
      return;
    case StartupState::kFailed: fail_startup(); return;
  }
}

void Session::fail_startup() {
  const StartupFailure why = startup_->failure();
  if (why == StartupFailure::kClosedByPeer) {
    fail_with({.fault = SessionFault::kClosedByPeer}, false);
  } else {
    fail_with({.fault = SessionFault::kProtocol, .startup = why}, false);
  }
}

// Ends a set-up whose stream does not run yet.
void Session::fail_with(const SessionFailure& failure, bool reset) {
  if (phase_ == Phase::kIdle || phase_ == Phase::kDown) {
    reset_ |= reset;
    return;
  }
  const bool tell = phase_ != Phase::kRefusing;  // the application has already said no
  phase_ = Phase::kDown;
  reset_ = reset;
  deadline_ = Instant::never();
  if (tell) host_.failed(failure);
  finish();
}

// Once nothing needs them, the frames go back to the pool. A connection that is over gives the
// transport a while to deliver them.
void Session::finish() {
  const bool over = phase_ == Phase::kDown;
  if (startup_ == nullptr || !(over || established_)) return;
  if (frames_released_ == frames_sent_) {
    drop_startup();
  } else if (over && !stream_ && deadline_.is_never()) {
    arm(limits_.request_timeout);
  }
}

void Session::begin_stream() {
  agreed_ = startup_->result();
  StreamParams params = stream_params(agreed_, limits_.nudge_wait, limits_.first_fpdu_wait);
  params.id = owner_->id;
  host_.stream_starting(agreed_, params);
  stream_.emplace(params, owner_->host, owner_->table, owner_->sq);
  deadline_ = Instant::never();
  if (agreed_.startup_failure) {
    phase_ = Phase::kUnusable;
  } else if (!initiator_ && agreed_.peer_to_peer) {
    phase_ = Phase::kFirstFpdu;
    arm(limits_.rtr_timeout);
  } else {
    phase_ = Phase::kUp;
  }
  stream_->start();
  if (phase_ == Phase::kUp) report_established();
  settle();
}

void Session::report_established() {
  established_ = true;
  host_.established(agreed_, startup_->peer());
  finish();
}

void Session::settle_changed() {
  if (!stream_ || phase_ == Phase::kDown) return;
  if (phase_ == Phase::kFirstFpdu && stream_->first_fpdu_seen()) {
    phase_ = Phase::kUp;
    deadline_ = Instant::never();
    report_established();
  }
  if (phase_ == Phase::kDown || !stream_->is_down()) return;
  SessionFault fault = fault_;
  if (fault == SessionFault::kNone) {
    fault = phase_ == Phase::kUnusable ? SessionFault::kUnusableReply : SessionFault::kEnded;
  }
  phase_ = Phase::kDown;
  deadline_ = Instant::never();
  const Stream& s = *stream_;
  if (established_) {
    host_.ended(s.end(), s.end_code(), s.ended_by_peer());
  } else {
    host_.failed({.fault = fault, .code = s.end_code(), .by_peer = s.ended_by_peer()});
  }
  finish();
}

// --- ending ---

void Session::close() {
  if (!stream_) return abort();
  stream_->close();
  settle();
}

void Session::abort() {
  if (!stream_) return fail_with({.fault = SessionFault::kAborted}, true);
  if (!established_ && fault_ == SessionFault::kNone) fault_ = SessionFault::kAborted;
  stream_->abort();
  settle();
}

bool Session::finished() const noexcept {
  if (stream_) return stream_->finished();
  return phase_ == Phase::kDown && (reset_ || frames_released_ == frames_sent_);
}

bool Session::wants_reset() const noexcept { return stream_ ? stream_->wants_reset() : reset_; }

Instant Session::deadline() const noexcept {
  return stream_ ? std::min(deadline_, stream_->deadline()) : deadline_;
}

void Session::expired(Instant now) {
  if (now >= deadline_) {
    deadline_ = Instant::never();
    own_time_out();
  }
  if (!stream_) return;
  stream_->expired(now);
  settle();
}

void Session::own_time_out() {
  switch (phase_) {
    case Phase::kFrames:
      if (initiator_) {
        fail_with({.fault = SessionFault::kReplyTimeout}, true);
      } else {
        fail_with({.fault = SessionFault::kRequestTimeout}, false);
      }
      return;
    case Phase::kReplying:
    case Phase::kRefusing: fail_with({.fault = SessionFault::kSendTimeout}, true); return;
    case Phase::kFirstFpdu:
      fault_ = SessionFault::kRtrTimeout;
      stream_->abort();
      return;                                  // expired() settles
    case Phase::kDown: reset_ = true; return;  // the last octets were not taken in time
    default: return;
  }
}

}  // namespace weft::proto
