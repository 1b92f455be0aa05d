// Inbound Sends, requests, atomic responses, immediate data and Terminates.
#include <algorithm>
#include <bit>
#include <cstring>

#include "proto/stream.h"

namespace weft::proto {

namespace {

Violation read_violation(MemoryFault fault) {
  switch (fault) {
    case MemoryFault::kNone: return Violation::kNone;
    case MemoryFault::kInvalidStag: return Violation::kReadStag;
    case MemoryFault::kNotOfStream: return Violation::kReadStream;
    case MemoryFault::kNoRight: return Violation::kReadRight;
    case MemoryFault::kWrap: return Violation::kReadWrap;
    case MemoryFault::kBounds: return Violation::kReadBounds;
  }
  return Violation::kReadStag;
}

}  // namespace

// Queue, MSN, buffer, MO, length: in this order for every queue.
bool Stream::check_untagged() {
  if (seg_.queue != weft::info(seg_.op).queue) return fail_segment(Violation::kWrongQueue);
  if (seg_.msn != rx_msn_[seg_.queue]) return fail_segment(Violation::kMsnRange);
  if (seg_.queue == kQueueSend) return check_send();
  if (seg_.queue == kQueueReadRequest && irq_tail_ - irq_head_ >= params_.ird) {
    return fail_segment(Violation::kNoSlot);
  }
  if (seg_.queue == kQueueAtomicResponse && (orq_count_ == 0 || !oldest_read().is_atomic)) {
    return fail_segment(Violation::kUnaskedAtomicResponse);
  }
  if (seg_.mo != 0) return fail_segment(Violation::kBadMo);
  return true;
}

bool Stream::check_send() {
  if (!receive_open_ && !open_receive()) {
    if (params_.recv_wait.count() == 0) return fail_segment(Violation::kNoReceive);
    early_send_ = true;
    return false;
  }
  // Immediate data lands in the completion, not in the buffer; it cannot end a Send that is open.
  const bool whole = weft::info(seg_.op).must_be_last;
  if (seg_.mo != (whole ? 0 : receive_bytes_)) return fail_segment(Violation::kBadMo);
  if (whole) return receive_bytes_ == 0 || fail_segment(Violation::kBadMo);
  if (std::uint64_t{seg_.mo} + seg_.payload_len > receive_.wqe.length) {
    complete_receive(WcStatus::kLocalLength, vendor_error(term::kDdpTooLong));
    return fail_segment(Violation::kMessageTooLong);
  }
  return true;
}

bool Stream::open_receive() {
  if (!host_.take_receive(receive_.wqe)) return false;
  receive_open_ = true;
  begin_receive();
  return true;
}

void Stream::begin_receive() {
  receive_bytes_ = 0;
  receive_cursor_ = {receive_.wqe.sges(), receive_.wqe.sge_count, 0};
  advance(receive_cursor_, 0);  // over empty SGEs
}

bool Stream::finish_send() {
  receive_bytes_ += seg_.payload_len;
  if (!seg_.last) return true;
  rx_msn_[kQueueSend] = rx_msn_[kQueueSend].next();
  const OpcodeInfo& rule = weft::info(seg_.op);
  RecvDone done;
  done.byte_len = receive_bytes_;
  if (rule.solicited) done.flags = WcFlags::kSolicited;
  if ((seg_.bits & kImmediateBit) != 0 && !rule.carries_invalidate) {
    done.flags = done.flags | WcFlags::kWithImm;
    done.imm_data = std::uint64_t{seg_.stag.value} << 32U;
  }
  if (rule.carries_invalidate) {
    // RFC 5040 5.3: the STag is invalid before the Send is delivered.
    rx_pin_.release();
    if (const Violation v = host_.remote_invalidate(seg_.stag); v != Violation::kNone) {
      complete_receive(WcStatus::kRemoteInvalidRequest, vendor_error(info(v).code));
      return fail_segment(v);
    }
    done.flags = done.flags | WcFlags::kWithInvalidate;
    done.invalidated = seg_.stag;
  }
  done.wr_id = receive_.wqe.wr_id;
  receive_open_ = false;
  last_write_bytes_ = 0;
  host_.recv_done(done);
  return true;
}

void Stream::complete_receive(WcStatus status, std::uint32_t vendor) {
  if (!receive_open_) return;
  receive_open_ = false;
  RecvDone done;
  done.wr_id = receive_.wqe.wr_id;
  done.status = status;
  done.vendor_error = vendor;
  host_.recv_done(done);
}

// Operations whose whole message is one body of fixed layout.
bool Stream::on_body(MarkedOctets octets) {
  std::uint8_t bytes[std::max(kAtomicRequestSize, kMaxTerminateSize)];
  const std::span<const std::uint8_t> body(bytes, octets.size());
  octets.take(bytes, octets.size());
  segment_open_ = false;
  carries_messages_ = true;
  counters_.rx_messages[static_cast<std::size_t>(seg_.op)].add(1);
  rx_msn_[seg_.queue] = rx_msn_[seg_.queue].next();
  if (params_.acks) note_asked();
  switch (seg_.op) {
    case Opcode::kReadRequest: return on_read_request(body);
    case Opcode::kAtomicRequest: return on_atomic_request(body);
    case Opcode::kAtomicResponse: return on_atomic_response(body);
    case Opcode::kTerminate: return on_terminate(body);
    default: return on_immediate(body);
  }
}

bool Stream::on_immediate(std::span<const std::uint8_t> body) {
  RecvDone done;
  done.wr_id = receive_.wqe.wr_id;
  done.immediate = true;
  done.flags = WcFlags::kWithImm;
  if (weft::info(seg_.op).solicited) done.flags = done.flags | WcFlags::kSolicited;
  done.byte_len = last_write_bytes_;
  done.imm_data = load_be64(body.data());
  receive_open_ = false;
  last_write_bytes_ = 0;
  host_.recv_done(done);
  return true;
}

bool Stream::on_read_request(std::span<const std::uint8_t> body) {
  if (!has_request_list()) return fail_segment(Violation::kLocalFault);
  InboundRequest& slot = irq_[irq_tail_ & irq_mask_];
  slot = {};
  slot.read = load_read_request(body.data());
  slot.msn = seg_.msn;
  if (slot.read.size == 0) {
    if (seg_.first && slot.read.sink_to == kPeerMark) know_peer();
  } else {
    Pin pin;
    std::uint8_t* at = nullptr;
    const MemoryFault fault = resolve_remote(slot.read.src_stag, slot.read.src_to, slot.read.size,
                                             Access::kRemoteRead, pin, at);
    if (fault != MemoryFault::kNone) {
      const Terminate report = report_read(read_violation(fault), slot);
      violate(read_violation(fault), &report);
      return false;
    }
  }
  ++irq_tail_;
  return true;
}

bool Stream::on_atomic_request(std::span<const std::uint8_t> body) {
  if (!has_request_list()) return fail_segment(Violation::kLocalFault);
  ByteReader in(body);
  const Result<AtomicRequest> request = decode_atomic_request(in);
  if (!request) return fail_segment(Violation::kAtomicUnknown);
  Pin pin;
  std::uint8_t* at = nullptr;
  const MemoryFault fault = resolve_remote(request->stag, request->to, sizeof(std::uint64_t),
                                           Access::kRemoteAtomic, pin, at);
  if (fault != MemoryFault::kNone) return fail_segment(read_violation(fault));
  if (std::bit_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) != 0) {
    return fail_segment(Violation::kAtomicMisaligned);
  }
  InboundRequest& slot = irq_[irq_tail_ & irq_mask_];
  slot = {};
  slot.is_atomic = true;
  slot.request_id = request->request_id;
  slot.msn = seg_.msn;
  slot.original = host_.execute_atomic(at, *request);
  ++irq_tail_;
  return true;
}

bool Stream::on_atomic_response(std::span<const std::uint8_t> body) {
  ByteReader in(body);
  const AtomicResponse response = *decode_atomic_response(in);
  Outstanding& o = oldest_read();
  if (response.request_id != o.id) return fail_segment(Violation::kUnaskedAtomicResponse);
  std::uint8_t value[sizeof response.original];
  std::memcpy(value, &response.original, sizeof value);  // host order, as verbs deliver it
  MarkedOctets result{std::span<const std::uint8_t>(value)};
  if (scatter(o.cursor, result) != Stored::kAll) {
    return fail_segment(Violation::kReadSinkGone);
  }
  answered(o);
  return true;
}

bool Stream::on_terminate(std::span<const std::uint8_t> body) {
  counters_.terminates_received.add(1);
  ByteReader in(body);
  const Result<DecodedTerminate> decoded = decode_terminate(in, seg_.first);
  // Length was checked with the header, so this cannot fail; an unreadable one would still end us.
  const Terminate report = decoded ? decoded->terminate : Terminate{};
  terminated_by_peer(report);
  return false;
}

}  // namespace weft::proto
