// Inbound RDMA Writes and Read Responses.
#include "proto/stream.h"

namespace weft::proto {

namespace {

Violation write_violation(MemoryFault fault) {
  switch (fault) {
    case MemoryFault::kNone: return Violation::kNone;
    case MemoryFault::kInvalidStag: return Violation::kWriteStag;
    case MemoryFault::kNotOfStream: return Violation::kWriteStream;
    case MemoryFault::kNoRight: return Violation::kWriteRight;
    case MemoryFault::kWrap: return Violation::kWriteWrap;
    case MemoryFault::kBounds: return Violation::kWriteBounds;
  }
  return Violation::kWriteStag;
}

}  // namespace

bool Stream::check_write() {
  // RFC 5041 5.2: the STag and TO of a segment without payload are not checked.
  if (seg_.payload_len == 0) return true;
  const MemoryFault fault = resolve_remote(seg_.stag, seg_.to, seg_.payload_len,
                                           Access::kRemoteWrite, rx_pin_, write_at_);
  if (fault != MemoryFault::kNone) return fail_segment(write_violation(fault));
  if (write_open_) {
    if (seg_.stag != write_stag_) return fail_segment(Violation::kWriteOtherStag);
    if (seg_.to != write_next_to_) return fail_segment(Violation::kWriteOtherTo);
  }
  return true;
}

// Weft peers recognize each other by a mark in a field that the RFCs leave open: the sink TO of the
// zero-length Read that is the RTR, answered by a zero-length Write to the same TO (RFC 5041 5.2
// and RFC 5040 5.2: receivers check neither STag nor TO of these). A recognized peer gets FPDUs of
// any size; every other peer gets one for each TCP segment.
bool Stream::is_mark() const noexcept {
  return params_.initiator && seg_.op == Opcode::kWrite && seg_.to == kPeerMark && seg_.last &&
         seg_.payload_len == 0 && !write_open_;
}

void Stream::know_peer() {
  if (params_.max_ulpdu_known == 0) return;
  max_ulpdu_.store(params_.max_ulpdu_known, std::memory_order_relaxed);
  mark_pending_ = !params_.initiator;
}

bool Stream::finish_write() {
  if (seg_.payload_len != 0) {
    write_stag_ = seg_.stag;
    write_next_to_ = seg_.to + seg_.payload_len;
    write_bytes_ += seg_.payload_len;
  } else if (!write_open_ && !seg_.last) {
    // An empty first segment: what follows must continue from where it says.
    write_stag_ = seg_.stag;
    write_next_to_ = seg_.to;
  }
  write_open_ = !seg_.last;
  if (seg_.last) {
    last_write_bytes_ = write_bytes_;
    write_bytes_ = 0;
  }
  return true;
}

bool Stream::check_read_response() {
  const bool outstanding = orq_count_ != 0 && !oldest_read().is_atomic;
  if (seg_.payload_len != 0 && !(outstanding && seg_.stag == oldest_read().sink_stag)) {
    // Not the sink we named: what is wrong with it as a tagged buffer comes first.
    Pin pin;
    std::uint8_t* at = nullptr;
    const MemoryFault fault =
        table_.resolve(seg_.stag, seg_.to, seg_.payload_len, Access::kNone, params_.id, pin, at);
    if (fault != MemoryFault::kNone) return fail_segment(write_violation(fault));
  }
  if (!outstanding) return fail_segment(Violation::kUnaskedReadResponse);
  const Outstanding& o = oldest_read();
  if (seg_.payload_len != 0) {
    if (seg_.stag != o.sink_stag) return fail_segment(Violation::kReadResponseStag);
    if (seg_.to != o.sink_to + o.received) return fail_segment(Violation::kReadResponseTo);
  }
  const std::uint64_t total = std::uint64_t{o.received} + seg_.payload_len;
  if (total > o.length || (seg_.last && total != o.length)) {
    return fail_segment(Violation::kReadResponseLength);
  }
  return true;
}

bool Stream::finish_read_response() {
  Outstanding& o = oldest_read();
  o.received += seg_.payload_len;
  if (seg_.last) answered(o);
  return true;
}

// The response to the oldest Read or atomic is complete.
void Stream::answered(Outstanding& o) {
  if (!o.is_rtr) {
    sq_.at(o.wqe).answered = true;
    acks_reach(sq_.at(o.wqe).ask);
  }
  ++orq_head_;
  --orq_count_;
  retire_work();
}

}  // namespace weft::proto
