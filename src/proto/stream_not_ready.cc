// A Send for which the peer has no receive, between wired queue pairs (StreamParams::acks). It must
// not stop what is behind it: that may be the answer without which the program posts no receive.
// So, as between adapters, it is refused and comes again.
//
// Who receives it says so, and drops all requests from it on until the sender resumes; answers and
// Acks go on. The sender goes back to that request, waits as long as the peer has asked it to, says
// that it resumes, and sends the request and all behind it once more. What is dropped has no
// effect, so each request is carried out once.
#include <utility>

#include "proto/stream.h"

namespace weft::proto {

namespace {

constexpr std::uint8_t kForEver = 7;

bool is_request(Opcode op) {
  switch (op) {
    case Opcode::kReadResponse:
    case Opcode::kAtomicResponse:
    case Opcode::kTerminate: return false;
    default: return true;
  }
}

}  // namespace

// --- the end that has no receive ---

// The Send that is held has waited for its receive in vain.
void Stream::refuse_send() {
  refusing_ = refusal_pending_ = true;
  go_on_with(std::move(held_));
}

// Whether this ULPDU is of a request that will come again.
bool Stream::drops(std::span<const std::uint8_t> ulpdu) {
  if (ulpdu.size() < 2) return false;
  const Result<Opcode> op = check_segment_control(ulpdu[0], ulpdu[1]);
  if (!op || !is_request(*op)) return false;
  if (!std::exchange(seen_before_, false)) counters_.rx_fpdus.add(1);
  return true;
}

bool Stream::take_resume(Msn msn) {
  if (!refusing_ || refusal_pending_ || msn != rx_msn_[kQueueSend]) return refuse_ack();
  refusing_ = false;
  return true;
}

// --- the end whose Send is refused ---

// All before it has been placed.
bool Stream::take_not_ready(Msn msn) {
  const std::optional<std::uint32_t> index = find_send(msn);
  if (backed_off_ || !index) return refuse_ack();
  const std::uint32_t asked = *index == sq_next_ ? asks_sent_ : sq_.at(*index).ask - 1;
  if (static_cast<std::int32_t>(asked - asks_acked_) < 0) return refuse_ack();  // it has been taken
  acks_reach(asked);
  asks_sent_ = asked;
  rewind(*index, msn);
  retire_work();
  return count_refusal(*index, msn);
}

// The next request to start is this one again.
void Stream::rewind(std::uint32_t index, Msn msn) {
  // A question that has not gone out is asked again below, where it is still due.
  const bool asks = out_.from == Outbound::From::kControl && out_.bits == kAskBit;
  if (out_.from == Outbound::From::kSendQueue || asks) out_ = {};
  second_half_ = false;
  tx_msn_[kQueueSend] = msn;
  while (orq_count_ != 0) {
    const Outstanding& newest = orq_[(orq_head_ + orq_count_ - 1) & orq_mask_];
    if (newest.is_rtr || static_cast<std::int32_t>(newest.wqe - index) < 0) break;
    tx_msn_[kQueueReadRequest] = newest.msn;
    --orq_count_;
  }
  unasked_ = 0;
  for (std::uint32_t i = sq_.head(); i != index; ++i) unasked_ += sq_.at(i).ask == asks_sent_ + 1;
  ask_pending_ = unasked_ != 0;
  for (std::uint32_t i = index; i != sq_next_; ++i) sq_.at(i).answered = false;
  sq_next_ = index;
}

// False: that was once too often, and the stream has ended. The peer is not to blame for it, so no
// Terminate tells it.
bool Stream::count_refusal(std::uint32_t index, Msn msn) {
  if (msn != refused_msn_) refusals_ = 0;
  refused_msn_ = msn;
  if (refusals_allowed_ != kForEver && ++refusals_ > refusals_allowed_) {
    (void)machine_.on(StreamEvent::kLost);
    wants_reset_ = true;
    lose(StreamEnd::kLost, Offender{&sq_.at(index), WcStatus::kRnrRetryExceeded});
    return false;
  }
  backed_off_ = true;
  resume_at_ = host_.now() + params_.not_ready_pause;
  return true;
}

}  // namespace weft::proto
