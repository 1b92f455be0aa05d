// Acks, between wired queue pairs (StreamParams::acks): a work request completes when the peer has
// placed and delivered it, and says so. TCP's own acknowledgement says less.
//
// Messages that want an Ack carry kAskBit on their last segment. Both ends count these: an Ack says
// how many are placed, and covers everything before the last of them. Who receives sends one Ack at
// the end of each turn, however many have asked. A Read or atomic asks too, and its response is the
// answer.
//
// Requests without a completion ask only when half of the send queue has not asked.
#include <utility>

#include "proto/stream.h"

namespace weft::proto {

// --- the end that asks ---

// False: the stream has been failed.
bool StreamRx::take_ack(std::span<const std::uint8_t> ulpdu) {
  Stream& s = stream();
  s.counters_.rx_fpdus.add(1);
  if (s.machine_.state() != StreamState::kRts) return true;
  if (!first_fpdu_seen_) note_first_fpdu();
  const DdpTagged h = load_ddp_tagged(ulpdu.data());
  const auto value = static_cast<std::uint32_t>(h.to);
  switch (static_cast<AckKind>(h.stag.value)) {
    case AckKind::kPlaced:
      if (!s.acks_.placed(value)) return refuse_ack();
      s.retire_work();
      return true;
    case AckKind::kNotReady: return take_not_ready(Msn{value});
    case AckKind::kResume:
      return (Msn{value} == rx_msn_[kQueueSend] && s.refusal_.peer_resumes()) || refuse_ack();
  }
  return refuse_ack();
}

bool StreamRx::refuse_ack() {
  seg_.header_len = 0;
  return fail_segment(Violation::kUnaskedAck);
}

// --- the end that is asked ---

bool StreamTx::only_ack_due() const noexcept {
  const Stream& s = stream();
  if (!s.acks_.due_to_receive()) return false;
  if (queue_.under_way() != nullptr || out_.from != Outbound::From::kNobody) return false;
  if (s.ending_.terminate_due() || s.refusal_.has_news() || s.may_ask()) return false;
  return s.machine_.state() == StreamState::kRts && !s.requests_.wait() &&
         work_.next == s.sq_.tail();
}

// --- messages of either ---

// REQUIRES: one of them is due.
void StreamTx::start_ack() {
  Stream& s = stream();
  if (s.refusal_.tell_refusal()) {
    start_ack_segment(AckKind::kNotReady, s.rx_msn_[kQueueSend].value);
  } else if (s.refusal_.tell_resume()) {
    start_ack_segment(AckKind::kResume, s.refusal_.msn().value);
  } else if (s.acks_.take_ack()) {
    start_ack_segment(AckKind::kPlaced, s.acks_.received());
  } else {
    s.acks_.take_question();
    start_empty_write(0);
    out_.bits = kAskBit;
  }
}

void StreamTx::start_ack_segment(AckKind kind, std::uint32_t value) {
  start_empty_write(value);
  out_.stag = Stag{static_cast<std::uint32_t>(kind)};
  out_.bits = kAckBits;
}

}  // namespace weft::proto
