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
bool StreamRx::check_untagged() {
  Stream& s = stream();
  if (seg_.queue != weft::info(seg_.op).queue) return fail_segment(Violation::kWrongQueue);
  if (seg_.msn != rx_msn_[seg_.queue]) return fail_segment(Violation::kMsnRange);
  if (seg_.queue == kQueueSend) return check_send();
  if (seg_.queue == kQueueReadRequest && s.requests_.count() >= s.params_.ird) {
    return fail_segment(Violation::kNoSlot);
  }
  if (seg_.queue == kQueueAtomicResponse && (s.reads_.empty() || !s.reads_.oldest().is_atomic)) {
    return fail_segment(Violation::kUnaskedAtomicResponse);
  }
  if (seg_.mo != 0) return fail_segment(Violation::kBadMo);
  return true;
}

bool StreamRx::check_send() {
  if (!receive_.open && !open_receive()) {
    if (stream().params_.recv_wait.count() == 0) {
      stream().host_.receive_late(LateReceive::kFailed, Duration{0});
      return fail_segment(Violation::kNoReceive);
    }
    hold_.why = Waits::kForReceive;
    return false;
  }
  // Immediate data lands in the completion, not in the buffer; it cannot end a Send that is open.
  const bool whole = weft::info(seg_.op).must_be_last;
  if (seg_.mo != (whole ? 0 : receive_.bytes)) return fail_segment(Violation::kBadMo);
  if (whole) return receive_.bytes == 0 || fail_segment(Violation::kBadMo);
  if (std::uint64_t{seg_.mo} + seg_.payload_len > receive_.wqe.length) {
    complete_receive(WcStatus::kLocalLength, vendor_error(term::kDdpTooLong));
    return fail_segment(Violation::kMessageTooLong);
  }
  return true;
}

bool StreamRx::open_receive() {
  if (!stream().host_.take_receive(receive_.wqe)) return false;
  receive_.open = true;
  begin_receive();
  return true;
}

void StreamRx::begin_receive() {
  receive_.bytes = 0;
  receive_.cursor = {receive_.wqe.sges(), receive_.wqe.sge_count, 0};
  receive_.cursor.advance(0);  // over empty SGEs
}

bool StreamRx::finish_send() {
  Stream& s = stream();
  receive_.bytes += seg_.payload_len;
  if (!seg_.last) return true;
  rx_msn_[kQueueSend] = rx_msn_[kQueueSend].next();
  const OpcodeInfo& rule = weft::info(seg_.op);
  RecvDone done;
  done.byte_len = receive_.bytes;
  if (rule.solicited) done.flags = WcFlags::kSolicited;
  if ((seg_.bits & kImmediateBit) != 0 && !rule.carries_invalidate) {
    done.flags = done.flags | WcFlags::kWithImm;
    done.imm_data = std::uint64_t{seg_.stag.value} << 32U;
  }
  if (rule.carries_invalidate) {
    // RFC 5040 5.3: the STag is invalid before the Send is delivered.
    pin_.release();
    if (const Violation v = s.host_.remote_invalidate(seg_.stag); v != Violation::kNone) {
      complete_receive(WcStatus::kRemoteInvalidRequest, vendor_error(consequence_of(v).code));
      return fail_segment(v);
    }
    done.flags = done.flags | WcFlags::kWithInvalidate;
    done.invalidated = seg_.stag;
  }
  done.wr_id = receive_.wqe.wr_id;
  receive_.open = false;
  write_.last_bytes = 0;
  s.host_.recv_done(done);
  return true;
}

void StreamRx::complete_receive(WcStatus status, std::uint32_t vendor) {
  if (!receive_.open) return;
  receive_.open = false;
  RecvDone done;
  done.wr_id = receive_.wqe.wr_id;
  done.status = status;
  done.vendor_error = vendor;
  stream().host_.recv_done(done);
}

// Operations whose whole message is one body of fixed layout.
bool StreamRx::on_body(MarkedOctets octets) {
  Stream& s = stream();
  std::uint8_t bytes[std::max(kAtomicRequestSize, kMaxTerminateSize)];
  const std::span<const std::uint8_t> body(bytes, octets.size());
  octets.move_to(bytes, octets.size());
  seg_.open = false;
  s.path_.note_messages(true);
  s.counters_.rx_messages[static_cast<std::size_t>(seg_.op)].add(1);
  rx_msn_[seg_.queue] = rx_msn_[seg_.queue].next();
  if (s.params_.steps) {
    // The beginning of a peer-to-peer connection is no matter of the peer's program.
    const bool is_rtr =
        seg_.first && seg_.op == Opcode::kReadRequest && load_read_request(body.data()).size == 0;
    if (!is_rtr) tell_message(Step::What::kPlaced);
  }
  if (s.params_.acks) s.acks_.delivered(seg_.bits, seg_.op);
  switch (seg_.op) {
    case Opcode::kReadRequest: return on_read_request(body);
    case Opcode::kAtomicRequest: return on_atomic_request(body);
    case Opcode::kAtomicResponse: return on_atomic_response(body);
    case Opcode::kTerminate: return on_terminate(body);
    default: return on_immediate(body);
  }
}

