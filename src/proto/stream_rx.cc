// Inbound segments: header checks in the order of docs/wire-support.md, placement, delivery.
#include <cassert>
#include <cstring>
#include <utility>

#include "proto/stream.h"

namespace weft::proto {

bool StreamRx::on_ulpdu(MarkedOctets ulpdu) {
  Stream& s = stream();
  const std::span<const std::uint8_t> front = ulpdu.front();
  const bool plain = front.size() == ulpdu.size();
  if (s.params_.acks && plain && front.size() == DdpTagged::kSize && is_ack(front[0], front[1])) {
    return take_ack(front);
  }
  if (s.params_.path && plain && take_path_message(front)) return true;
  if (s.refusal_.drops() && drops(front)) return true;
  if (s.params_.unreliable && plain && loss_.loses(s, front)) return true;
  if (!open_segment(front, static_cast<std::uint32_t>(ulpdu.size()))) return false;
  ulpdu.drop(seg_.header_len);
  if (weft::info(seg_.op).must_be_last) return on_body(ulpdu);
  return place(ulpdu) && close_segment();
}

bool StreamRx::on_direct(MarkedOctets bytes, std::uint32_t ulpdu_len) {
  Stream& s = stream();
  // Most likely it is to be dropped; or all of it has to be there to say so.
  if (s.refusal_.drops() || s.params_.unreliable) {
    reader_.keep();
    return true;
  }
  if (!open_segment(bytes.front(), ulpdu_len)) return false;
  if (by_method()) {
    // There is no address for a transport to put the rest at.
    hold_.seen_before = true;
    seg_.open = false;
    reader_.keep();
    return true;
  }
  // An operation with a fixed body never gets here: its length was refused.
  bytes.drop(seg_.header_len);
  if (!place(bytes)) return false;
  reader_.place_directly();
  return true;
}

// The payload of the open segment goes, at least in part, to a method, or not in its order.
bool StreamRx::by_method() {
  if (seg_.op == Opcode::kWrite) {
    if (stream().params_.peer_memory.last_octets_first) return true;
    return pin_.entry() != nullptr && has(pin_.entry()->spec.access, kByMethod);
  }
  const Cursor& cursor = open_cursor();
  for (std::uint32_t i = 0; i < cursor.left; ++i) {
    const MemoryEntry* entry = stream().table_.find(Stag{cursor.sge[i].lkey});
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
bool StreamRx::open_segment(std::span<const std::uint8_t> bytes, std::uint32_t ulpdu_len) {
  Stream& s = stream();
  const bool again = std::exchange(hold_.seen_before, false);
  if (!again) s.counters_.rx_fpdus.add(1);
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
  seg_.bits = s.is_wired() ? bytes[1] & (kAskBit | kImmediateBit) : std::uint8_t{0};
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
  if (s.machine_.state() != StreamState::kRts) return refuse_while_closing();
  if (!seg_.last && ulpdu_len < kMinMulpdu && !again) s.counters_.small_segments.add(1);
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
  seg_.open = true;
  if (s.params_.steps) tell_message(Step::What::kArrives);
  return true;
}

// A message begins, or is placed; what it means for the host comes next. Of a short one only the
// latter is told, at once.
void StreamRx::tell_message(Step::What what) {
  constexpr std::uint32_t kShort = 4U << 10U;
  const bool begins = seg_.op == Opcode::kWrite ? !write_.open : !peek_tagged(seg_.header[0]);
  const bool is_short = seg_.last && seg_.payload_len < kShort;
  if (what == Step::What::kArrives && (!begins || seg_.mo != 0 || is_short)) return;
  Step step{.what = what, .offset = reader_.offset()};
  switch (seg_.op) {
    case Opcode::kWrite:
      step.op = SendOp::kWrite;
      step.length = write_.bytes + seg_.payload_len;
      break;
    case Opcode::kReadRequest: step.op = SendOp::kRead; break;
    case Opcode::kAtomicRequest: step.op = SendOp::kFetchAdd; break;
    case Opcode::kImmediate:
    case Opcode::kImmediateSolicited: step.op = SendOp::kImmediate; break;
    case Opcode::kSend:
    case Opcode::kSendSolicited:
    case Opcode::kSendInvalidate:
    case Opcode::kSendSolicitedInvalidate:
      step.op = SendOp::kSend;
      step.length = receive_.bytes + seg_.payload_len;
      break;
    default: return;
  }
  stream().host_.step(step);
}

// The rest of an open message is dropped; a new message ends the connection.
bool StreamRx::refuse_while_closing() {
  const bool continues =
      seg_.op == Opcode::kTerminate || (seg_.op == Opcode::kWrite && write_.open) ||
      seg_.op == Opcode::kReadResponse || (!peek_tagged(seg_.header[0]) && seg_.mo != 0);
  if (!continues) stream().violate(Violation::kNone);  // all that is wrong with it is when it comes
  discarding_ = true;
  return false;
}

void StreamRx::note_first_fpdu() {
  Stream& s = stream();
  first_fpdu_seen_ = true;
  s.greeting_.may_send = true;
  s.do_not_expire();
  s.host_.first_fpdu();
}

bool StreamRx::place(MarkedOctets payload) {
  if (payload.empty()) return true;
  const std::size_t bytes = payload.size();
  Stored stored;
  if (seg_.op != Opcode::kWrite) {
    stored = scatter_to_sges(open_cursor(), payload);
  } else if (!profile::kSmall && stream().params_.peer_memory.last_octets_first) [[unlikely]] {
    stored = hold_.place_last_first(stream().host_, *pin_.entry(), seg_.to + seg_.placed, write_at_,
                                    payload);
  } else {
    stored = store(*pin_.entry(), seg_.to + seg_.placed, write_at_, payload, bytes);
  }
  seg_.placed += static_cast<std::uint32_t>(bytes - payload.size());
  if (stored == Stored::kAll) [[likely]]
    return true;
  if (stored == Stored::kRefused) return target_refused();
  hold_.why = Waits::kForTarget;
  return false;
}

// Memory that the rest of the open segment's payload goes to. 0 slices: it has been revoked, and
// the stream is failed.
std::size_t StreamRx::target_slices(Slice* out, std::size_t room, std::size_t bytes) {
  std::size_t count = 0;
  if (seg_.op == Opcode::kWrite) {
    std::uint8_t* at = nullptr;
    const MemoryFault fault = stream().resolve_remote(seg_.stag, seg_.to + seg_.placed, bytes,
                                                      Access::kRemoteWrite, pin_, at);
    if (fault == MemoryFault::kNone) out[count++] = {at, bytes};
  } else {
    count = cursor_slices(open_cursor(), out, room, bytes);
  }
  if (count == 0) (void)target_failed();
  return count;
}

// The target itself did not want the octets.
bool StreamRx::target_refused() {
  return seg_.op == Opcode::kWrite ? fail_segment(Violation::kWriteBounds) : target_failed();
}

// The memory is gone, or of another domain now.
bool StreamRx::target_failed() {
  if (seg_.op == Opcode::kWrite) return fail_segment(Violation::kWriteStag);
  if (seg_.op == Opcode::kReadResponse) return fail_segment(Violation::kReadSinkGone);
  complete_receive(WcStatus::kLocalProtection,
                   vendor_error(consequence_of(Violation::kReceiveProtection).code));
  return fail_segment(Violation::kReceiveProtection);
}

bool StreamRx::close_segment() {
  Stream& s = stream();
  seg_.open = false;
  if (seg_.payload_len == 0 && is_mark()) {
    know_peer();
    return true;
  }
  s.path_.note_messages(seg_.payload_len != 0);
  if (seg_.last) s.counters_.rx_messages[static_cast<std::size_t>(seg_.op)].add(1);
  if (s.params_.steps && seg_.last) tell_message(Step::What::kPlaced);
  if (seg_.op == Opcode::kReadResponse) return finish_read_response();
  const bool done = seg_.op == Opcode::kWrite ? finish_write() : finish_send();
  if (done && seg_.last && s.params_.acks) s.acks_.delivered(seg_.bits, seg_.op);
  return done;
}

bool StreamRx::fail_segment(Violation v) {
  stream().violate(v);
  return false;
}

// Octets that have been stored are no longer in `data`, and the cursor is behind them. kRefused:
// also when the memory is gone.
Stored StreamRx::scatter_to_sges(Cursor& cursor, MarkedOctets& data) {
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
          stream().table_.resolve(Stag{cursor.sge->lkey}, to, piece, Access::kLocalWrite,
                                  sink_owner(), pin_, at, &rx_hint_);
      if (fault != MemoryFault::kNone) {
        (void)stream().tell(fault, Stag{cursor.sge->lkey}, to, piece, Access::kLocalWrite, false);
        return Stored::kRefused;
      }
      stored = store(*pin_.entry(), to, at, data, piece);
    }
    cursor.advance(before - data.size());
    if (stored != Stored::kAll) return stored;
  }
  return Stored::kAll;
}

// Only one entry can be pinned at a time here, so a list over several regions is read piece by
// piece: a short read, then the next plan.
std::size_t StreamRx::cursor_slices(Cursor cursor, Slice* out, std::size_t room,
                                    std::size_t bytes) {
  std::size_t count = 0;
  while (bytes != 0 && count < room && cursor.left != 0) {
    const std::size_t here = cursor.sge->length - cursor.offset;
    const std::size_t piece = here < bytes ? here : bytes;
    if (piece != 0) {
      const Stag stag{cursor.sge->lkey};
      if (count != 0 && !pin_.holds(stag)) break;
      std::uint8_t* at = nullptr;
      const std::uint64_t to = cursor.sge->addr + cursor.offset;
      const MemoryFault fault = stream().table_.resolve(stag, to, piece, Access::kLocalWrite,
                                                        sink_owner(), pin_, at, &rx_hint_);
      if (fault != MemoryFault::kNone) {
        (void)stream().tell(fault, stag, to, piece, Access::kLocalWrite, false);
        return 0;
      }
      out[count++] = {at, piece};
      bytes -= piece;
    }
    cursor.advance(piece);
  }
  return count;
}

}  // namespace weft::proto
