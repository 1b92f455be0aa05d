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

bool StreamTx::work_stalled(const SendWqe& wqe) const {
  const Stream& s = stream();
  if (is_local(wqe) && queue_.in_flight()) return true;  // see run_local()
  if (waits_for_acks(wqe)) return true;
  if (wqe.awaits_response() && s.reads_.full()) return true;
  return wqe.has_flag(SendFlags::kFence) && !s.reads_.empty();
}

// Earlier requests may have to be sent again, from memory that this one takes away; or this one
// ends the queue pair.
bool StreamTx::waits_for_acks(const SendWqe& wqe) const {
  const Stream& s = stream();
  return s.params_.acks && (is_local(wqe) || work_.doomed) && work_.next != s.sq_.head();
}

// The request at work_.next, of which nothing is built, cannot be carried out. True: those before
// it are not acknowledged yet, so it waits, and is tried again then.
bool StreamTx::put_off_failure() {
  Stream& s = stream();
  if (!s.params_.acks || work_.next == s.sq_.head() || out_.built != 0 || work_.second_half)
    return false;
  if (out_.from == Outbound::From::kSendQueue && !out_.tagged && out_.queue == kQueueSend) {
    tx_msn_[kQueueSend] = Msn{tx_msn_[kQueueSend].value - 1};
  }
  out_ = {};
  work_.doomed = true;
  s.acks_.ask_for_rest();
  return true;
}

