// Outbound: starting the work requests of the send queue.
#include <algorithm>
#include <cassert>

#include "proto/stream.h"

namespace weft::proto {

namespace {

bool is_local(const SendWqe& wqe) {
  return wqe.op == SendOp::kBindWindow || wqe.op == SendOp::kLocalInvalidate;
}

}  // namespace

bool Stream::work_stalled(const SendWqe& wqe) const {
  if (is_local(wqe) && tx_.in_flight()) return true;  // see run_local()
  if (waits_for_acks(wqe)) return true;
  if (wqe.awaits_response() && orq_count_ >= ord_) return true;
  return wqe.has_flag(SendFlags::kFence) && orq_count_ != 0;
}

// What was sent before may have to be sent again, from memory that this one takes away.
bool Stream::waits_for_acks(const SendWqe& wqe) const {
  return params_.acks && is_local(wqe) && sq_next_ != sq_.head();
}

void Stream::limit_outstanding(std::uint16_t most) noexcept {
  ord_ = std::min<std::uint32_t>(params_.ord, std::max<std::uint32_t>(most, 1));
}

// Carries out work requests until one is opened as a message (true), or none can be now. What is
// simple is built here, as long as the peer's requests do not wait for their turn.
bool Stream::start_work() {
  carries_messages_ = carries_messages_ || sq_next_ != sq_.tail();
  while (!paused_ && !backed_off_ && sq_next_ != sq_.tail()) {
    SendWqe& wqe = sq_.at(sq_next_);
    if (waits_for_acks(wqe)) ask_pending_ = ask_pending_ || unasked_ != 0;
    if (work_stalled(wqe)) return false;
    if (is_simple(wqe) && emit_simple(wqe)) {
      if (irq_build_ != irq_tail_) return true;
      if (writer_.batch()->source_count + limits::kSgesPerRequest > kBatchSources) return false;
      continue;
    }
    if (!is_local(wqe)) return start_wqe(wqe);
    if (!run_local(wqe)) return false;
  }
  return false;
}

// Binds and local invalidations act in their turn and put nothing on the wire. What was built
// before one must be gone, and released, first: it may name the memory.
bool Stream::run_local(SendWqe& wqe) {
  if (writer_.batch()->bytes != 0 || writer_.batch() != tx_.under_way() || tx_.in_flight()) {
    return false;
  }
  const WcStatus status = host_.local_operation(wqe);
  if (status != WcStatus::kSuccess) {
    fail_work(wqe, status, Violation::kLocalFault);
    return false;
  }
  wqe.end_offset = writer_.offset();
  number_local(wqe);
  ++sq_next_;
  return true;
}

// Whether a response may be placed where the request says.
bool Stream::sink_valid(const SendWqe& wqe) const {
  Pin pin;
  for (std::uint32_t i = 0; i < wqe.sge_count; ++i) {
    const Sge& sge = wqe.sges()[i];
    std::uint8_t* at = nullptr;
    if (sge.length == 0) continue;
    if (table_.resolve(Stag{sge.lkey}, sge.addr, sge.length, Access::kLocalWrite, params_.id, pin,
                       at) != MemoryFault::kNone) {
      return false;
    }
    // The old value of an atomic can't wait for a target.
    if (wqe.op != SendOp::kRead && has(pin.entry()->spec.access, kByMethod)) return false;
  }
  return true;
}

bool Stream::start_wqe(SendWqe& wqe) {
  if (wqe.awaits_response() && !sink_valid(wqe)) {
    fail_work(wqe, WcStatus::kLocalProtection, Violation::kSendProtection);
    return false;
  }
  if (wqe.awaits_response() && !has_outstanding_list()) {
    fail_work(wqe, WcStatus::kLocalQpOperation, Violation::kLocalFault);
    return false;
  }
  out_ = {};
  out_.from = Outbound::From::kSendQueue;
  out_.remaining = wqe.length;
  if (wqe.is_inline()) {
    out_.flat = wqe.inline_data();
  } else {
    out_.cursor = {wqe.sges(), wqe.sge_count, 0};
    advance(out_.cursor, 0);  // over empty SGEs
  }
  const bool solicited = wqe.has_flag(SendFlags::kSolicited);
  out_.bits = wqe.op == SendOp::kWriteImm ? std::uint8_t{0} : ask_bit(wqe);
  switch (wqe.op) {
    case SendOp::kSend:
      out_.op = solicited ? Opcode::kSendSolicited : Opcode::kSend;
      out_.msn = take_msn(kQueueSend);
      break;
    case SendOp::kSendInvalidate:
      out_.op = solicited ? Opcode::kSendSolicitedInvalidate : Opcode::kSendInvalidate;
      out_.stag = wqe.remote_stag;
      out_.msn = take_msn(kQueueSend);
      break;
    case SendOp::kWrite:
    case SendOp::kWriteImm:
      out_.op = Opcode::kWrite;
      out_.tagged = true;
      out_.stag = wqe.remote_stag;
      out_.to = wqe.remote_to;
      break;
    case SendOp::kRead: start_read(wqe); break;
    case SendOp::kFetchAdd:
    case SendOp::kCmpSwap: start_atomic(wqe); break;
    case SendOp::kImmediate:
      if (!is_wired()) {
        start_immediate(wqe);
        break;
      }
      out_.op = solicited ? Opcode::kSendSolicited : Opcode::kSend;
      out_.stag = Stag{static_cast<std::uint32_t>(wqe.imm_data >> 32U)};
      out_.bits |= kImmediateBit;
      out_.msn = take_msn(kQueueSend);
      break;
    case SendOp::kLocalInvalidate:
    case SendOp::kBindWindow: assert(false); break;
  }
  return true;
}

Stream::Outstanding& Stream::add_outstanding() {
  Outstanding& o = orq_[(orq_head_ + orq_count_) & orq_mask_];
  ++orq_count_;
  return o;
}

// One Read Request whatever the number of SGEs. The sink STag is ours to interpret (RFC 5040 5.2:
// the responder copies it), so a sink of several pieces goes by a name that no table knows, and the
// response is matched against the outstanding Read alone.
void Stream::start_read(SendWqe& wqe) {
  static constexpr Stag kScatteredSink{0x52656164};
  const bool single = out_.cursor.left == 1 && !wqe.is_inline();
  Outstanding& o = add_outstanding();
  o = {};
  o.wqe = sq_next_;
  o.msn = tx_msn_[kQueueReadRequest];
  o.length = wqe.length;
  o.cursor = out_.cursor;
  if (single) {
    o.sink_stag = Stag{o.cursor.sge->lkey};
    o.sink_to = o.cursor.sge->addr;
  } else if (wqe.length != 0) {
    o.sink_stag = kScatteredSink;
  }
  out_.cursor = {};
  start_read_request({.sink_stag = o.sink_stag,
                      .sink_to = o.sink_to,
                      .size = wqe.length,
                      .src_stag = wqe.remote_stag,
                      .src_to = wqe.remote_to});
}

void Stream::start_atomic(SendWqe& wqe) {
  Outstanding& o = add_outstanding();
  o = {};
  o.wqe = sq_next_;
  o.is_atomic = true;
  o.msn = tx_msn_[kQueueReadRequest];
  o.length = wqe.length;
  o.cursor = out_.cursor;
  o.id = next_request_id_++;
  out_.cursor = {};

  const AtomicArgs& args = atomic_args(wqe);
  AtomicRequest request;
  request.request_id = o.id;
  request.stag = wqe.remote_stag;
  request.to = wqe.remote_to;
  request.add_swap_mask = args.add_swap_mask;
  if (wqe.op == SendOp::kFetchAdd) {
    request.op = AtomicOp::kFetchAdd;
    request.add_swap = wqe.imm_data;
  } else {
    request.op = AtomicOp::kCompareSwap;
    request.add_swap = args.swap;
    request.compare = wqe.imm_data;
    request.compare_mask = args.compare_mask;
  }
  ByteWriter body(body_);
  encode(request, body);
  out_.op = Opcode::kAtomicRequest;
  out_.queue = kQueueReadRequest;
  out_.msn = take_msn(kQueueReadRequest);
  out_.flat = body_;
  out_.remaining = AtomicRequest::kSize;
}

// Alone, or as the second half of a Write with immediate.
void Stream::start_immediate(const SendWqe& wqe) {
  out_ = {};
  out_.from = Outbound::From::kSendQueue;
  out_.op = wqe.has_flag(SendFlags::kSolicited) ? Opcode::kImmediateSolicited : Opcode::kImmediate;
  out_.msn = take_msn(kQueueSend);
  out_.flat = body_;
  out_.remaining = ImmediateData::kSize;
  out_.bits = ask_bit(wqe);
  store_be64(body_, wqe.imm_data);
}

}  // namespace weft::proto
