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

bool StreamRx::check_write() {
  Stream& s = stream();
  // RFC 5041 5.2: the STag and TO of a segment without payload are not checked.
  if (seg_.payload_len == 0) {
    if (s.params_.peer_memory.to_hear)
      s.host_.peer_access({Access::kRemoteWrite, !write_.open, seg_.last, nullptr, 0});
    return true;
  }
  if (!s.serves(Access::kRemoteWrite)) {
    (void)s.tell(MemoryFault::kNoRight, seg_.stag, seg_.to, seg_.payload_len, Access::kRemoteWrite,
                 true);
    return fail_write(Violation::kNotServed);
  }
  const MemoryFault fault =
      s.resolve_remote(seg_.stag, seg_.to, seg_.payload_len, Access::kRemoteWrite, pin_, write_at_);
  if (fault != MemoryFault::kNone) {
    (void)s.tell(fault, seg_.stag, seg_.to, seg_.payload_len, Access::kRemoteWrite, true);
    return fail_write(write_violation(fault));
  }
  if (write_.open) {
    if (seg_.stag != write_.stag) return fail_segment(Violation::kWriteOtherStag);
    if (seg_.to != write_.next_to) return fail_segment(Violation::kWriteOtherTo);
  }
  if (s.params_.peer_memory.to_hear) {
    s.host_.peer_access(
        {Access::kRemoteWrite, !write_.open, seg_.last, write_at_, seg_.payload_len});
  }
  return true;
}

// As InfiniBand has it, the receive of a Write with immediate ends with "local access error" where
// the Write may not go. The segments of such a Write say what follows them (kImmediateBit).
bool StreamRx::fail_write(Violation v) {
  if (stream().params_.acks && (seg_.bits & kImmediateBit) != 0 && !receive_.open &&
      open_receive()) {
    complete_receive(WcStatus::kLocalAccess, vendor_error(consequence_of(v).code));
  }
  return fail_segment(v);
}

// Weft peers recognize each other by a mark in a field that the RFCs leave open: the sink TO of the
// zero-length Read that is the RTR, answered by a zero-length Write to the same TO (RFC 5041 5.2
// and RFC 5040 5.2: receivers check neither STag nor TO of these). A recognized peer gets FPDUs of
// any size; every other peer gets one for each TCP segment.
bool StreamRx::is_mark() const noexcept {
  return stream().params_.initiator && seg_.op == Opcode::kWrite && seg_.to == kPeerMark &&
         seg_.last && seg_.payload_len == 0 && !write_.open;
}

void StreamRx::know_peer() {
  Stream& s = stream();
  if (s.params_.max_ulpdu_known == 0) return;
  s.max_ulpdu_.store(s.params_.max_ulpdu_known, std::memory_order_relaxed);
  s.greeting_.mark_due = !s.params_.initiator;
}

bool StreamRx::finish_write() {
  if (seg_.payload_len != 0) {
    write_.stag = seg_.stag;
    write_.next_to = seg_.to + seg_.payload_len;
    write_.bytes += seg_.payload_len;
  } else if (!write_.open && !seg_.last) {
    // An empty first segment: what follows must continue from where it says.
    write_.stag = seg_.stag;
    write_.next_to = seg_.to;
  }
  write_.open = !seg_.last;
  if (seg_.last) {
    write_.last_bytes = write_.bytes;
    write_.bytes = 0;
  }
  return true;
}

bool StreamRx::check_read_response() {
  Stream& s = stream();
  const bool outstanding = !s.reads_.empty() && !s.reads_.oldest().is_atomic;
  if (seg_.payload_len != 0 && !(outstanding && seg_.stag == s.reads_.oldest().sink_stag)) {
    // Not the sink we named: what is wrong with it as a tagged buffer comes first.
    Pin pin;
    std::uint8_t* at = nullptr;
    const MemoryFault fault = s.table_.resolve(seg_.stag, seg_.to, seg_.payload_len, Access::kNone,
                                               s.params_.id, pin, at);
    if (fault != MemoryFault::kNone) return fail_segment(write_violation(fault));
  }
  if (!outstanding) return fail_segment(Violation::kUnaskedReadResponse);
  const Outstanding& o = s.reads_.oldest();
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

bool StreamRx::finish_read_response() {
  Outstanding& o = stream().reads_.oldest();
  o.received += seg_.payload_len;
  if (seg_.last) answered(o);
  return true;
}

// The response to the oldest Read or atomic is complete.
void StreamRx::answered(Outstanding& o) {
  Stream& s = stream();
  if (!o.is_rtr) {
    s.sq_.at(o.wqe).answered = true;
    s.acks_.reach(s.sq_.at(o.wqe).ask);
  }
  s.reads_.drop_oldest();
  s.retire_work();
}

}  // namespace weft::proto
