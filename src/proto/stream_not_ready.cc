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

// Whether this ULPDU is of a request that will come again.
bool StreamRx::drops(std::span<const std::uint8_t> ulpdu) {
  if (ulpdu.size() < 2) return false;
  const Result<Opcode> op = check_segment_control(ulpdu[0], ulpdu[1]);
  if (!op || !is_request(*op)) return false;
  if (!std::exchange(hold_.seen_before, false)) stream().counters_.rx_fpdus.add(1);
  return true;
}

// --- the end whose Send is refused ---

// All before it has been placed.
bool StreamRx::take_not_ready(Msn msn) {
  Stream& s = stream();
  const std::optional<std::uint32_t> index = s.find_send(msn);
  if (s.refusal_.backed_off() || !index) return refuse_ack();
  const std::uint32_t asked =
      *index == s.work_.next ? s.acks_.asks_sent() : s.sq_.at(*index).ask - 1;
  if (!s.acks_.go_back(asked)) return refuse_ack();  // it has been taken
  s.rewind(*index, msn);
  s.retire_work();
  return s.count_refusal(*index, msn);
}

// The next request to start is this one again.
void StreamTx::rewind(std::uint32_t index, Msn msn) {
  Stream& s = stream();
  // A question that has not gone out is asked again below, where it is still due.
  const bool asks = out_.from == Outbound::From::kControl && out_.bits == kAskBit;
  if (out_.from == Outbound::From::kSendQueue || asks) out_ = {};
  work_.second_half = false;
  tx_msn_[kQueueSend] = msn;
  while (!s.reads_.empty()) {
    const Outstanding& newest = s.reads_.at(s.reads_.count() - 1);
    if (newest.is_rtr || static_cast<std::int32_t>(newest.wqe - index) < 0) break;
    tx_msn_[kQueueReadRequest] = newest.msn;
    s.reads_.drop_newest();
  }
  s.acks_.count_unasked(s.sq_, s.sq_.head(), index);
  for (std::uint32_t i = index; i != work_.next; ++i) s.sq_.at(i).answered = false;
  work_.next = index;
}

// False: that was once too often, and the stream has ended. The peer is not to blame for it, so no
// Terminate tells it.
bool StreamShutdown::count_refusal(std::uint32_t index, Msn msn) {
  Stream& s = stream();
  if (!s.refusal_.count(msn)) {
    (void)s.machine_.on(StreamEvent::kLost);
    s.ending_.demand_reset();
    lose(StreamEnd::kLost, Offender{&s.sq_.at(index), WcStatus::kRnrRetryExceeded});
    return false;
  }
  s.refusal_.back_off(s.host_.now() + s.params_.not_ready_pause);
  return true;
}

}  // namespace weft::proto
