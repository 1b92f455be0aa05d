#include "proto/startup.h"

#include <algorithm>
#include <cassert>

#include "base/bytes.h"

namespace weft::proto {

namespace {

constexpr std::uint8_t kPlainRevision = 1;
constexpr std::uint8_t kEnhancedRevision = 2;

constexpr std::size_t private_data_room(bool enhanced) {
  return kMaxPrivateData - (enhanced ? kEnhancedWordsSize : 0);
}

bool depths_ok(const StartupOffer& offer) {
  return offer.ird <= kMaxIrdOrd && offer.ord <= kMaxIrdOrd;
}

}  // namespace

std::string_view describe(StartupFailure failure) noexcept {
  switch (failure) {
    case StartupFailure::kNone: return "no failure";
    case StartupFailure::kNotMpa: return "not an MPA start-up frame";
    case StartupFailure::kTwoInitiators: return "an MPA Request where the Reply was due";
    case StartupFailure::kTwoResponders: return "an MPA Reply where the Request was due";
    case StartupFailure::kPrivateDataTooLong: return "more than 512 octets of private data";
    case StartupFailure::kRevisionZero: return "MPA revision 0, the RDMA Consortium's protocol";
    case StartupFailure::kRevisionUnknown: return "an MPA revision above 2";
    case StartupFailure::kRevisionMismatch: return "an MPA Reply of another revision";
    case StartupFailure::kEnhancedCutShort: return "S bit with less than 4 octets of private data";
    case StartupFailure::kEnhancedMissing: return "an MPA Reply without the S bit of the Request";
    case StartupFailure::kDataBehindRequest: return "octets behind the MPA Request";
    case StartupFailure::kDataBeforeRequest: return "octets before the MPA Request was out";
    case StartupFailure::kClosedByPeer: return "closed by the peer during start-up";
  }
  return "unknown start-up failure";
}

Result<Startup> Startup::initiator(const StartupOffer& offer) {
  Startup s(false);
  if (const Status built = s.request(offer); !built) return fail(built.error());
  return s;
}

Status Startup::request(const StartupOffer& offer) {
  const bool enhanced = offer.revision == kEnhancedRevision;
  if (!enhanced && offer.revision != kPlainRevision) return fail(Error::kInvalidArgument);
  if (!depths_ok(offer)) return fail(Error::kInvalidArgument);
  if (offer.peer_to_peer && (!enhanced || !(offer.rtr_read || offer.rtr_write))) {
    return fail(Error::kInvalidArgument);
  }
  if (offer.private_data.size() > private_data_room(enhanced)) {
    return fail(Error::kPrivateDataTooLong);
  }
  is_initiator_ = true;
  own_ = offer;
  own_.private_data = {};
  const MpaFrame frame{.markers = offer.markers,
                       .crc = offer.crc,
                       .enhanced = enhanced,
                       .revision = offer.revision,
                       .private_data = {}};
  // A Send RTR would consume a receive of the peer's application, so it is never offered.
  const EnhancedWords words{.peer_to_peer = offer.peer_to_peer,
                            .rtr_write = offer.peer_to_peer && offer.rtr_write,
                            .rtr_read = offer.peer_to_peer && offer.rtr_read,
                            .ird = offer.ird,
                            .ord = offer.ord};
  build(frame, enhanced ? &words : nullptr, offer.private_data);
  advance(StartupEvent::kOffered);
  return {};
}

Startup Startup::responder() { return Startup(false); }

// --- send ---

void Startup::build(MpaFrame frame, const EnhancedWords* words,
                    std::span<const std::uint8_t> data) {
  std::array<std::uint8_t, kMaxPrivateData> whole;
  ByteWriter private_data(whole);
  if (words != nullptr) encode(*words, private_data);
  private_data.bytes(data);
  frame.private_data = private_data.written();
  ByteWriter out(out_);
  encode(frame, out);
  out_size_ = out.written().size();
  out_sent_ = 0;
}

std::span<const std::uint8_t> Startup::to_send() const noexcept {
  if (!is_sending(state_)) return {};
  return {out_.data() + out_sent_, out_size_ - out_sent_};
}

void Startup::sent(std::size_t n) noexcept {
  assert(n <= to_send().size());
  out_sent_ += n;
  if (is_sending(state_) && out_sent_ == out_size_) advance(StartupEvent::kSent);
}

// --- receive ---

std::size_t Startup::missing() const noexcept {
  if (state_ != StartupState::kAwaitingRequest && state_ != StartupState::kAwaitingReply) return 0;
  return mpa_frame_missing({in_.data(), in_size_}, expected()).value_or(0);
}

std::size_t Startup::missing_with_words() const noexcept {
  const bool due = own_.revision == kEnhancedRevision && in_size_ < MpaFrame::kSize;
  return missing() + (due && state_ == StartupState::kAwaitingReply ? kEnhancedWordsSize : 0);
}

void Startup::filled(std::size_t n) {
  assert(n <= missing());
  in_size_ += n;
  const auto left = mpa_frame_missing({in_.data(), in_size_}, expected());
  if (!left) return fail_with(classify(left.error()));
  if (*left == 0) frame_complete();
}

Result<std::size_t> Startup::received(std::span<const std::uint8_t> bytes) {
  if (state_ == StartupState::kFailed) return fail(Error::kProtocol);
  if (bytes.empty() || state_ == StartupState::kDone) return 0;
  if (state_ == StartupState::kRejected || state_ == StartupState::kSendingReject ||
      state_ == StartupState::kSendingRevision) {
    return bytes.size();  // the answer is no, whatever follows
  }
  if (missing() == 0) {
    fail_with(is_initiator_ ? StartupFailure::kDataBeforeRequest
                            : StartupFailure::kDataBehindRequest);
    return fail(Error::kProtocol);
  }
  std::size_t taken = 0;
  while (taken < bytes.size() && !in_whole_) {
    const std::size_t piece = std::min(missing(), bytes.size() - taken);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(taken), piece,
                in_.begin() + static_cast<std::ptrdiff_t>(in_size_));
    taken += piece;
    filled(piece);
    if (failure_ != StartupFailure::kNone) return fail(Error::kProtocol);
  }
  if (!is_initiator_ && state_ == StartupState::kRequestReady && taken < bytes.size()) {
    fail_with(StartupFailure::kDataBehindRequest);
  }
  if (failure_ != StartupFailure::kNone) return fail(Error::kProtocol);
  return taken;
}

