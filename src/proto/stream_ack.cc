// Acks, between wired queue pairs (StreamParams::acks): a work request completes when the peer has
// placed and delivered it, and says so. TCP's own acknowledgement says less.
//
// Messages that want an Ack carry kAskBit on their last segment. Both ends count these: an Ack says
// how many are placed, and covers everything before the last of them. Who receives sends one Ack at
// the end of each turn, however many have asked. A Read or atomic asks too, and its response is the
// answer.
//
// What no completion is wanted for asks seldom: when half of the send queue has not.
#include <utility>

#include "proto/stream.h"

namespace weft::proto {

// --- the end that asks ---

std::uint8_t Stream::ask_bit(const SendWqe& wqe) const noexcept {
  if (!params_.acks) return 0;
  const bool asks = wqe.has_flag(SendFlags::kSignaled) || wqe.awaits_response() ||
                    unasked_ + 1 >= sq_.capacity() / 2;
  return asks ? kAskBit : 0;
}

// Behind the message that was built of it with these bits.
void Stream::number_work(SendWqe& wqe, std::uint8_t bits) noexcept {
  if (!params_.acks) return;
  if ((bits & kAskBit) != 0) {
    unasked_ = 0;
    wqe.ask = ++asks_sent_;
  } else {
    ++unasked_;
    wqe.ask = asks_sent_ + 1;
  }
}

// One that puts nothing on the wire is complete when all before it is. An empty Write asks about
// those that have not asked themselves.
void Stream::number_local(SendWqe& wqe) noexcept {
  if (!params_.acks) return;
  wqe.ask = unasked_ == 0 ? asks_sent_ : asks_sent_ + 1;
  ask_pending_ = ask_pending_ || unasked_ != 0;
}

void Stream::acks_reach(std::uint32_t number) noexcept {
  if (static_cast<std::int32_t>(number - asks_acked_) > 0) asks_acked_ = number;
}

// False: the stream has been failed.
bool Stream::take_ack(std::span<const std::uint8_t> ulpdu) {
  counters_.rx_fpdus.add(1);
  if (machine_.state() != StreamState::kRts) return true;
  if (!first_fpdu_seen_) note_first_fpdu();
  const DdpTagged h = load_ddp_tagged(ulpdu.data());
  const auto value = static_cast<std::uint32_t>(h.to);
  switch (static_cast<AckKind>(h.stag.value)) {
    case AckKind::kPlaced: return take_placed(value);
    case AckKind::kNotReady: return take_not_ready(Msn{value});
    case AckKind::kResume: return take_resume(Msn{value});
  }
  return refuse_ack();
}

bool Stream::refuse_ack() {
  seg_.header_len = 0;
  return fail_segment(Violation::kUnaskedAck);
}

bool Stream::take_placed(std::uint32_t number) {
  if (number - asks_acked_ > asks_sent_ - asks_acked_) {
    // An old one may come behind the response to a Read, which says more.
    if (static_cast<std::int32_t>(number - asks_acked_) <= 0) return true;
    return refuse_ack();
  }
  acks_reach(number);
  retire_work();
  return true;
}

// --- the end that is asked ---

// The open segment was the last of its message, which has been delivered.
void Stream::note_asked() noexcept {
  if ((seg_.bits & kAskBit) == 0) return;
  ++asks_received_;
  asked_by_receive_ = weft::info(seg_.op).consumes_receive;
  // The response is the answer.
  const bool answers = seg_.op == Opcode::kReadRequest || seg_.op == Opcode::kAtomicRequest;
  ack_pending_ = ack_pending_ || !answers;
}

bool Stream::only_ack_due() const noexcept {
  if (!ack_pending_ || !asked_by_receive_) return false;
  if (tx_.under_way() != nullptr || out_.from != Outbound::From::kNobody) return false;
  if (terminate_pending_ || refusal_pending_ || resume_pending_ || may_ask()) return false;
  return machine_.state() == StreamState::kRts && irq_build_ == irq_tail_ && sq_next_ == sq_.tail();
}

// --- messages of either ---

// A question behind a refused Send would be dropped with it.
bool Stream::may_ask() const noexcept { return ask_pending_ && !backed_off_; }

// REQUIRES: one of them is due.
void Stream::start_ack() {
  if (std::exchange(refusal_pending_, false)) {
    start_ack_segment(AckKind::kNotReady, rx_msn_[kQueueSend].value);
  } else if (std::exchange(resume_pending_, false)) {
    backed_off_ = false;
    start_ack_segment(AckKind::kResume, refused_msn_.value);
  } else if (std::exchange(ack_pending_, false)) {
    start_ack_segment(AckKind::kPlaced, asks_received_);
  } else {
    ask_pending_ = false;
    start_empty_write(0);
    out_.bits = kAskBit;
  }
}

void Stream::start_ack_segment(AckKind kind, std::uint32_t value) {
  start_empty_write(value);
  out_.stag = Stag{static_cast<std::uint32_t>(kind)};
  out_.bits = kAckBits;
}

// The empty Write that asks has been built.
void Stream::asked_alone() noexcept {
  ++asks_sent_;
  unasked_ = 0;
}

}  // namespace weft::proto
