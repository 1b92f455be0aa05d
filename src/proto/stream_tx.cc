// Outbound: cutting messages into segments and FPDUs.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "proto/stream.h"

namespace weft::proto {

namespace {

// Names the memory of our own zero-length operations; nobody checks it. Some hardware refuses 0.
constexpr Stag kRtrStag{1};

// How often a method that has no octets yet is asked again.
constexpr Duration kFetchPause{1'000'000};

}  // namespace

// Builds one FPDU of the open message into the batch. False: no room, or the stream failed.
bool StreamTx::emit_segment() {
  Stream& s = stream();
  const std::uint32_t header_len =
      static_cast<std::uint32_t>(out_.tagged ? DdpTagged::kSize : DdpUntagged::kSize);
  std::uint32_t payload = std::min(out_.remaining, max_ulpdu() - header_len);
  const std::size_t pieces = out_.flat != nullptr ? 1 : out_.cursor.left;
  if (!writer_.room(header_len, payload, pieces) &&
      (!widen_batch() || !writer_.room(header_len, payload, pieces))) {
    return false;
  }
  if (!s.params_.tx_markers && payload < FpduWriter::kCopyBelow && out_.in_one_piece(payload)) {
    if (!emit_small(header_len, payload)) return false;
  } else if (!emit_large(header_len, payload)) {
    return false;
  }
  const bool last = payload == out_.remaining;
  s.counters_.tx_fpdus.add(1);
  out_.remaining -= payload;
  out_.built += payload;
  out_.to += payload;
  out_.mo += payload;
  if (last) message_built();
  return true;
}

// `payload` becomes less where a small batch has no room for so many octets of a method.
bool StreamTx::emit_large(std::uint32_t header_len, std::uint32_t& payload) {
  bool fetch = false;
  if (out_.flat == nullptr && payload != 0 && !pin_sources(payload, fetch)) return false;
  if (fetch && !fetch_payload(header_len, payload)) return false;
  std::uint8_t header[kMaxDdpHeaderSize];
  store_header(header, payload == out_.remaining);
  writer_.begin(header, header_len, payload);
  if (fetch) {
    writer_.fetched(payload);
  } else {
    emit_payload(payload);
  }
  writer_.end();
  return true;
}

// Octets that a method gives, and those of memory between them. False: none was taken, as there is
// no room, they are not there yet, or never will be.
bool StreamTx::fetch_payload(std::uint32_t header_len, std::uint32_t& payload) {
  std::uint8_t* to = writer_.fetch_room(header_len, payload);
  if (to == nullptr && writer_.batch()->bytes == 0) {
    payload = static_cast<std::uint32_t>(writer_.fetch_max(header_len));
    to = writer_.fetch_room(header_len, payload);
  }
  if (to == nullptr) return false;
  std::uint32_t bytes = payload;
  Cursor cursor = out_.cursor;
  while (bytes != 0) {
    const std::uint32_t piece = std::min(cursor.sge->length - cursor.offset, bytes);
    const std::uint64_t addr = cursor.sge->addr + cursor.offset;
    const std::uint8_t* at = nullptr;
    Stored got = Stored::kAll;
    if (piece != 0) {
      const MemoryFault fault = source(Stag{cursor.sge->lkey}, addr, piece, source_right(), at);
      assert(fault == MemoryFault::kNone);  // pinned just before
      if (fault != MemoryFault::kNone) return false;
      if (has(source_entry_->spec.access, kByMethod)) {
        got = fetch(*source_entry_, addr, {to, piece});
      } else {
        std::memcpy(to, at, piece);
      }
    }
    if (got == Stored::kRefused) source_failed();
    if (got == Stored::kLater) fetch_at_ = stream().host_.now() + kFetchPause;
    if (got != Stored::kAll) return false;
    to += piece;
    bytes -= piece;
    cursor.advance(piece);
  }
  out_.cursor = cursor;
  return true;
}

// A small segment whose payload lies in one piece, without the detour over slices.
bool StreamTx::emit_small(std::uint32_t header_len, std::uint32_t& payload) {
  const std::uint8_t* from = out_.flat + out_.built;
  if (out_.flat == nullptr && payload != 0) {
    const Cursor& c = out_.cursor;
    const MemoryFault fault =
        source(Stag{c.sge->lkey}, c.sge->addr + c.offset, payload, source_right(), from);
    if (fault != MemoryFault::kNone) {
      tell_of_source(fault, c, payload);
      source_failed();
      return false;
    }
    if (has(source_entry_->spec.access, kByMethod)) return emit_large(header_len, payload);
    out_.cursor.advance(payload);
  }
  std::uint8_t* ulpdu = writer_.begin_small(header_len + payload);
  store_header(ulpdu, payload == out_.remaining);
  if (payload != 0) std::memcpy(ulpdu + header_len, from, payload);
  writer_.end_small();
  return true;
}

void StreamTx::store_header(std::uint8_t* at, bool last) const {
  const std::uint8_t bits = last ? out_.bits : out_.bits & ~kAskBit;
  const auto control = static_cast<std::uint8_t>(rdmap_control(out_.op) | bits);
  if (out_.tagged) {
    store_ddp(DdpTagged{last, control, out_.stag, out_.to}, at);
  } else {
    store_ddp(DdpUntagged{last, control, out_.stag.value, out_.queue, out_.msn, out_.mo}, at);
  }
}

// A response needs the right the peer was given; our own sends may read any region of the domain.
Access StreamTx::source_right() const {
  return out_.from == Outbound::From::kRequest ? Access::kRemoteRead : Access::kNone;
}

void StreamTx::tell_of_source(MemoryFault fault, const Cursor& cursor, std::uint32_t size) {
  (void)stream().tell(fault, Stag{cursor.sge->lkey}, cursor.sge->addr + cursor.offset, size,
                      source_right(), out_.from == Outbound::From::kRequest);
}

// Checks and pins the memory of the next `bytes` of the open message, so that building cannot fail
// half-way. False: not valid, and the stream has been failed. `fetch`: some of it is by method.
bool StreamTx::pin_sources(std::uint32_t bytes, bool& fetch) {
  const Access need = source_right();
  Cursor cursor = out_.cursor;
  while (bytes != 0) {
    assert(cursor.left != 0);
    const std::uint32_t piece = std::min(cursor.sge->length - cursor.offset, bytes);
    if (piece != 0) {
      const std::uint8_t* at = nullptr;
      const MemoryFault fault =
          source(Stag{cursor.sge->lkey}, cursor.sge->addr + cursor.offset, piece, need, at);
      if (fault != MemoryFault::kNone) {
        tell_of_source(fault, cursor, piece);
        source_failed();
        return false;
      }
      if (has(source_entry_->spec.access, kByMethod)) fetch = true;
    }
    bytes -= piece;
    cursor.advance(piece);
  }
  return true;
}

// The address of local memory, pinned by the batch.
MemoryFault StreamTx::source(Stag stag, std::uint64_t addr, std::uint32_t size, Access need,
                             const std::uint8_t*& at) {
  Stream& s = stream();
  TxBatch& b = *writer_.batch();
  std::size_t i = 0;
  while (i < b.source_count && b.pins[i].stag() != stag) ++i;
  if (i == kBatchSources) return MemoryFault::kInvalidStag;  // kept free by next_message()
  std::uint8_t* found = nullptr;
  const MemoryFault fault =
      s.table_.resolve(stag, addr, size, need, s.params_.id, b.pins[i], found, &tx_hint_);
  at = found;
  source_entry_ = b.pins[i].entry();
  if (fault == MemoryFault::kNone) {
    // That which is being built. A small batch asks for all of its memory until it is gone.
    if constexpr (kBatchCopies) b.source_fpdus[i] = static_cast<std::uint32_t>(b.fpdu_count);
    if (i == b.source_count) ++b.source_count;
  }
  if (fault != MemoryFault::kNone && i == b.source_count) b.pins[i].release();
  return fault;
}

void StreamTx::emit_payload(std::uint32_t bytes) {
  if (out_.flat != nullptr) {
    // Inline data and bodies are the stream's own memory, but the slot may be reused before a slow
    // transport takes the bytes: copy.
    writer_.payload(out_.flat + out_.built, bytes, false);
    return;
  }
  const Access need = source_right();
  while (bytes != 0) {
    const Cursor& c = out_.cursor;
    const std::uint32_t piece = std::min(c.sge->length - c.offset, bytes);
    if (piece != 0) {
      const std::uint8_t* at = nullptr;
      const MemoryFault fault = source(Stag{c.sge->lkey}, c.sge->addr + c.offset, piece, need, at);
      assert(fault == MemoryFault::kNone);  // pinned just before
      if (fault == MemoryFault::kNone) writer_.payload(at, piece, true);
    }
    bytes -= piece;
    out_.cursor.advance(piece);
  }
}

void StreamTx::message_built() {
  Stream& s = stream();
  if (!s.path_.building() && out_.bits != kAckBits)
    s.counters_.tx_messages[static_cast<std::size_t>(out_.op)].add(1);
  const Outbound::From from = out_.from;
  out_.from = Outbound::From::kNobody;
  switch (from) {
    case Outbound::From::kSendQueue: {
      SendWqe& wqe = s.sq_.at(work_.next);
      if (wqe.op == SendOp::kWriteImm && !work_.second_half) {
        work_.second_half = true;
        start_immediate(wqe);
        return;
      }
      work_.second_half = false;
      wqe.end_offset = writer_.offset();
      if (s.params_.steps) tell_request(Step::What::kBuilt);
      s.acks_.number(wqe, out_.bits);
      ++work_.next;
      break;
    }
    case Outbound::From::kRequest: s.requests_.built(writer_.offset()); break;
    case Outbound::From::kControl:
      if (out_.op == Opcode::kTerminate) {
        s.ending_.no_terminate();
        s.counters_.terminates_sent.add(1);
      } else if (s.path_.building()) {
        s.path_.built(writer_.offset());
      } else if (out_.bits == kAskBit) {
        s.acks_.asked_alone();
      } else if (out_.bits != kAckBits) {
        greeting_.rtr = RtrKind::kNone;  // one of them, by the role
        greeting_.mark_due = false;
      }
      break;
    case Outbound::From::kNobody: break;
  }
}

// Opens the next message: the Terminate, the RTR, then responses and work requests in turn.
bool StreamTx::next_message() {
  Stream& s = stream();
  // A message may name as many regions as it has SGEs.
  if (writer_.batch()->source_count + limits::kSgesPerRequest > kBatchSources) return false;
  if (s.path_.holds()) return false;
  if (s.ending_.terminate_due()) {
    start_terminate();
    return true;
  }
  if (s.machine_.state() != StreamState::kRts || !greeting_.may_send) return false;
  if (greeting_.rtr_due()) {
    if (greeting_.rtr == RtrKind::kRead && !s.reads_.allocate()) {
      s.violate(Violation::kLocalFault);
      return false;
    }
    start_rtr();
    return true;
  }
  if (greeting_.mark_due) {
    start_empty_write(kPeerMark);
    return true;
  }
  if (s.path_.has_messages()) {
    start_path_message();
    return true;
  }
  if (s.acks_.ack_due() || s.refusal_.has_news() || s.may_ask()) {
    start_ack();
    return true;
  }
  work_.response_turn = !work_.response_turn;
  const bool started =
      work_.response_turn ? start_response() || start_work() : start_work() || start_response();
  if (started || !s.may_ask() || s.machine_.state() != StreamState::kRts) return started;
  start_ack();  // what is next in the send queue waits for it
  return true;
}

void StreamTx::start_terminate() {
  Stream& s = stream();
  out_ = {};
  out_.from = Outbound::From::kControl;
  s.path_.give_up();  // one may have been begun
  out_.op = Opcode::kTerminate;
  out_.queue = kQueueTerminate;
  out_.msn = Msn::first();
  out_.flat = body_;
  out_.remaining = s.ending_.terminate_size();
}

// RFC 6581 9.2: a zero-length Write or Read as the initiator's first FPDU. A Read carries our mark,
// see is_mark().
void StreamTx::start_rtr() {
  Stream& s = stream();
  if (greeting_.rtr == RtrKind::kWrite) return start_empty_write(0);
  out_ = {};
  out_.from = Outbound::From::kControl;
  Outstanding& o = s.reads_.add();
  o = {};
  o.is_rtr = true;
  o.sink_stag = kRtrStag;
  o.msn = tx_msn_[kQueueReadRequest];
  const std::uint64_t sink_to = s.params_.max_ulpdu_known != 0 ? kPeerMark : 0;
  start_read_request(
      {.sink_stag = kRtrStag, .sink_to = sink_to, .size = 0, .src_stag = kRtrStag, .src_to = 0});
}

void StreamTx::start_empty_write(std::uint64_t to) {
  out_ = {};
  out_.from = Outbound::From::kControl;
  out_.op = Opcode::kWrite;
  out_.tagged = true;
  out_.stag = kRtrStag;
  out_.to = to;
  out_.flat = body_;
}

void StreamTx::start_read_request(const ReadRequest& request) {
  store_read_request(request, body_);
  out_.op = Opcode::kReadRequest;
  out_.queue = kQueueReadRequest;
  out_.msn = take_msn(kQueueReadRequest);
  out_.flat = body_;
  out_.remaining = ReadRequest::kSize;
}

bool StreamTx::start_response() {
  Stream& s = stream();
  if (!s.requests_.wait()) return false;
  InboundRequest& request = s.requests_.next();
  out_ = {};
  out_.from = Outbound::From::kRequest;
  if (request.is_atomic) {
    ByteWriter body(body_);
    encode(AtomicResponse{request.request_id, request.original}, body);
    out_.op = Opcode::kAtomicResponse;
    out_.queue = kQueueAtomicResponse;
    out_.msn = take_msn(kQueueAtomicResponse);
    out_.flat = body_;
    out_.remaining = AtomicResponse::kSize;
    return true;
  }
  out_.op = Opcode::kReadResponse;
  out_.tagged = true;
  out_.stag = request.read.sink_stag;
  out_.to = request.read.sink_to;
  out_.remaining = request.read.size;
  response_sge_ = {request.read.src_to, request.read.size, request.read.src_stag.value};
  out_.cursor = {&response_sge_, 1, 0};
  return true;
}

}  // namespace weft::proto
