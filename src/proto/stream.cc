#include "proto/stream.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>

namespace weft::proto {

StreamParams stream_params(const Negotiated& agreed, Duration nudge_wait,
                           Duration first_fpdu_wait) {
  StreamParams params;
  params.initiator = agreed.initiator;
  params.crc = agreed.crc;
  params.tx_markers = agreed.tx_markers;
  params.rx_markers = agreed.rx_markers;
  params.rtr = agreed.initiator && agreed.peer_to_peer ? agreed.rtr : RtrKind::kNone;
  params.startup_failure = agreed.startup_failure;
  params.ird = agreed.ird;
  params.ord = agreed.ord;
  if (agreed.initiator) {
    params.patience = nudge_wait;
  } else if (!agreed.peer_to_peer) {
    params.patience = first_fpdu_wait;
  }
  return params;
}

Stream::Stream(const StreamParams& params, StreamHost& host, const StagTable& table, SendQueue& sq)
    : params_(params),
      host_(host),
      table_(table),
      sq_(sq),
      reader_(params.crc, params.rx_markers, params.check_markers, host),
      irq_mask_(list_size(params.ird) - 1),
      ord_(params.ord),
      orq_mask_(list_size(params.ord) - 1),
      max_ulpdu_(params.max_ulpdu),
      writer_(params.crc, params.tx_markers),
      tx_(host),
      sq_next_(sq.head()),
      rtr_pending_(params.initiator && params.rtr != RtrKind::kNone),
      rtr_(params.rtr),
      may_send_(params.initiator || params.both_ready) {
  (void)machine_.on(StreamEvent::kEstablished);
  after_pause_ = params_.crc;
}

// Most connections never see a Read: what keeps track of them comes with the first one.
bool Stream::has_request_list() {
  if (irq_ == nullptr) irq_ = make_array<InboundRequest>(nullptr, irq_mask_ + 1);
  return irq_ != nullptr;
}

bool Stream::has_outstanding_list() {
  if (orq_ == nullptr) orq_ = make_array<Outstanding>(nullptr, orq_mask_ + 1);
  return orq_ != nullptr;
}

bool Stream::reserve(Arena& memory) {
  irq_ = make_array<InboundRequest>(&memory, irq_mask_ + 1);
  orq_ = make_array<Outstanding>(&memory, orq_mask_ + 1);
  return irq_ != nullptr && orq_ != nullptr;
}

void Stream::start() {
  if (params_.startup_failure) violate(*params_.startup_failure);
  if (machine_.state() == StreamState::kRts && params_.patience.count() != 0) {
    deadline_ = host_.now() + params_.patience;
  }
}

Stream::~Stream() { rx_pin_.release(); }

// --- receive: where bytes go ---

void Stream::want(RxPlan& plan, std::span<std::uint8_t> scratch) {
  plan.count = 0;
  plan.bytes = 0;
  plan_direct_ = false;
  if (awaits_receive()) return;
  if (discarding_) {
    plan.slices[plan.count++] = {scratch.data(), scratch.size()};
  } else if (reader_.direct_remaining() != 0) {
    // Rights are looked at again: they may have been revoked since the last read.
    plan.count = target_slices(plan.slices, kRxSlicesMax - 1, reader_.direct_remaining());
    if (plan.count == 0) return want(plan, scratch);  // revoked: now discarding
    plan_direct_ = true;
    std::size_t planned = 0;
    for (std::size_t i = 0; i < plan.count; ++i) planned += plan.slices[i].size;
    if (planned == reader_.direct_remaining()) plan.slices[plan.count++] = reader_.want_tail();
  } else if (scratch.empty() && !reader_.nothing_behind()) {
    // Fed, and the pieces part between a payload and its pad or CRC.
    plan.slices[plan.count++] = reader_.want_tail();
  } else {
    plan.slices[plan.count++] = reader_.want(scratch);
  }
  plan.placed = plan_direct_;
  for (std::size_t i = 0; i < plan.count; ++i) plan.bytes += plan.slices[i].size;
}

void Stream::arrived(std::size_t n) {
  if (n == 0 && !plan_direct_ && !discarding_ && reader_.holds_nothing()) return;
  counters_.rx_bytes.add(n);
  if (discarding_) return;
  const std::size_t direct = reader_.filled(n);
  if (plan_direct_) {
    seg_.placed += static_cast<std::uint32_t>(direct);
    note_placed(static_cast<std::uint32_t>(direct));
  }
  drain_reader();
}

void Stream::feed(std::span<std::uint8_t> bytes) {
  while (!bytes.empty() && !discarding_) {
    if (reader_.at_border()) {
      counters_.rx_bytes.add(bytes.size());
      reader_.feed(bytes);
      drain_reader();
      return;
    }
    // The rest of an FPDU goes where its beginning is.
    RxPlan plan;
    want(plan, {});
    std::size_t n = 0;
    for (std::size_t i = 0; i < plan.count && n < bytes.size(); ++i) {
      const std::size_t piece = std::min(plan.slices[i].size, bytes.size() - n);
      std::memcpy(plan.slices[i].data, bytes.data() + n, piece);
      n += piece;
    }
    bytes = bytes.subspan(n);
    arrived(n);
  }
}

void Stream::drain_reader() {
  while (!discarding_) {
    const Inbound in = reader_.next();
    bool alive = true;
    switch (in.kind) {
      case Inbound::Kind::kNone:
        rx_pin_.release();
        if (!reader_.park()) fail(Violation::kLocalFault);
        return;
      case Inbound::Kind::kUlpdu: alive = on_ulpdu(in.ulpdu); break;
      case Inbound::Kind::kDirect: alive = on_direct(in.ulpdu, in.ulpdu_len); break;
      case Inbound::Kind::kDirectEnd: alive = close_segment(); break;
      case Inbound::Kind::kViolation:
        violate(in.violation);
        alive = false;
        break;
    }
    if (!alive && (early_send_ || target_waits_)) {
      // A payload that was to be placed directly has not been taken from the reader.
      return hold(in.kind == Inbound::Kind::kUlpdu ? in.ulpdu : MarkedOctets{});
    }
    if (!alive) break;
  }
  rx_pin_.release();
  reader_.drop_all();
}

// --- send: what goes out ---

bool Stream::tx_pending() const noexcept {
  if (tx_.under_way() != nullptr) return true;
  if (hold_at_ != 0) return false;
  if (terminate_pending_) return true;
  if (machine_.state() != StreamState::kRts || !may_send_) return false;
  if (fetch_at_ != Instant::never()) return false;
  if (rtr_pending_ || mark_pending_ || path_count_ != 0) return true;
  if (ack_pending_ || refusal_pending_ || resume_pending_ || may_ask()) return true;
  if (out_.from != Outbound::From::kNobody || irq_build_ != irq_tail_) return true;
  if (sq_next_ == sq_.tail() || paused_ || backed_off_) return false;
  const SendWqe& wqe = sq_.at(sq_next_);
  return !work_stalled(wqe) || (waits_for_acks(wqe) && unasked_ != 0);
}

TxBatch* Stream::gather() {
  if (TxBatch* batch = tx_.under_way(); batch != nullptr) {
    if (!repin(*batch)) {
      batch_failed();
    } else if (!terminate_pending_) {
      return batch;
    }
  }
  if (!tx_pending()) {
    after_pause_ = params_.crc;
    return nullptr;
  }
  if (tx_.under_way() == nullptr && !append_batch()) return nullptr;
  build_batch();
  if (tx_.under_way() == nullptr && terminate_pending_) return gather();  // building failed: say so
  return tx_.under_way();
}

bool Stream::append_batch() {
  TxBatch* const batch = tx_.append();
  if (batch == nullptr) return false;
  if (after_pause_) next_batch_bytes_ = kBatchBytesFirst;
  writer_.attach(batch, next_batch_bytes_);
  next_batch_bytes_ = std::min(2 * next_batch_bytes_, kBatchBytes);
  return true;
}

// A first batch is full. Where the peer still has the one before to work on, there was no pause.
bool Stream::widen_batch() {
  if (!after_pause_) return false;
  after_pause_ = false;
  if (host_.now() > no_pause_until_) return false;
  next_batch_bytes_ = kBatchBytes;
  writer_.widen(kBatchBytes);
  return true;
}

// Fills the newest batch. Should building fail, the stream is cut short, and the batch may be gone.
void Stream::build_batch() {
  while (out_.from != Outbound::From::kNobody || next_message()) {
    if (out_.from != Outbound::From::kNobody && !emit_segment()) break;
  }
  retire_work();  // local operations at the front need no transmission
  tx_.drop_empty();
}

void Stream::prepare() {
  if (tx_.under_way() == nullptr || tx_.has_prepared() || terminate_pending_) return;
  if (hold_at_ != 0 || fetch_at_ != Instant::never()) return;
  const bool work =
      out_.from != Outbound::From::kNobody || irq_build_ != irq_tail_ ||
      (sq_next_ != sq_.tail() && !paused_ && !backed_off_ && !work_stalled(sq_.at(sq_next_)));
  if (!work || machine_.state() != StreamState::kRts || !may_send_) return;
  if (!append_batch()) return;
  TxBatch* const batch = tx_.newest();
  build_batch();
  if (tx_.has_prepared()) batch->unpin();
}

// A batch that waited gets its memory checked again: a region may have been deregistered meanwhile.
bool Stream::repin(TxBatch& batch) {
  for (std::size_t i = 0; i < batch.source_count; ++i) {
    if (batch.pins[i].holds_any()) continue;
    const Stag stag = batch.pins[i].stag();
    MemoryEntry* entry = table_.find(stag);
    if (entry == nullptr || !batch.pins[i].acquire(*entry, stag)) {
      batch.unpin();
      return false;
    }
  }
  return true;
}

void Stream::sent(std::size_t n) {
  if (tx_.under_way() == nullptr) return;
  if (n == 0) return tx_.rest();
  counters_.tx_bytes.add(n);
  tx_sent_offset_ += n;
  if (tx_.under_way()->bytes >= kBatchBytesFirst) no_pause_until_ = host_.now() + kBatchPause;
  tx_.taken(n);
  retire_requests();
}

void Stream::released(std::size_t n) {
  assert(n <= tx_sent_offset_ - tx_released_offset_);
  tx_released_offset_ += n;
  tx_.released(n);
  if (ending_.due) return settle_down();
  if (!params_.hold_completions) completable_ = tx_released_offset_;
  retire_work();
}

void Stream::acked(StreamOffset offset) {
  if (!params_.hold_completions || offset <= completable_) return;
  completable_ = offset < tx_released_offset_ ? offset : tx_released_offset_;
  if (!ending_.due) retire_work();
}

void Stream::transport_closed() {
  released(static_cast<std::size_t>(tx_sent_offset_ - tx_released_offset_));
}

// What the transport has not taken will not be sent.
void Stream::drop_untaken() {
  writer_.take_back(tx_.drop_untaken());
  writer_.attach(nullptr);
}

void Stream::retire_work() {
  while (sq_.head() != sq_next_) {
    SendWqe& wqe = sq_.at(sq_.head());
    if (wqe.end_offset > completable_) return;
    if (wqe.awaits_response() && !wqe.answered) return;
    if (params_.acks && static_cast<std::int32_t>(asks_acked_ - wqe.ask) < 0) return;
    complete_send(wqe, WcStatus::kSuccess, 0);
  }
}

void Stream::retire_requests() {
  while (irq_head_ != irq_build_ && irq_[irq_head_ & irq_mask_].end_offset <= tx_sent_offset_) {
    ++irq_head_;
  }
}

bool Stream::send_drained() const noexcept {
  return tx_.empty() && out_.from == Outbound::From::kNobody && sq_next_ == sq_.head() &&
         !backed_off_;
}

}  // namespace weft::proto
