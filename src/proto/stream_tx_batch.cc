// Outbound: batches on their way to the transport, and what is complete once they are taken.
#include <algorithm>
#include <cassert>

#include "proto/stream.h"

namespace weft::proto {

bool StreamTx::tx_pending() const noexcept {
  const Stream& s = stream();
  if (queue_.under_way() != nullptr) return true;
  if (s.path_.holds()) return false;
  if (s.ending_.terminate_due()) return true;
  if (s.machine_.state() != StreamState::kRts || !greeting_.may_send) return false;
  if (fetch_at_ != Instant::never()) return false;
  if (greeting_.rtr_due() || greeting_.mark_due || s.path_.has_messages()) return true;
  if (s.acks_.ack_due() || s.refusal_.has_news() || s.may_ask()) return true;
  if (out_.from != Outbound::From::kNobody || s.requests_.wait()) return true;
  if (work_.next == s.sq_.tail() || work_.paused || s.refusal_.backed_off()) return false;
  const SendWqe& wqe = s.sq_.at(work_.next);
  return !work_stalled(wqe) || (waits_for_acks(wqe) && s.acks_.unasked());
}

TxBatch* StreamTx::gather() {
  Stream& s = stream();
  if (TxBatch* batch = queue_.under_way(); batch != nullptr) {
    if (!repin(*batch)) {
      batch_failed();
    } else if (!s.ending_.terminate_due()) {
      return batch;
    }
  }
  if (!tx_pending()) {
    pace_.pause(s.params_.crc);
    return nullptr;
  }
  if (queue_.under_way() == nullptr && !append_batch()) return nullptr;
  build_batch();
  if (queue_.under_way() == nullptr && s.ending_.terminate_due())
    return gather();  // building failed: say so
  return queue_.under_way();
}

bool StreamTx::append_batch() {
  TxBatch* const batch = queue_.append();
  if (batch == nullptr) return false;
  writer_.attach(batch, pace_.next());
  return true;
}

// A first batch is full. Where the peer still has the one before to work on, there was no pause.
bool StreamTx::widen_batch() {
  if (!pace_.end_pause() || !pace_.was_none(stream().host_.now())) return false;
  writer_.widen(kBatchBytes);
  return true;
}

// Fills the newest batch. Should building fail, the stream is cut short, and the batch may be gone.
void StreamTx::build_batch() {
  while (out_.from != Outbound::From::kNobody || next_message()) {
    if (out_.from != Outbound::From::kNobody && !emit_segment() &&
        !(profile::kWired && work_.doomed)) {
      break;
    }
  }
  retire_work();  // local operations at the front need no transmission
  queue_.drop_empty();
}

void StreamTx::prepare() {
  Stream& s = stream();
  if (queue_.under_way() == nullptr || queue_.has_prepared() || s.ending_.terminate_due()) return;
  if (s.path_.holds() || fetch_at_ != Instant::never()) return;
  const bool work = out_.from != Outbound::From::kNobody || s.requests_.wait() ||
                    (work_.next != s.sq_.tail() && !work_.paused && !s.refusal_.backed_off() &&
                     !work_stalled(s.sq_.at(work_.next)));
  if (!work || s.machine_.state() != StreamState::kRts || !greeting_.may_send) return;
  if (!append_batch()) return;
  TxBatch* const batch = queue_.newest();
  build_batch();
  if (queue_.has_prepared()) batch->unpin();
}

// A batch that waited gets its memory checked again: a region may have been deregistered meanwhile.
bool StreamTx::repin(TxBatch& batch) {
  for (std::size_t i = 0; i < batch.source_count; ++i) {
    if (batch.pins[i].holds_any() || (kBatchCopies && !batch.needs_source(i))) continue;
    const Stag stag = batch.pins[i].stag();
    MemoryEntry* entry = stream().table_.find(stag);
    if (entry == nullptr || !batch.pins[i].acquire(*entry, stag)) {
      batch.unpin();
      return false;
    }
  }
  return true;
}

void StreamTx::sent(std::size_t n) {
  Stream& s = stream();
  if (queue_.under_way() == nullptr) return;
  if (n == 0) return queue_.rest();
  s.counters_.tx_bytes.add(n);
  offsets_.sent += n;
  pace_.taken(queue_.under_way()->bytes, [&s] { return s.host_.now(); });
  queue_.taken(n);
  if (s.params_.steps) s.host_.step({.what = Step::What::kSent, .offset = offsets_.sent});
  s.requests_.taken(offsets_.sent);
}

void StreamTx::released(std::size_t n) {
  Stream& s = stream();
  assert(n <= offsets_.sent - offsets_.released);
  offsets_.released += n;
  queue_.released(n);
  if (s.ending_.is_due()) return s.settle_down();
  if (!s.params_.hold_completions) offsets_.completable = offsets_.released;
  retire_work();
}

void StreamTx::acked(StreamOffset offset) {
  Stream& s = stream();
  if (!s.params_.hold_completions || offset <= offsets_.completable) return;
  offsets_.completable = offset < offsets_.released ? offset : offsets_.released;
  if (!s.ending_.is_due()) retire_work();
}

// Gives up the octets that the transport has not taken: they will not be sent.
void StreamTx::drop_untaken() {
  writer_.take_back(queue_.drop_untaken());
  writer_.attach(nullptr);
}

void StreamTx::retire_work() {
  Stream& s = stream();
  while (s.sq_.head() != work_.next) {
    SendWqe& wqe = s.sq_.at(s.sq_.head());
    if (wqe.end_offset > offsets_.completable) return;
    if (wqe.awaits_response() && !wqe.answered) return;
    if (!s.acks_.cover(wqe)) return;
    complete_send(wqe, WcStatus::kSuccess, 0);
  }
}

bool StreamTx::send_drained() const noexcept {
  const Stream& s = stream();
  return queue_.empty() && out_.from == Outbound::From::kNobody && work_.next == s.sq_.head() &&
         !s.refusal_.backed_off();
}

}  // namespace weft::proto