void Startup::peer_closed() noexcept {
  switch (state_) {
    case StartupState::kDone:
    case StartupState::kRejected:
    case StartupState::kFailed: return;
    default: break;
  }
  fail_with(failure_ == StartupFailure::kNone ? StartupFailure::kClosedByPeer : failure_);
}

void Startup::fail_with(StartupFailure failure) noexcept {
  assert(failure != StartupFailure::kNone);
  failure_ = failure;
  advance(StartupEvent::kFailed);
}

StartupFailure Startup::classify(Error error) const noexcept {
  if (error == Error::kPrivateDataTooLong) return StartupFailure::kPrivateDataTooLong;
  const MpaKind other = is_initiator_ ? MpaKind::kRequest : MpaKind::kReply;
  const auto as_other = mpa_frame_missing({in_.data(), in_size_}, other);
  if (!as_other && as_other.error() == Error::kBadKey) return StartupFailure::kNotMpa;
  return is_initiator_ ? StartupFailure::kTwoInitiators : StartupFailure::kTwoResponders;
}

void Startup::frame_complete() {
  in_whole_ = true;
  ByteReader in({in_.data(), in_size_});
  const auto frame = decode_mpa_frame(in, expected());
  assert(frame.has_value());  // mpa_frame_missing() has looked at all that can be wrong
  header_ = *frame;
  if (header_.enhanced) {
    ByteReader data(header_.private_data);
    if (const auto words = decode_enhanced_words(data)) words_ = *words;
  }
  header_.private_data = {};
  if (is_initiator_) {
    on_reply();
  } else {
    on_request();
  }
}

void Startup::on_request() {
  if (header_.revision == 0) {
    // Such peers need DDP version 0. Tell them which revision we speak, then close.
    build({.is_reply = true, .reject = true, .revision = kPlainRevision, .private_data = {}},
          nullptr, {});
    advance(StartupEvent::kRevisionZero);
    failure_ = StartupFailure::kRevisionZero;
    return;
  }
  if (header_.revision > kEnhancedRevision) return fail_with(StartupFailure::kRevisionUnknown);
  if (header_.enhanced && !words_) return fail_with(StartupFailure::kEnhancedCutShort);
  advance(StartupEvent::kRequestCame);
}

void Startup::on_reply() {
  if (header_.reject) {
    // A reject is accepted in any revision, so that a peer that speaks only another one can say so.
    // Some peers reject with S set but without the enhanced words.
    advance(StartupEvent::kRejectCame);
    return;
  }
  if (header_.revision != own_.revision) return fail_with(StartupFailure::kRevisionMismatch);
  const bool asked_enhanced = own_.revision == kEnhancedRevision;
  if (asked_enhanced && !header_.enhanced) return fail_with(StartupFailure::kEnhancedMissing);
  if (asked_enhanced && !words_) return fail_with(StartupFailure::kEnhancedCutShort);

  result_ = {.initiator = true,
             .revision = own_.revision,
             .crc = own_.crc || header_.crc,
             .tx_markers = header_.markers,
             .rx_markers = own_.markers,
             .peer_to_peer = own_.peer_to_peer,
             .ird = own_.ird,
             .ord = own_.ord,
             .startup_failure = std::nullopt};
  if (words_) settle_reply(*words_);
  advance(StartupEvent::kReplyCame);
}

