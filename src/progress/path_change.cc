#include "progress/path_change.h"

#include <cassert>
#include <utility>

#include "io/socket.h"
#include "os/clock.h"
#include "os/guarded.h"
#include "os/log.h"

namespace weft::progress {

using proto::PathMessage;
using proto::PathWord;
using Way = io::PathTransport::Way;

namespace {

// How long the initiator keeps the door open for an answer. It may come later than it was needed,
// but a peer that knows nothing of rings never answers.
constexpr Duration kAnswerWait{std::chrono::seconds(10)};

}  // namespace

bool PathChange::on_message(const PathMessage& message) {
  stirred_ = true;
  if (message.word == PathWord::kName) {
    if (initiator_) return false;
    ticket_.name = message.value;
    return true;
  }
  if (message.word == PathWord::kProof) {
    if (initiator_) return false;
    ticket_.proof = message.value;
    if (step_ == Step::kTcp) answer();
    return true;
  }
  if (message.word == PathWord::kAgain) {
    if (initiator_) return false;
    again_ = message.value;
    return true;
  }
  // The proof is known to the two ends only, so no Write of an application can look like these.
  if (ticket_.proof == 0 || message.value != ticket_.proof) return false;
  switch (message.word) {
    case PathWord::kAnswered:
      if (initiator_ && step_ == Step::kOffered) take_ring();
      return true;
    case PathWord::kRefused:
      if (step_ == Step::kOffered || step_ == Step::kAnswered) refuse(Error::kRefused, false);
      return true;
    case PathWord::kByRing: return receive_by(Way::kRing);
    case PathWord::kByTcp: return receive_by(Way::kTcp);
    default: return false;
  }
}

void PathChange::say(PathWord word, std::uint64_t value) {
  stream_.send_path_message({word, value});
}

// --- to the ring ---

bool PathChange::may_have_ring() {
  counted_ = counted_ || rings_.take();
  return counted_;
}

void PathChange::give_ring() noexcept {
  if (std::exchange(counted_, false)) rings_.give();
}

void PathChange::begin() {
  assert(initiator_ && step_ == Step::kTcp && !offer_ && !transport_.has_ring());
  if (!may_have_ring()) return refuse(Error::kLimitExceeded, false);
  auto offer = os::guarded([] { return shm::RingOffer::open(); });
  if (!offer) return refuse(offer.error(), false);
  ticket_ = offer->ticket();
  offer_.emplace(std::move(*offer));
  peer_ = io::peer_address(transport_.fd());
  if (auto kept = rings_.take_kept_of(peer_)) {
    say(PathWord::kAgain, kept->key);
    spare_.emplace(std::move(kept->ring));
  }
  say(PathWord::kName, ticket_.name);
  say(PathWord::kProof, ticket_.proof);
  step_ = Step::kOffered;
  deadline_ = os::now() + kAnswerWait;
}

void PathChange::answer() {
  assert(!initiator_ && step_ == Step::kTcp && !transport_.has_ring());
  if (mode_ == PathMode::kTcp) return refuse(Error::kUnsupported, true);
  if (!may_have_ring()) return refuse(Error::kLimitExceeded, true);
  auto ring = os::guarded([&] {
    return shm::answer_ring_offer(ticket_, shm::kRingBytesDefault,
                                  rings_.take_kept(std::exchange(again_, 0)));
  });
  if (!ring) return refuse(ring.error(), true);
  transport_.add_ring(std::move(*ring));
  moved_ = true;
  step_ = Step::kAnswered;
  say(PathWord::kAnswered, ticket_.proof);
}

void PathChange::take_ring() {
  assert(initiator_ && step_ == Step::kOffered && offer_ && counted_);
  deadline_ = Instant::never();
  std::optional<shm::SpareRing> spare = std::move(spare_);
  spare_.reset();
  auto ring = os::guarded([&] {  // where there is no memory, the stream stays on TCP
    return std::exchange(offer_, std::nullopt)->take(std::move(spare));
  });
  if (!ring) return refuse(ring.error(), true);
  transport_.add_ring(std::move(*ring));
  moved_ = true;
  step_ = Step::kRing;
  say(PathWord::kByRing, ticket_.proof);
}

// The peer's octets come another way from here on. False: it must not say so now.
bool PathChange::receive_by(Way way) {
  const bool legal = way == Way::kRing
                         ? transport_.has_ring() && transport_.receives_by() == Way::kTcp &&
                               (step_ == Step::kRing || step_ == Step::kAnswered)
                         : transport_.receives_by() == Way::kRing && !markers_;
  if (!legal) return false;
  const bool bare = way == Way::kRing;
  if (!stream_.change_receiving(bare)) return false;
  transport_.receive_by(way);
  if (way == Way::kRing && step_ == Step::kAnswered) {
    // The initiator has mapped the memory: nobody can take pages out of it from now on.
    if (!transport_.secure_ring()) {
      moved_ = true;
      return true;  // the transport says so from now on
    }
    step_ = Step::kRing;
    say(PathWord::kByRing, ticket_.proof);
  } else if (way == Way::kTcp && step_ == Step::kRing) {
    step_ = Step::kLeaving;
    say(PathWord::kByTcp, ticket_.proof);
  } else if (way == Way::kTcp && transport_.sends_by() == Way::kTcp) {
    leave_ring();
  }
  return true;
}

void PathChange::log_refusal(Error error) const {
  const bool ours = error != Error::kRefused && error != Error::kUnsupported;
  if (!ours && mode_ != PathMode::kRing) return;
  const std::string why =
      error == Error::kRefused ? "the peer refused a ring" : shm::describe_ring_error(error);
  if (mode_ == PathMode::kRing) {
    os::log(LogLevel::kWarning, "path=ring, but {}: the connection is ended", why);
  } else {
    os::log(LogLevel::kInfo, "connection stays on TCP: {}", why);
  }
}

void PathChange::refuse(Error error, bool tell) {
  static_cast<void>(os::guarded([&]() -> Status {
    log_refusal(error);
    return {};
  }));
  if (tell) say(PathWord::kRefused, ticket_.proof);
  offer_.reset();
  spare_.reset();
  deadline_ = Instant::never();
  step_ = Step::kRefused;
  failed_ = mode_ == PathMode::kRing;
  give_ring();
  if (!transport_.has_ring()) return;
  transport_.drop_ring();
  moved_ = true;
}

// --- behind each turn ---

bool PathChange::must_begin() {
  if (!std::exchange(begun_, true) && mode_ == PathMode::kRing && !initiator_) {
    deadline_ = os::now() + kAnswerWait;
  }
  if (!may_begin() || stream_.state() != proto::StreamState::kRts) return false;
  return mode_ == PathMode::kRing || stream_.carries_messages();
}

bool PathChange::turn_done() {
  if (must_begin()) {
    begin();
    return true;
  }
  const std::optional<PathWord> change = stream_.sending_may_change();
  if (!change) {
    stirred_ = false;
    return false;
  }
  const bool by_ring = *change == PathWord::kByRing && transport_.has_ring();
  transport_.send_by(by_ring ? Way::kRing : Way::kTcp);
  stream_.change_sending(by_ring);
  if (by_ring) {
    const bool may_leave = initiator_ && !markers_ && mode_ != PathMode::kRing;
    deadline_ = may_leave && idle_.count() != 0 ? os::now() + idle_ : Instant::never();
    os::log(LogLevel::kInfo, "connection sends through a ring of shared memory from here on");
  } else if (transport_.receives_by() == Way::kTcp) {
    leave_ring();
  }
  return true;
}

void PathChange::keep_ring() {
  if (step_ != Step::kRing) return;
  auto spare = transport_.take_spare();
  if (!spare) return;
  static_cast<void>(os::guarded([&]() -> Status {
    rings_.keep({std::move(*spare), ticket_.proof, initiator_, peer_, {}});
    return {};
  }));
}

// --- and back ---

void PathChange::on_time(Instant now) {
  if (now < deadline_) return;
  stirred_ = true;
  deadline_ = Instant::never();
  if (step_ == Step::kOffered || step_ == Step::kTcp) return refuse(Error::kNotFound, false);
  if (step_ == Step::kRing && initiator_) look_at_idleness(now);
}

void PathChange::look_at_idleness(Instant now) {
  const std::uint64_t octets =
      stream_.counters().rx_bytes.get() + stream_.counters().tx_bytes.get();
  if (octets != std::exchange(moved_octets_, octets) || transport_.sends_by() != Way::kRing ||
      transport_.receives_by() != Way::kRing) {
    deadline_ = now + idle_;
    return;
  }
  step_ = Step::kLeaving;
  say(PathWord::kByTcp, ticket_.proof);
}

void PathChange::leave_ring() {
  transport_.drop_ring();
  give_ring();
  moved_ = true;
  stream_.forget_messages();
  assert(!transport_.has_ring() && !counted_ && !offer_);
  step_ = Step::kTcp;
}

}  // namespace weft::progress
