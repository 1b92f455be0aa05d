// How a stream ends: violations, Terminates, closing, loss, and the flush of all work.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "proto/stream.h"

namespace weft::proto {

// --- the one way down after a broken rule ---

void StreamShutdown::violate(Violation v, const Terminate* prepared) {
  Stream& s = stream();
  if (s.machine_.state() == StreamState::kClosing) {
    // Our FIN is out, so no Terminate can follow. What comes is not wanted any more, good or bad:
    // it is no violation to report, and the only answer is a reset.
    const bool ours = v == Violation::kLocalFault;
    (void)s.machine_.on(ours ? StreamEvent::kLost : StreamEvent::kUnexpectedData);
    s.ending_.demand_reset();
    lose(s.ending_.how(), WcStatus::kFlushed);
    return;
  }
  if (v == Violation::kCrc) s.counters_.crc_errors.add(1);
  const Terminate report = prepared != nullptr ? *prepared : make_report(v);
  end_with_report(v, report, offending_work(v));
}

// A send-side request that cannot be carried out.
void StreamShutdown::fail_work(SendWqe& wqe, WcStatus status, Violation v) {
  Stream& s = stream();
  if (s.params_.acks) return end_alone(v, {&wqe, status});
  if (s.params_.unreliable) {  // no concern of the peer's
    s.host_.log_violation(v, consequence_of(v).code, false);
    (void)s.machine_.on(StreamEvent::kLost);
    s.ending_.demand_reset();
    return lose(StreamEnd::kLost, Offender{&wqe, status});
  }
  end_with_report(v, make_terminate(consequence_of(v).code), {&wqe, status});
}

// A fault of this side, between queue pairs connected out of band. It ends the own queue pair; the
// peer is told nothing, and finds out by its retries, as between adapters.
void StreamShutdown::end_alone(Violation v, Offender offender) {
  Stream& s = stream();
  s.host_.log_violation(v, consequence_of(v).code, false);
  if (!s.machine_.on(StreamEvent::kLocalClose)) return;
  s.stop_sending();
  arm_deadline();
  go_down(StreamEnd::kOrderly, {}, false, offender);
}

void StreamShutdown::end_with_report(Violation v, const Terminate& report, Offender offender) {
  Stream& s = stream();
  if (!s.machine_.on(StreamEvent::kViolation)) return;
  ByteWriter body(s.body_);  // what it held is built, or never will be
  encode(report, body);
  s.ending_.owe_terminate(static_cast<std::uint32_t>(body.written().size()));
  s.host_.log_violation(v, report.reason(), false);
  s.stop_sending();
  arm_deadline();
  s.host_.raise(consequence_of(v).event);
  go_down(StreamEnd::kTerminated, report.reason(), false, offender);
}

Terminate StreamShutdown::make_report(Violation v) const {
  const Stream& s = stream();
  Terminate t = make_terminate(consequence_of(v).code);
  if (consequence_of(v).attach != Attach::kNothing && s.seg_.header_len != 0) {
    attach_ddp(t, {s.seg_.header, s.seg_.header_len}, static_cast<std::uint16_t>(s.seg_.ulpdu_len));
  }
  return t;
}

// The report about a Read Request: what of it is still to do, under the header it came with.
Terminate StreamShutdown::report_read(Violation v, const InboundRequest& request) const {
  Terminate t = make_terminate(consequence_of(v).code);
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
Offender StreamShutdown::offending_work(Violation v) {
  Stream& s = stream();
  if (s.reads_.empty() || s.reads_.oldest().is_rtr) return {};
  SendWqe* const read = &s.sq_.at(s.reads_.oldest().wqe);
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
      if (s.seg_.op != Opcode::kReadResponse) return {};
      return {read, WcStatus::kBadResponse};
    default: return {};
  }
}

// Memory that a message under construction, or a waiting batch, names is gone.
void StreamTx::source_failed() {
  Stream& s = stream();
  switch (out_.from) {
    case Outbound::From::kSendQueue:
      if (profile::kWired && put_off_failure()) return;
      s.fail_work(s.sq_.at(work_.next), WcStatus::kLocalProtection, Violation::kSendProtection);
      return;
    case Outbound::From::kRequest: {
      InboundRequest& request = s.requests_.next();
      request.sent = out_.built;
      const Terminate report = s.report_read(Violation::kReadStag, request);
      s.violate(Violation::kReadStag, &report);
      return;
    }
    default: s.violate(Violation::kLocalFault);
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
void StreamTx::batch_failed() {
  Stream& s = stream();
  if (!at_border(*queue_.under_way())) {
    s.memory_fault();
    return;
  }
  drop_untaken();
  s.path_.settle(writer_.offset());
  if (s.params_.acks) {
    return s.end_alone(Violation::kLocalFault, s.oldest_ends(WcStatus::kLocalProtection));
  }
  s.violate(Violation::kLocalFault);
}

void StreamShutdown::memory_fault() {
  Stream& s = stream();
  s.host_.log_violation(Violation::kLocalFault, consequence_of(Violation::kLocalFault).code, false);
  if (!s.machine_.on(StreamEvent::kLost)) return;
  s.ending_.demand_reset();
  if (!s.params_.acks) s.host_.raise(AsyncEventType::kQpFatal);
  lose(StreamEnd::kLost, WcStatus::kLocalProtection);
}

void StreamShutdown::fail(Violation violation) {
  if (stream().params_.acks && violation == Violation::kLocalFault) return end_alone(violation, {});
  violate(violation);
}

// --- the peer's Terminate ---

void StreamShutdown::terminated_by_peer(const Terminate& report) {
  Stream& s = stream();
  if (!s.machine_.on(StreamEvent::kTerminateReceived)) return;
  const TerminateCode code = report.reason();
  s.host_.log_violation(Violation::kNone, code, true);
  const Offender offender = blamed_by(report);
  s.stop_sending();
  arm_deadline();
  if (offender.wqe == nullptr) {
    // The request that the peer means has completed already, so an event reports the error.
    const bool access = offender.status == WcStatus::kRemoteAccess;
    s.host_.raise(access ? AsyncEventType::kQpAccessError : AsyncEventType::kQpFatal);
  }
  go_down(StreamEnd::kTerminated, code, true, offender);
}

// Which unfinished request the peer's report is about, and with which status it ends.
Offender StreamShutdown::blamed_by(const Terminate& report) {
  Stream& s = stream();
  std::uint32_t queue = kQueueCount;
  Offender offender;
  if (!report.has_ddp) {
    if (s.sq_.head() != s.sq_.tail()) offender.wqe = &s.sq_.at(s.sq_.head());
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

SendWqe* StreamShutdown::blamed_write(const DdpTagged& h) {
  Stream& s = stream();
  if ((h.ulp_ctrl & kRdmapOpcodeMask) != static_cast<std::uint8_t>(Opcode::kWrite)) return nullptr;
  for (std::uint32_t i = s.sq_.head(); i != s.work_begun_end(); ++i) {
    SendWqe& wqe = s.sq_.at(i);
    const bool write = wqe.op == SendOp::kWrite || wqe.op == SendOp::kWriteImm;
    if (write && wqe.remote_stag == h.stag && h.to - wqe.remote_to <= wqe.length) return &wqe;
  }
  return nullptr;
}

SendWqe* StreamShutdown::blamed_send(Msn msn) {
  const std::optional<std::uint32_t> index = find_send(msn);
  return index ? &stream().sq_.at(*index) : nullptr;
}

// Searches the Sends that are begun and not complete.
std::optional<std::uint32_t> StreamShutdown::find_send(Msn msn) {
  Stream& s = stream();
  Msn next = s.tx_msn_[kQueueSend];
  for (std::uint32_t i = s.work_begun_end(); i != s.sq_.head();) {
    const SendWqe& wqe = s.sq_.at(--i);
    const bool takes_msn = wqe.op == SendOp::kSend || wqe.op == SendOp::kSendInvalidate ||
                           wqe.op == SendOp::kImmediate || wqe.op == SendOp::kWriteImm;
    // A Write with immediate that has not come to its second half has taken none yet.
    if (!takes_msn || (i == s.work_.next && wqe.op == SendOp::kWriteImm && !s.work_.second_half))
      continue;
    next = Msn{next.value - 1};
    if (next == msn) return i;
  }
  return {};
}

// Linux siw puts the size where the MSN belongs: an unknown MSN means the oldest.
SendWqe* StreamShutdown::blamed_read(Msn msn) {
  Stream& s = stream();
  SendWqe* oldest = nullptr;
  for (std::uint32_t i = 0; i < s.reads_.count(); ++i) {
    const Outstanding& o = s.reads_.at(i);
    if (o.is_rtr) continue;
    if (o.msn == msn) return &s.sq_.at(o.wqe);
    if (oldest == nullptr) oldest = &s.sq_.at(o.wqe);
  }
  return oldest;
}

std::uint32_t StreamTx::work_begun_end() const noexcept {
  return work_.next + (out_.from == Outbound::From::kSendQueue ? 1 : 0);
}

// --- closing and loss ---

void StreamShutdown::close() {
  Stream& s = stream();
  if (!s.machine_.on(StreamEvent::kLocalClose)) return;
  s.stop_sending();
  arm_deadline();
  go_down(StreamEnd::kOrderly, {}, false, {});
}

void StreamShutdown::peer_closed() {
  Stream& s = stream();
  if (!s.ending_.peer_closes()) return;
  if (s.machine_.state() != StreamState::kRts) {
    (void)s.machine_.on(StreamEvent::kPeerClosed);
    return;
  }
  const bool clean =
      s.reader_.at_border() && !s.mid_message() && s.reads_.empty() && s.requests_.empty();
  if (clean) {
    (void)s.machine_.on(StreamEvent::kPeerClosed);
    s.stop_sending();
    arm_deadline();
    leave_work();
    go_down(StreamEnd::kOrderly, {}, true, {});
    return;
  }
  (void)s.machine_.on(StreamEvent::kPeerClosedEarly);
  leave_work();
  lose(StreamEnd::kLost, WcStatus::kFlushed);
}

void StreamShutdown::transport_lost(bool timed_out) {
  Stream& s = stream();
  if (s.ending_.is_lost()) return;
  (void)s.machine_.on(StreamEvent::kLost);
  leave_work();
  lose(StreamEnd::kLost, timed_out ? WcStatus::kRetryExceeded : WcStatus::kFlushed);
}

void StreamShutdown::abort() {
  Stream& s = stream();
  if (s.ending_.is_lost()) return;
  (void)s.machine_.on(StreamEvent::kAbort);
  s.ending_.demand_reset();
  lose(StreamEnd::kLost, WcStatus::kFlushed);
}

// A peer in the middle of its first FPDU is not silent.
//
// RFC 5044 7.1.2 has a responder wait for the first FPDU for as long as it takes. Linux siw and the
// RNICs do not wait, and programs whose server speaks first rely on it.
//
// Linux siw does not look at what arrives between its Reply and its being ready, until something
// else arrives.
void StreamShutdown::break_silence() {
  Stream& s = stream();
  if (s.counters_.rx_bytes.get() != 0) return;
  s.greeting_.may_send = true;
  if (!s.params_.initiator || s.greeting_.rtr_due()) return;
  s.greeting_.rtr = RtrKind::kWrite;
}

void StreamShutdown::expired(Instant now) {
  Stream& s = stream();
  if (now < deadline_) return;
  deadline_ = Instant::never();
  if (s.machine_.state() == StreamState::kRts) {
    break_silence();
    return;
  }
  (void)s.machine_.on(StreamEvent::kTimer);
  s.ending_.demand_reset();
  lose(s.ending_.is_told_or_due() ? s.ending_.how() : StreamEnd::kLost, WcStatus::kFlushed);
}

// Nothing more can be sent or received. `oldest` is the status of the oldest unfinished request.
void StreamShutdown::lose(StreamEnd how, WcStatus oldest) { lose(how, oldest_ends(oldest)); }

void StreamShutdown::lose(StreamEnd how, Offender offender) {
  Stream& s = stream();
  s.ending_.lose();
  s.ending_.no_terminate();
  s.drop_untaken();
  s.discard();
  go_down(how, {}, false, offender);
}

Offender StreamShutdown::oldest_ends(WcStatus status) {
  Stream& s = stream();
  if (status == WcStatus::kFlushed || s.sq_.head() == s.sq_.tail()) return {};
  return {&s.sq_.at(s.sq_.head()), status};
}

// The peer is gone. What was begun may have reached it or not.
void StreamShutdown::leave_work() {
  Stream& s = stream();
  if (!s.params_.keeps_work || s.ending_.is_told_or_due()) return;
  s.ending_.keep_work(s.receive_.open || s.work_begun_end() != s.sq_.head());
}

void StreamRx::discard() {
  Stream& s = stream();
  discarding_ = true;
  hold_.held.reset();
  hold_.retry_at = s.fetch_at_ = Instant::never();
  s.refusal_.forget();
  pin_.release();
  reader_.drop_all();
}

// An FPDU that is begun on the wire is finished; then comes at most a Terminate, then FIN. Nothing
// that is received from now on counts, except while closing in good order; and then too the rest of
// a payload placed directly is dropped: its receive or Read is about to be flushed.
void StreamTx::stop_sending() {
  Stream& s = stream();
  writer_.take_back(queue_.drop_prepared());
  if (TxBatch* const batch = queue_.under_way(); batch != nullptr) {
    if (at_border(*batch)) {
      drop_untaken();
    } else if (repin(*batch)) {
      writer_.attach(batch);
      writer_.cut();
    } else {
      // The rest of the FPDU that is out in part cannot be read any more: a reset must do.
      (void)s.machine_.on(StreamEvent::kLost);
      s.ending_.no_terminate();
      s.ending_.lose();
      s.ending_.demand_reset();
      drop_untaken();
      s.discard();
    }
  }
  s.path_.settle(writer_.offset());
  s.ending_.stop();
  greeting_.rtr = RtrKind::kNone;
  if (s.machine_.state() != StreamState::kClosing || s.seg_.open) s.discard();
}

bool StreamShutdown::take_fin() {
  Stream& s = stream();
  if (s.ending_.terminate_due() || s.queue_.under_way() != nullptr) return false;
  return s.ending_.take_fin();
}

bool StreamShutdown::finished() const noexcept {
  const Stream& s = stream();
  return s.ending_.is_lost() || (s.ending_.closed() && s.queue_.empty());
}

void StreamShutdown::go_down(StreamEnd how, TerminateCode code, bool by_peer, Offender offender) {
  Stream& s = stream();
  if (!s.ending_.begin(how, code, by_peer, offender)) return;
  s.out_ = {};
  s.requests_.forget();
  settle_down();
}

// A completion gives the application its memory back, so requests complete only after the transport
// has released all that it took.
void StreamShutdown::settle_down() {
  Stream& s = stream();
  if (s.queue_.in_flight()) return;
  // Nor before the rest of an FPDU has gone that names it.
  if (!kBatchCopies && s.queue_.under_way() != nullptr) return;
  s.ending_.tell();
  const std::uint32_t vendor =
      s.ending_.how() == StreamEnd::kTerminated ? vendor_error(s.ending_.code()) : 0;
  if (!s.ending_.keeps_work()) {
    flush_work(s.ending_.offender(), vendor);
    s.complete_receive(WcStatus::kFlushed, vendor);
  } else if (std::exchange(s.receive_.open, false)) {
    s.host_.receive_cut_off(s.receive_.wqe);
  }
  s.host_.stream_down(s.ending_.how(), s.ending_.code(), s.ending_.by_peer());
  // The host may have completed what is kept; the rest of an FPDU that still leaves completes none.
  if (static_cast<std::int32_t>(s.sq_.head() - s.work_.next) > 0) s.work_.next = s.sq_.head();
}

// With acks, a peer that names a request has placed all before it, though its Terminate may have
// come before its Ack.
void StreamShutdown::flush_work(Offender offender, std::uint32_t vendor) {
  Stream& s = stream();
  bool placed = s.params_.acks && s.ending_.by_peer() && offender.wqe != nullptr;
  while (s.sq_.head() != s.sq_.tail()) {
    SendWqe& wqe = s.sq_.at(s.sq_.head());
    placed = placed && &wqe != offender.wqe && (wqe.answered || !wqe.awaits_response());
    if (placed) {
      s.complete_send(wqe, WcStatus::kSuccess, 0);
    } else {
      s.complete_send(wqe, &wqe == offender.wqe ? offender.status : WcStatus::kFlushed, vendor);
    }
  }
  s.work_.next = s.sq_.head();
  s.reads_.forget();
}

void StreamShutdown::flush_posted() {
  if (stream().ending_.is_told()) flush_work({}, 0);
}

void StreamTx::complete_send(SendWqe& wqe, WcStatus status, std::uint32_t vendor) {
  Stream& s = stream();
  SendDone done;
  done.wr_id = wqe.wr_id;
  done.status = status;
  done.op = wqe.op;
  done.signaled = status != WcStatus::kSuccess || wqe.has_flag(SendFlags::kSignaled);
  done.byte_len = wqe.length;
  done.vendor_error = vendor;
  s.sq_.retire();
  s.host_.send_done(done);
}

void StreamShutdown::arm_deadline() {
  deadline_ = stream().host_.now() + stream().params_.close_timeout;
}

bool StreamRx::mid_message() const noexcept { return write_.open || receive_.open || seg_.open; }

}  // namespace weft::proto