// Carries out work requests until one is opened as a message (true), or none can be now. What is
// small is built here, as long as the peer's requests do not wait for their turn.
bool StreamTx::start_work() {
  Stream& s = stream();
  s.path_.note_messages(work_.next != s.sq_.tail());
  SmallMessages small(s);
  while (!work_.paused && !s.refusal_.backed_off() && work_.next != s.sq_.tail()) {
    SendWqe& wqe = s.sq_.at(work_.next);
    if (waits_for_acks(wqe)) s.acks_.ask_for_rest();
    if (work_stalled(wqe)) return false;
    if constexpr (profile::kWired) work_.doomed = false;
    if (small.is_small(wqe) && small.emit(wqe)) {
      if (s.requests_.wait()) return true;
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
bool StreamTx::run_local(SendWqe& wqe) {
  Stream& s = stream();
  if (writer_.batch()->bytes != 0 || writer_.batch() != queue_.under_way() || queue_.in_flight()) {
    return false;
  }
  if (s.params_.steps) tell_request(Step::What::kBegun);
  const WcStatus status = s.host_.local_operation(wqe);
  if (status != WcStatus::kSuccess) {
    s.fail_work(wqe, status, Violation::kLocalFault);
    return false;
  }
  wqe.end_offset = writer_.offset();
  if (s.params_.steps) tell_request(Step::What::kBuilt);
  s.acks_.number_local(wqe);
  ++work_.next;
  return true;
}

// Whether a response may be placed where the request says.
bool StreamTx::sink_valid(const SendWqe& wqe) {
  Stream& s = stream();
  Pin pin;
  for (std::uint32_t i = 0; i < wqe.sge_count; ++i) {
    const Sge& sge = wqe.sges()[i];
    std::uint8_t* at = nullptr;
    if (sge.length == 0) continue;
    const MemoryFault fault = s.table_.resolve(Stag{sge.lkey}, sge.addr, sge.length,
                                               Access::kLocalWrite, s.params_.id, pin, at);
    if (fault != MemoryFault::kNone) {
      (void)s.tell(fault, Stag{sge.lkey}, sge.addr, sge.length, Access::kLocalWrite, false);
      return false;
    }
    // The old value of an atomic can't wait for a target.
    if (wqe.op != SendOp::kRead && has(pin.entry()->spec.access, kByMethod)) return false;
  }
  return true;
}

// Whether there is a place for the response: in the request's memory, and among the outstanding
// ones. False: the request has failed, or waits for Acks before it does.
bool StreamTx::has_place_for_response(SendWqe& wqe) {
  Stream& s = stream();
  if (!sink_valid(wqe)) {
    if (profile::kWired) {
      out_ = {};
      if (put_off_failure()) return false;
    }
    s.fail_work(wqe, WcStatus::kLocalProtection, Violation::kSendProtection);
    return false;
  }
  if (!s.reads_.allocate()) {
    s.fail_work(wqe, WcStatus::kLocalQpOperation, Violation::kLocalFault);
    return false;
  }
  return true;
}

// A step of the request at work_.next.
void StreamTx::tell_request(Step::What what) {
  stream().host_.step({.what = what, .request = work_.next, .offset = writer_.offset()});
}

bool StreamTx::start_wqe(SendWqe& wqe) {
  Stream& s = stream();
  if (wqe.awaits_response() && !has_place_for_response(wqe)) return false;
  if (s.params_.steps) tell_request(Step::What::kBegun);
  out_ = {};
  out_.from = Outbound::From::kSendQueue;
  out_.remaining = wqe.length;
  if (wqe.is_inline()) {
    out_.flat = wqe.inline_data();
  } else {
    out_.cursor = {wqe.sges(), wqe.sge_count, 0};
    out_.cursor.advance(0);  // over empty SGEs
  }
  if (wqe.op == SendOp::kWriteImm) {
    out_.bits = s.is_wired() ? kImmediateBit : std::uint8_t{0};
  } else {
    out_.bits = s.acks_.ask_bit(wqe, s.sq_.capacity());
  }
  switch (wqe.op) {
    case SendOp::kSend:
    case SendOp::kSendInvalidate: start_send(wqe); break;
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
    case SendOp::kImmediate: s.is_wired() ? start_send(wqe) : start_immediate(wqe); break;
    case SendOp::kLocalInvalidate:
    case SendOp::kBindWindow: assert(false); break;
  }
  return true;
}

// Between wired queue pairs immediate data goes with a Send, in the place of its STag.
void StreamTx::start_send(const SendWqe& wqe) {
  const bool solicited = wqe.has_flag(SendFlags::kSolicited);
  out_.op = solicited ? Opcode::kSendSolicited : Opcode::kSend;
  if (wqe.op == SendOp::kSendInvalidate) {
    out_.op = solicited ? Opcode::kSendSolicitedInvalidate : Opcode::kSendInvalidate;
    out_.stag = wqe.remote_stag;
  } else if (wqe.op == SendOp::kImmediate) {
    out_.stag = Stag{static_cast<std::uint32_t>(wqe.imm_data >> 32U)};
    out_.bits |= kImmediateBit;
  }
  out_.msn = take_msn(kQueueSend);
}

// One Read Request whatever the number of SGEs. The sink STag is ours to interpret (RFC 5040 5.2:
// the responder copies it), so a sink of several pieces goes by a name that no table knows, and the
// response is matched against the outstanding Read alone.
void StreamTx::start_read(SendWqe& wqe) {
  static constexpr Stag kScatteredSink{0x52656164};
  const bool single = out_.cursor.left == 1 && !wqe.is_inline();
  Outstanding& o = stream().reads_.add();
  o = {};
  o.wqe = work_.next;
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

void StreamTx::start_atomic(SendWqe& wqe) {
  Stream& s = stream();
  Outstanding& o = s.reads_.add();
  o = {};
  o.wqe = work_.next;
  o.is_atomic = true;
  o.msn = tx_msn_[kQueueReadRequest];
  o.length = wqe.length;
  o.cursor = out_.cursor;
  o.id = s.reads_.next_id();
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
void StreamTx::start_immediate(const SendWqe& wqe) {
  Stream& s = stream();
  out_ = {};
  out_.from = Outbound::From::kSendQueue;
  out_.op = wqe.has_flag(SendFlags::kSolicited) ? Opcode::kImmediateSolicited : Opcode::kImmediate;
  out_.msn = take_msn(kQueueSend);
  out_.flat = body_;
  out_.remaining = ImmediateData::kSize;
  out_.bits = s.acks_.ask_bit(wqe, s.sq_.capacity());
  store_be64(body_, wqe.imm_data);
}

}  // namespace weft::proto
