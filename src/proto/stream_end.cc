// How a stream ends: violations, Terminates, closing, loss, and the flush of all work.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "proto/stream.h"

namespace weft::proto {

// --- the one way down after a broken rule ---

void Stream::violate(Violation v, const Terminate* prepared) {
  if (machine_.state() == StreamState::kClosing) {
    // Our FIN is out, so no Terminate can follow. What comes is not wanted any more, good or bad:
    // it is no violation to report, and the only answer is a reset.
    const bool ours = v == Violation::kLocalFault;
    (void)machine_.on(ours ? StreamEvent::kLost : StreamEvent::kUnexpectedData);
    wants_reset_ = true;
    lose(end_, WcStatus::kFlushed);
    return;
  }
  if (v == Violation::kCrc) counters_.crc_errors.add(1);
  const Terminate report = prepared != nullptr ? *prepared : make_report(v);
  end_with_report(v, report, offending_work(v));
}

// A send-side request that cannot be carried out.
void Stream::fail_work(SendWqe& wqe, WcStatus status, Violation v) {
  if (params_.unreliable) {  // no concern of the peer's
    host_.log_violation(v, info(v).code, false);
    (void)machine_.on(StreamEvent::kLost);
    wants_reset_ = true;
    return lose(StreamEnd::kLost, Offender{&wqe, status});
  }
  end_with_report(v, make_terminate(info(v).code), {&wqe, status});
}

void Stream::end_with_report(Violation v, const Terminate& report, Offender offender) {
  if (!machine_.on(StreamEvent::kViolation)) return;
  ByteWriter body(body_);  // what it held is built, or never will be
  encode(report, body);
  terminate_size_ = static_cast<std::uint32_t>(body.written().size());
  terminate_pending_ = true;
  host_.log_violation(v, report.reason(), false);
  stop_sending();
  arm_deadline();
  host_.raise(info(v).event);
  go_down(StreamEnd::kTerminated, report.reason(), false, offender);
}

Terminate Stream::make_report(Violation v) const {
  Terminate t = make_terminate(info(v).code);
  if (info(v).attach != Attach::kNothing && seg_.header_len != 0) {
    attach_ddp(t, {seg_.header, seg_.header_len}, static_cast<std::uint16_t>(seg_.ulpdu_len));
  }
  return t;
}

// The report about a Read Request: what of it is still to do, under the header it came with.
Terminate Stream::report_read(Violation v, const InboundRequest& request) const {
  Terminate t = make_terminate(info(v).code);
  std::uint8_t header[DdpUntagged::kSize];
  store_ddp(
      DdpUntagged{true, rdmap_control(Opcode::kReadRequest), 0, kQueueReadRequest, request.msn, 0},
      header);
  attach_ddp(t, header, DdpUntagged::kSize + ReadRequest::kSize);
  ReadRequest rest = request.read;
  rest.sink_to += request.sent;
  rest.src_to += request.sent;
  rest.size -= request.sent;
  attach_read_request(t, rest);
  return t;
}

// Our work request that caused a violation found on this side.
Stream::Offender Stream::offending_work(Violation v) {
  if (orq_count_ == 0 || oldest_read().is_rtr) return {};
  SendWqe* const read = &sq_.at(oldest_read().wqe);
  switch (v) {
    case Violation::kReadResponseStag:
    case Violation::kReadResponseTo: return {read, WcStatus::kBadResponse};
    case Violation::kReadResponseLength: return {read, WcStatus::kLocalLength};
    case Violation::kReadSinkGone: return {read, WcStatus::kLocalProtection};
    case Violation::kWriteStag:
    case Violation::kWriteStream:
    case Violation::kWriteWrap:
    case Violation::kWriteBounds:
      // As a tagged buffer, but of a Read Response.
      if (seg_.op != Opcode::kReadResponse) return {};
      return {read, WcStatus::kBadResponse};
    default: return {};
  }
}

// Memory that a message under construction, or a waiting batch, names is gone.
void Stream::source_failed() {
  switch (out_.from) {
    case Outbound::From::kSendQueue:
      fail_work(sq_.at(sq_next_), WcStatus::kLocalProtection, Violation::kSendProtection);
      return;
    case Outbound::From::kRequest: {
      InboundRequest& request = irq_[irq_build_ & irq_mask_];
      request.sent = out_.built;
      const Terminate report = report_read(Violation::kReadStag, request);
      violate(Violation::kReadStag, &report);
      return;
    }
    default: violate(Violation::kLocalFault);
  }
}

namespace {

// Whether an FPDU ends where the transport stopped taking.
bool at_border(const TxBatch& b) {
  if (b.sent == 0) return true;
  const std::uint32_t* const end = b.fpdu_ends + b.fpdu_count;
  return std::binary_search(b.fpdu_ends, end, static_cast<std::uint32_t>(b.sent));
}

}  // namespace

// A batch that waited names memory that is gone. An FPDU of which a part is out cannot be finished,
// so no Terminate can follow it: the connection is reset.
void Stream::batch_failed() {
  if (!at_border(*tx_.under_way())) {
    memory_fault();
    return;
  }
  drop_untaken();
  settle_hold();
  violate(Violation::kLocalFault);
}

void Stream::memory_fault() {
  host_.log_violation(Violation::kLocalFault, info(Violation::kLocalFault).code, false);
  if (!machine_.on(StreamEvent::kLost)) return;
  wants_reset_ = true;
  host_.raise(AsyncEventType::kQpFatal);
  lose(StreamEnd::kLost, WcStatus::kLocalProtection);
}

void Stream::fail(Violation violation) { violate(violation); }

// --- the peer's Terminate ---

void Stream::terminated_by_peer(const Terminate& report) {
  if (!machine_.on(StreamEvent::kTerminateReceived)) return;
  const TerminateCode code = report.reason();
  host_.log_violation(Violation::kNone, code, true);
  const Offender offender = blamed_by(report);
  stop_sending();
  arm_deadline();
  if (offender.wqe == nullptr) {
    // The request that the peer means has completed already, so an event reports the error.
    const bool access = offender.status == WcStatus::kRemoteAccess;
    host_.raise(access ? AsyncEventType::kQpAccessError : AsyncEventType::kQpFatal);
  }
  go_down(StreamEnd::kTerminated, code, true, offender);
}

// Which unfinished request the peer's report is about, and with which status it ends.
Stream::Offender Stream::blamed_by(const Terminate& report) {
  std::uint32_t queue = kQueueCount;
  Offender offender;
  if (!report.has_ddp) {
    if (sq_.head() != sq_.tail()) offender.wqe = &sq_.at(sq_.head());
  } else if (peek_tagged(report.ddp_header[0])) {
    offender.wqe = blamed_write(load_ddp_tagged(report.ddp_header.data()));
  } else {
    const DdpUntagged h = load_ddp_untagged(report.ddp_header.data());
    queue = h.queue;
    if (queue == kQueueSend) offender.wqe = blamed_send(h.msn);
    if (queue == kQueueReadRequest) offender.wqe = blamed_read(h.msn);
  }
  offender.status = status_of_terminate(report.reason(), queue);
  return offender;
}

SendWqe* Stream::blamed_write(const DdpTagged& h) {
  if ((h.ulp_ctrl & kRdmapOpcodeMask) != static_cast<std::uint8_t>(Opcode::kWrite)) return nullptr;
  for (std::uint32_t i = sq_.head(); i != work_begun_end(); ++i) {
    SendWqe& wqe = sq_.at(i);
    const bool write = wqe.op == SendOp::kWrite || wqe.op == SendOp::kWriteImm;
    if (write && wqe.remote_stag == h.stag && h.to - wqe.remote_to <= wqe.length) return &wqe;
  }
  return nullptr;
}

SendWqe* Stream::blamed_send(Msn msn) {
  const std::optional<std::uint32_t> index = find_send(msn);
  return index ? &sq_.at(*index) : nullptr;
}

// Of those that are begun and not complete.
std::optional<std::uint32_t> Stream::find_send(Msn msn) {
  Msn next = tx_msn_[kQueueSend];
  for (std::uint32_t i = work_begun_end(); i != sq_.head();) {
    const SendWqe& wqe = sq_.at(--i);
    const bool takes_msn = wqe.op == SendOp::kSend || wqe.op == SendOp::kSendInvalidate ||
                           wqe.op == SendOp::kImmediate || wqe.op == SendOp::kWriteImm;
    // A Write with immediate that has not come to its second half has taken none yet.
    if (!takes_msn || (i == sq_next_ && wqe.op == SendOp::kWriteImm && !second_half_)) continue;
    next = Msn{next.value - 1};
    if (next == msn) return i;
  }
  return {};
}

// Linux siw puts the size where the MSN belongs: an unknown MSN means the oldest.
SendWqe* Stream::blamed_read(Msn msn) {
  SendWqe* oldest = nullptr;
  for (std::uint32_t i = 0; i < orq_count_; ++i) {
    const Outstanding& o = orq_[(orq_head_ + i) & orq_mask_];
    if (o.is_rtr) continue;
    if (o.msn == msn) return &sq_.at(o.wqe);
    if (oldest == nullptr) oldest = &sq_.at(o.wqe);
  }
  return oldest;
}

std::uint32_t Stream::work_begun_end() const noexcept {
  return sq_next_ + (out_.from == Outbound::From::kSendQueue ? 1 : 0);
}

// --- closing and loss ---

void Stream::close() {
  if (!machine_.on(StreamEvent::kLocalClose)) return;
  stop_sending();
  arm_deadline();
  go_down(StreamEnd::kOrderly, {}, false, {});
}

void Stream::peer_closed() {
  if (peer_fin_) return;
  peer_fin_ = true;
  if (machine_.state() != StreamState::kRts) {
    (void)machine_.on(StreamEvent::kPeerClosed);
    return;
  }
  const bool clean =
      reader_.at_border() && !mid_message() && orq_count_ == 0 && irq_head_ == irq_tail_;
  if (clean) {
    (void)machine_.on(StreamEvent::kPeerClosed);
    stop_sending();
    arm_deadline();
    leave_work();
    go_down(StreamEnd::kOrderly, {}, true, {});
    return;
  }
  (void)machine_.on(StreamEvent::kPeerClosedEarly);
  leave_work();
  lose(StreamEnd::kLost, WcStatus::kFlushed);
}

void Stream::transport_lost(bool timed_out) {
  if (lost_) return;
  (void)machine_.on(StreamEvent::kLost);
  leave_work();
  lose(StreamEnd::kLost, timed_out ? WcStatus::kRetryExceeded : WcStatus::kFlushed);
}

void Stream::abort() {
  if (lost_) return;
  (void)machine_.on(StreamEvent::kAbort);
  wants_reset_ = true;
  lose(StreamEnd::kLost, WcStatus::kFlushed);
}

// A peer in the middle of its first FPDU is not silent.
//
// RFC 5044 7.1.2 has a responder wait for the first FPDU for as long as it takes. Linux siw and the
// RNICs do not wait, and programs whose server speaks first rely on it.
//
// Linux siw does not look at what arrives between its Reply and its being ready, until something
// else arrives.
void Stream::break_silence() {
  if (counters_.rx_bytes.get() != 0) return;
  may_send_ = true;
  if (!params_.initiator || rtr_pending_) return;
  rtr_ = RtrKind::kWrite;
  rtr_pending_ = true;
}

void Stream::expired(Instant now) {
  if (held_ != nullptr && now >= retry_at_) retry_due(now);
  if (now >= resume_at_) {
    resume_at_ = Instant::never();
    resume_pending_ = true;
  }
  if (now >= fetch_at_) fetch_at_ = Instant::never();
  if (now < deadline_) return;
  deadline_ = Instant::never();
  if (machine_.state() == StreamState::kRts) {
    break_silence();
    return;
  }
  (void)machine_.on(StreamEvent::kTimer);
  wants_reset_ = true;
  lose(end_ == StreamEnd::kOpen ? StreamEnd::kLost : end_, WcStatus::kFlushed);
}

// Nothing more can be sent or received. `oldest` is the status of the oldest unfinished request.
void Stream::lose(StreamEnd how, WcStatus oldest) { lose(how, oldest_ends(oldest)); }

void Stream::lose(StreamEnd how, Offender offender) {
  lost_ = true;
  terminate_pending_ = false;
  drop_untaken();
  discard();
  go_down(how, {}, false, offender);
}

Stream::Offender Stream::oldest_ends(WcStatus status) {
  if (status == WcStatus::kFlushed || sq_.head() == sq_.tail()) return {};
  return {&sq_.at(sq_.head()), status};
}

// The peer is gone. What was begun may have reached it or not.
void Stream::leave_work() {
  if (!params_.keeps_work || end_ != StreamEnd::kOpen) return;
  ending_.keeps_work = true;
  ending_.in_the_middle = receive_open_ || work_begun_end() != sq_.head();
}

void Stream::discard() {
  discarding_ = true;
  held_.reset();
  retry_at_ = resume_at_ = fetch_at_ = Instant::never();
  rx_pin_.release();
  reader_.drop_all();
}

// What is begun on the wire is finished up to the FPDU border; then comes at most a Terminate, then
// FIN. Nothing that is received from now on counts, except while closing in good order; and then
// too the rest of a payload placed directly is dropped: its receive or Read is about to be flushed.
void Stream::stop_sending() {
  writer_.take_back(tx_.drop_prepared());
  if (TxBatch* const batch = tx_.under_way(); batch != nullptr) {
    if (at_border(*batch)) {
      drop_untaken();
    } else if (repin(*batch)) {
      writer_.attach(batch);
      writer_.cut();
    } else {
      // The rest of the FPDU that is out in part cannot be read any more: a reset must do.
      (void)machine_.on(StreamEvent::kLost);
      terminate_pending_ = false;
      lost_ = wants_reset_ = true;
      drop_untaken();
      discard();
    }
  }
  settle_hold();
  fin_wanted_ = true;
  rtr_pending_ = false;
  if (machine_.state() != StreamState::kClosing || segment_open_) discard();
}

bool Stream::take_fin() {
  if (!fin_wanted_ || fin_taken_ || terminate_pending_ || lost_) return false;
  if (tx_.under_way() != nullptr) return false;
  fin_taken_ = true;
  return true;
}

bool Stream::finished() const noexcept {
  return lost_ || (end_ != StreamEnd::kOpen && peer_fin_ && fin_taken_ && tx_.empty());
}

void Stream::go_down(StreamEnd how, TerminateCode code, bool by_peer, Offender offender) {
  if (end_ != StreamEnd::kOpen) return;
  end_ = how;
  out_ = {};
  irq_head_ = irq_build_ = irq_tail_;
  ending_.due = true;
  ending_.code = code;
  ending_.by_peer = by_peer;
  ending_.offender = offender;
  settle_down();
}

// A request that is completed gives its memory back to the application, so none is before the
// transport has released all that it took.
void Stream::settle_down() {
  if (tx_.in_flight()) return;
  // Nor before the rest of an FPDU has gone that names it.
  if (!kBatchCopies && tx_.under_way() != nullptr) return;
  ending_.due = false;
  const std::uint32_t vendor = end_ == StreamEnd::kTerminated ? vendor_error(ending_.code) : 0;
  if (!ending_.keeps_work) {
    flush_work(ending_.offender, vendor);
    complete_receive(WcStatus::kFlushed, vendor);
  } else if (std::exchange(receive_open_, false)) {
    host_.receive_cut_off(receive_.wqe);
  }
  host_.stream_down(end_, ending_.code, ending_.by_peer);
  // The host may have completed what is kept; the rest of an FPDU that still leaves completes none.
  if (static_cast<std::int32_t>(sq_.head() - sq_next_) > 0) sq_next_ = sq_.head();
}

// With acks, a peer that names a request has placed all before it, though its Terminate may have
// come before its Ack.
void Stream::flush_work(Offender offender, std::uint32_t vendor) {
  bool placed = params_.acks && ending_.by_peer && offender.wqe != nullptr;
  while (sq_.head() != sq_.tail()) {
    SendWqe& wqe = sq_.at(sq_.head());
    placed = placed && &wqe != offender.wqe && (wqe.answered || !wqe.awaits_response());
    if (placed) {
      complete_send(wqe, WcStatus::kSuccess, 0);
    } else {
      complete_send(wqe, &wqe == offender.wqe ? offender.status : WcStatus::kFlushed, vendor);
    }
  }
  sq_next_ = sq_.head();
  orq_count_ = 0;
}

void Stream::flush_posted() {
  if (end_ != StreamEnd::kOpen && !ending_.due) flush_work({}, 0);
}

void Stream::complete_send(SendWqe& wqe, WcStatus status, std::uint32_t vendor) {
  SendDone done;
  done.wr_id = wqe.wr_id;
  done.status = status;
  done.op = wqe.op;
  done.signaled = status != WcStatus::kSuccess || wqe.has_flag(SendFlags::kSignaled);
  done.byte_len = wqe.length;
  done.vendor_error = vendor;
  sq_.retire();
  host_.send_done(done);
}

void Stream::arm_deadline() { deadline_ = host_.now() + params_.close_timeout; }

bool Stream::mid_message() const noexcept { return write_open_ || receive_open_ || segment_open_; }

}  // namespace weft::proto