bool StreamRx::on_immediate(std::span<const std::uint8_t> body) {
  RecvDone done;
  done.wr_id = receive_.wqe.wr_id;
  done.immediate = true;
  done.flags = WcFlags::kWithImm;
  if (weft::info(seg_.op).solicited) done.flags = done.flags | WcFlags::kSolicited;
  done.byte_len = write_.last_bytes;
  done.imm_data = load_be64(body.data());
  receive_.open = false;
  write_.last_bytes = 0;
  stream().host_.recv_done(done);
  return true;
}

bool StreamRx::on_read_request(std::span<const std::uint8_t> body) {
  Stream& s = stream();
  if (!s.requests_.allocate()) return fail_segment(Violation::kLocalFault);
  InboundRequest& slot = s.requests_.slot();
  slot = {};
  slot.read = load_read_request(body.data());
  slot.msn = seg_.msn;
  if (slot.read.size == 0) {
    if (seg_.first && slot.read.sink_to == kPeerMark) know_peer();
  } else if (!s.serves(Access::kRemoteRead)) {
    (void)s.tell(MemoryFault::kNoRight, slot.read.src_stag, slot.read.src_to, slot.read.size,
                 Access::kRemoteRead, true);
    const Terminate report = s.report_read(Violation::kNotServed, slot);
    s.violate(Violation::kNotServed, &report);
    return false;
  } else {
    Pin pin;
    std::uint8_t* at = nullptr;
    const MemoryFault fault = s.resolve_remote(slot.read.src_stag, slot.read.src_to, slot.read.size,
                                               Access::kRemoteRead, pin, at);
    if (fault != MemoryFault::kNone) {
      (void)s.tell(fault, slot.read.src_stag, slot.read.src_to, slot.read.size, Access::kRemoteRead,
                   true);
      const Terminate report = s.report_read(read_violation(fault), slot);
      s.violate(read_violation(fault), &report);
      return false;
    }
    if (s.params_.peer_memory.to_hear)
      s.host_.peer_access({Access::kRemoteRead, true, true, at, slot.read.size});
  }
  s.requests_.add();
  return true;
}

bool StreamRx::on_atomic_request(std::span<const std::uint8_t> body) {
  Stream& s = stream();
  if (!s.requests_.allocate()) return fail_segment(Violation::kLocalFault);
  ByteReader in(body);
  const Result<AtomicRequest> request = decode_atomic_request(in);
  if (!request) return fail_segment(Violation::kAtomicUnknown);
  const bool served = s.serves(Access::kRemoteAtomic);
  Pin pin;
  std::uint8_t* at = nullptr;
  const MemoryFault fault =
      served ? s.resolve_remote(request->stag, request->to, sizeof(std::uint64_t),
                                Access::kRemoteAtomic, pin, at)
             : MemoryFault::kNoRight;
  if (fault != MemoryFault::kNone) {
    (void)s.tell(fault, request->stag, request->to, sizeof(std::uint64_t), Access::kRemoteAtomic,
                 true);
    return fail_segment(served ? read_violation(fault) : Violation::kNotServed);
  }
  if (std::bit_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) != 0) {
    return fail_segment(s.params_.acks ? Violation::kAtomicMisalignedRoce
                                       : Violation::kAtomicMisaligned);
  }
  InboundRequest& slot = s.requests_.slot();
  slot = {};
  slot.is_atomic = true;
  slot.request_id = request->request_id;
  slot.msn = seg_.msn;
  if (s.params_.peer_memory.to_hear)
    s.host_.peer_access({Access::kRemoteAtomic, true, true, at, sizeof(std::uint64_t)});
  slot.original = s.host_.execute_atomic(at, *request);
  s.requests_.add();
  return true;
}

bool StreamRx::on_atomic_response(std::span<const std::uint8_t> body) {
  ByteReader in(body);
  const AtomicResponse response = *decode_atomic_response(in);
  Outstanding& o = stream().reads_.oldest();
  if (response.request_id != o.id) return fail_segment(Violation::kUnaskedAtomicResponse);
  std::uint8_t value[sizeof response.original];
  std::memcpy(value, &response.original, sizeof value);  // host order, as verbs deliver it
  MarkedOctets result{std::span<const std::uint8_t>(value)};
  if (scatter_to_sges(o.cursor, result) != Stored::kAll) {
    return fail_segment(Violation::kReadSinkGone);
  }
  answered(o);
  return true;
}

bool StreamRx::on_terminate(std::span<const std::uint8_t> body) {
  Stream& s = stream();
  s.counters_.terminates_received.add(1);
  ByteReader in(body);
  const Result<DecodedTerminate> decoded = decode_terminate(in, seg_.first);
  // Length was checked with the header, so this cannot fail; an unreadable one would still end us.
  const Terminate report = decoded ? decoded->terminate : Terminate{};
  s.terminated_by_peer(report);
  return false;
}

}  // namespace weft::proto