// RFC 6581 sections 9.1 and 9.2, the initiator's part.
void Startup::settle_reply(const EnhancedWords& theirs) {
  if (theirs.ird != kIrdOrdNotNegotiated) result_.ord = std::min(own_.ord, theirs.ird);
  if (theirs.ord != kIrdOrdNotNegotiated && result_.ird < theirs.ord) {
    result_.startup_failure = Violation::kInsufficientIrd;
    return;
  }
  if (!own_.peer_to_peer) return;
  if (theirs.peer_to_peer && theirs.rtr_read && own_.rtr_read) {
    result_.rtr = RtrKind::kRead;
    result_.ord = std::max<std::uint16_t>(result_.ord, 1);
  } else if (theirs.peer_to_peer && theirs.rtr_write && own_.rtr_write) {
    result_.rtr = RtrKind::kWrite;
  } else {
    result_.startup_failure = Violation::kNoMatchingRtr;
  }
}

// --- the responder's decision ---

StartupPeer Startup::peer() const noexcept {
  if (!in_whole_) return {};
  const EnhancedWords words = words_.value_or(EnhancedWords{});
  const std::size_t skip =
      std::min(in_size_, kMpaFrameSize + (header_.enhanced ? kEnhancedWordsSize : 0));
  return {.revision = header_.revision,
          .crc = header_.crc,
          .markers = header_.markers,
          .enhanced = words_.has_value(),
          .peer_to_peer = words.peer_to_peer,
          .rtr_send = words.rtr_send,
          .rtr_write = words.rtr_write,
          .rtr_read = words.rtr_read,
          .ird = words.ird,
          .ord = words.ord,
          .private_data = {in_.data() + skip, in_size_ - skip}};
}

std::size_t Startup::private_data_max() const noexcept {
  return private_data_room(!in_whole_ || header_.enhanced);
}

RtrKind Startup::choose_rtr(const StartupOffer& offer) const noexcept {
  // Read alone if it is possible: some adapters refuse a Reply that has the Write bit, too. Where
  // nothing is common, name what we would take, so that the peer can say 2/0/07.
  const bool read_asked = words_->rtr_read;
  const bool write_asked = words_->rtr_write;
  if (read_asked && offer.rtr_read) return RtrKind::kRead;
  if (write_asked && offer.rtr_write) return RtrKind::kWrite;
  return offer.rtr_read || !offer.rtr_write ? RtrKind::kRead : RtrKind::kWrite;
}

// RFC 6581 sections 9.1 and 9.2, the responder's part: settles result_ and gives the Reply's words.
EnhancedWords Startup::answer(const StartupOffer& offer) {
  const EnhancedWords& theirs = *words_;
  EnhancedWords ours;
  if (theirs.ird != kIrdOrdNotNegotiated) result_.ord = std::min(offer.ord, theirs.ird);
  ours.ord = theirs.ird == kIrdOrdNotNegotiated ? kIrdOrdNotNegotiated : result_.ord;

  std::uint16_t ird = offer.ird;
  if (theirs.peer_to_peer) {
    result_.peer_to_peer = true;
    result_.rtr = choose_rtr(offer);
    if (result_.rtr == RtrKind::kRead) ird = std::max<std::uint16_t>(ird, 1);
    ours.peer_to_peer = true;
    ours.rtr_read = result_.rtr == RtrKind::kRead;
    ours.rtr_write = result_.rtr == RtrKind::kWrite;
  }
  ours.ird = theirs.ord == kIrdOrdNotNegotiated ? kIrdOrdNotNegotiated : ird;
  result_.ird = std::max<std::uint16_t>(ird, 1);
  return ours;
}

Status Startup::accept(const StartupOffer& offer) {
  if (state_ != StartupState::kRequestReady) return fail(Error::kBadState);
  if (!depths_ok(offer)) return fail(Error::kInvalidArgument);
  if (offer.private_data.size() > private_data_max()) return fail(Error::kPrivateDataTooLong);
  result_ = {.initiator = false,
             .revision = header_.revision,
             .crc = offer.crc || header_.crc,
             .tx_markers = header_.markers,
             .rx_markers = offer.markers,
             // Some initiators send a Read RTR without a word about it.
             .ird = std::max<std::uint16_t>(offer.ird, 1),
             .ord = offer.ord,
             .startup_failure = std::nullopt};
  EnhancedWords words;
  if (words_) words = answer(offer);
  // C is repeated if the Request had it: some initiators look at the Reply alone.
  const MpaFrame frame{.is_reply = true,
                       .markers = offer.markers,
                       .crc = result_.crc,
                       .enhanced = header_.enhanced,
                       .revision = header_.revision,
                       .private_data = {}};
  build(frame, words_ ? &words : nullptr, offer.private_data);
  advance(StartupEvent::kAccepted);
  return {};
}

Status Startup::reject(std::span<const std::uint8_t> private_data) {
  if (state_ != StartupState::kRequestReady) return fail(Error::kBadState);
  if (private_data.size() > private_data_max()) return fail(Error::kPrivateDataTooLong);
  const EnhancedWords none;
  const MpaFrame frame{.is_reply = true,
                       .reject = true,
                       .enhanced = header_.enhanced,
                       .revision = header_.revision,
                       .private_data = {}};
  build(frame, words_ ? &none : nullptr, private_data);
  advance(StartupEvent::kDeclined);
  return {};
}

}  // namespace weft::proto
