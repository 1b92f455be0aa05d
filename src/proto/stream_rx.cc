// Inbound segments: header checks in the order of docs/wire-support.md, placement, delivery.
#include <cassert>
#include <cstring>
#include <utility>

#include "proto/stream.h"

namespace weft::proto {

bool Stream::on_ulpdu(MarkedOctets ulpdu) {
  const std::span<const std::uint8_t> front = ulpdu.front();
  const bool plain = front.size() == ulpdu.size();
  if (params_.acks && plain && front.size() == DdpTagged::kSize && is_ack(front[0], front[1])) {
    return take_ack(front);
  }
  if (params_.path && plain && take_path_message(front)) return true;
  if (refusing_ && drops(front)) return true;
  if (params_.unreliable && plain && loses(front)) return true;
  if (!open_segment(front, static_cast<std::uint32_t>(ulpdu.size()))) return false;
  ulpdu.drop(seg_.header_len);
  if (weft::info(seg_.op).must_be_last) return on_body(ulpdu);
  return place(ulpdu) && close_segment();
}

bool Stream::on_direct(MarkedOctets bytes, std::uint32_t ulpdu_len) {
  // Most likely it is to be dropped; or all of it has to be there to say so.
  if (refusing_ || params_.unreliable) {
    reader_.keep();
    return true;
  }
  if (!open_segment(bytes.front(), ulpdu_len)) return false;
  if (by_method()) {
    // There is no address for a transport to put the rest at.
    seen_before_ = true;
    segment_open_ = false;
    reader_.keep();
    return true;
  }
  // An operation with a fixed body never gets here: its length was refused.
  bytes.drop(seg_.header_len);
  if (!place(bytes)) return false;
  reader_.place_directly();
  return true;
}

// The payload of the open segment goes, at least in part, to a method.
bool Stream::by_method() {
  if (seg_.op == Opcode::kWrite) {
    return rx_pin_.entry() != nullptr && has(rx_pin_.entry()->spec.access, kByMethod);
  }
  const Cursor& cursor = open_cursor();
  for (std::uint32_t i = 0; i < cursor.left; ++i) {
    const MemoryEntry* entry = table_.find(Stag{cursor.sge[i].lkey});
    if (entry != nullptr && has(entry->spec.access, kByMethod)) return true;
  }
  return false;
}

namespace {

Violation control_violation(Error error, bool tagged) {
  switch (error) {
    case Error::kBadVersion:
      return tagged ? Violation::kDdpVersionTagged : Violation::kDdpVersionUntagged;
    case Error::kBadRdmapVersion: return Violation::kRdmapVersion;
    case Error::kUnknownOpcode: return Violation::kUnknownOpcode;
    default: return Violation::kTagMismatch;
  }
}

}  // namespace

// Decodes the header and makes every check that does not need the payload.
bool Stream::open_segment(std::span<const std::uint8_t> bytes, std::uint32_t ulpdu_len) {
  const bool again = std::exchange(seen_before_, false);
  if (!again) counters_.rx_fpdus.add(1);
  seg_.ulpdu_len = ulpdu_len;
  seg_.first = !first_fpdu_seen_;
  seg_.header_len = 0;
  if (ulpdu_len < 2) return fail_segment(Violation::kShortUlpdu);
  const bool tagged = peek_tagged(bytes[0]);
  const std::size_t header_len = ddp_header_size(bytes[0]);
  if (bytes.size() >= header_len) {
    seg_.header_len = static_cast<std::uint32_t>(header_len);
    std::memcpy(seg_.header, bytes.data(), header_len);
  }
  const Result<Opcode> op = check_segment_control(bytes[0], bytes[1]);
  if (!op) return fail_segment(control_violation(op.error(), tagged));
  seg_.op = *op;
  seg_.bits = is_wired() ? bytes[1] & (kAskBit | kImmediateBit) : std::uint8_t{0};
  const OpcodeInfo& rule = weft::info(*op);
  if (ulpdu_len < rule.ulpdu_min) return fail_segment(Violation::kShortUlpdu);
  seg_.last = peek_last(bytes[0]);
  if (ulpdu_len > rule.ulpdu_max || (rule.must_be_last && !seg_.last)) {
    return fail_segment(Violation::kBadLength);
  }
  seg_.payload_len = ulpdu_len - seg_.header_len;
  seg_.placed = 0;
  if (tagged) {
    const DdpTagged h = load_ddp_tagged(bytes.data());
    seg_.stag = h.stag;
    seg_.to = h.to;
  } else {
    const DdpUntagged h = load_ddp_untagged(bytes.data());
    seg_.stag = Stag{h.rsvd_ulp};
    seg_.queue = h.queue;
    seg_.msn = h.msn;
    seg_.mo = h.mo;
  }
  if (machine_.state() != StreamState::kRts) return refuse_while_closing();
  if (!seg_.last && ulpdu_len < kMinMulpdu && !again) counters_.small_segments.add(1);
  bool ok = false;
  if (!tagged) {
    ok = check_untagged();
  } else if (*op == Opcode::kWrite) {
    ok = check_write();
  } else {
    ok = check_read_response();
  }
  if (!ok) return false;
  if (!first_fpdu_seen_) note_first_fpdu();
  segment_open_ = true;
  return true;
}

// The rest of an open message is dropped; a new message ends the connection.
bool Stream::refuse_while_closing() {
  const bool continues =
      seg_.op == Opcode::kTerminate || (seg_.op == Opcode::kWrite && write_open_) ||
      seg_.op == Opcode::kReadResponse || (!peek_tagged(seg_.header[0]) && seg_.mo != 0);
  if (!continues) violate(Violation::kNone);  // all that is wrong with it is when it comes
  discarding_ = true;
  return false;
}

void Stream::note_first_fpdu() {
  first_fpdu_seen_ = true;
  may_send_ = true;
  deadline_ = Instant::never();
  host_.first_fpdu();
}

// As the table resolves it, and what this stream lets its peer do: rights come before bounds.
MemoryFault Stream::resolve_remote(Stag stag, std::uint64_t to, std::uint64_t length, Access need,
                                   Pin& pin, std::uint8_t*& at) {
  const MemoryFault fault = table_.resolve(stag, to, length, need, params_.id, pin, at, &rx_hint_);
  if (has(remote_access_.load(std::memory_order_relaxed), need)) return fault;
  const bool earlier = fault == MemoryFault::kInvalidStag || fault == MemoryFault::kNotOfStream;
  return earlier ? fault : MemoryFault::kNoRight;
}

bool Stream::place(MarkedOctets payload) {
  if (payload.empty()) return true;
  const std::size_t bytes = payload.size();
  const Stored stored = seg_.op == Opcode::kWrite ? store(*rx_pin_.entry(), seg_.to + seg_.placed,
                                                          write_at_, payload, bytes)
                                                  : scatter(open_cursor(), payload);
  seg_.placed += static_cast<std::uint32_t>(bytes - payload.size());
  if (stored == Stored::kAll) [[likely]]
    return true;
  if (stored == Stored::kRefused) return target_refused();
  target_waits_ = true;
  return false;
}

// Memory that the rest of the open segment's payload goes to. 0 slices: it has been revoked, and
// the stream is failed.
std::size_t Stream::target_slices(Slice* out, std::size_t room, std::size_t bytes) {
  std::size_t count = 0;
  if (seg_.op == Opcode::kWrite) {
    std::uint8_t* at = nullptr;
    const MemoryFault fault =
        resolve_remote(seg_.stag, seg_.to + seg_.placed, bytes, Access::kRemoteWrite, rx_pin_, at);
    if (fault == MemoryFault::kNone) out[count++] = {at, bytes};
  } else {
    count = cursor_slices(open_cursor(), out, room, bytes);
  }
  if (count == 0) (void)target_failed();
  return count;
}

void Stream::note_placed(std::uint32_t bytes) {
  if (seg_.op != Opcode::kWrite) advance(open_cursor(), bytes);
}

// The target itself did not want the octets.
bool Stream::target_refused() {
  return seg_.op == Opcode::kWrite ? fail_segment(Violation::kWriteBounds) : target_failed();
}

// The memory is gone, or of another domain now.
bool Stream::target_failed() {
  if (seg_.op == Opcode::kWrite) return fail_segment(Violation::kWriteStag);
  if (seg_.op == Opcode::kReadResponse) return fail_segment(Violation::kReadSinkGone);
  complete_receive(WcStatus::kLocalProtection,
                   vendor_error(info(Violation::kReceiveProtection).code));
  return fail_segment(Violation::kReceiveProtection);
}

bool Stream::close_segment() {
  segment_open_ = false;
  if (seg_.payload_len == 0 && is_mark()) {
    know_peer();
    return true;
  }
  carries_messages_ = carries_messages_ || seg_.payload_len != 0;
  if (seg_.last) counters_.rx_messages[static_cast<std::size_t>(seg_.op)].add(1);
  if (seg_.op == Opcode::kReadResponse) return finish_read_response();
  const bool done = seg_.op == Opcode::kWrite ? finish_write() : finish_send();
  if (done && seg_.last && params_.acks) note_asked();
  return done;
}

bool Stream::fail_segment(Violation v) {
  violate(v);
  return false;
}

// What has been stored is no longer in `data`, and the cursor is behind it. kRefused: also when the
// memory is gone.
Stored Stream::scatter(Cursor& cursor, MarkedOctets& data) {
  while (!data.empty()) {
    assert(cursor.left != 0);
    const std::size_t before = data.size();
    const std::size_t here = cursor.sge->length - cursor.offset;
    const std::size_t piece = here < before ? here : before;
    Stored stored = Stored::kAll;
    if (piece != 0) {
      const std::uint64_t to = cursor.sge->addr + cursor.offset;
      std::uint8_t* at = nullptr;
      const MemoryFault fault =
          table_.resolve(Stag{cursor.sge->lkey}, to, piece, Access::kLocalWrite, params_.id,
                         rx_pin_, at, &rx_hint_);
      if (fault != MemoryFault::kNone) return Stored::kRefused;
      stored = store(*rx_pin_.entry(), to, at, data, piece);
    }
    advance(cursor, before - data.size());
    if (stored != Stored::kAll) return stored;
  }
  return Stored::kAll;
}

// Only one entry can be pinned at a time here, so a list over several regions is read piece by
// piece: a short read, then the next plan.
std::size_t Stream::cursor_slices(Cursor cursor, Slice* out, std::size_t room, std::size_t bytes) {
  std::size_t count = 0;
  while (bytes != 0 && count < room && cursor.left != 0) {
    const std::size_t here = cursor.sge->length - cursor.offset;
    const std::size_t piece = here < bytes ? here : bytes;
    if (piece != 0) {
      const Stag stag{cursor.sge->lkey};
      if (count != 0 && !rx_pin_.holds(stag)) break;
      std::uint8_t* at = nullptr;
      const MemoryFault fault =
          table_.resolve(stag, cursor.sge->addr + cursor.offset, piece, Access::kLocalWrite,
                         params_.id, rx_pin_, at, &rx_hint_);
      if (fault != MemoryFault::kNone) return 0;
      out[count++] = {at, piece};
      bytes -= piece;
    }
    advance(cursor, piece);
  }
  return count;
}

void Stream::advance(Cursor& cursor, std::size_t n) {
  cursor.offset += static_cast<std::uint32_t>(n);
  while (cursor.left != 0 && cursor.offset >= cursor.sge->length) {
    cursor.offset -= cursor.sge->length;
    ++cursor.sge;
    --cursor.left;
  }
}

}  // namespace weft::proto
