// The transmit batches of one stream, in the order of the stream:
//
//   in flight    taken by the transport, which may still read their memory
//   under way    the one that gather() gives: the transport takes its octets
//   prepared     built while the transport had no room
//
// A transport that copies (kernel TCP) has nothing in flight between two calls. One that reads the
// memory later (lwIP without copying, io_uring) has batches in flight until it says released().
//
// One thread at a time. Batches are borrowed from the source and given back once released.
#pragma once

#include <cassert>
#include <cstddef>

#include "proto/batch.h"

namespace weft::proto {

// Where batches come from: the owner's pool.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // A cleared batch. Any number may be asked for; null: none now.
  virtual TxBatch* acquire_batch() = 0;
  virtual void release_batch(TxBatch* batch) = 0;  // cleared
};

class TxQueue {
 public:
  explicit TxQueue(BatchSource& source) : source_(source) {}
  // REQUIRES: the transport reads none of their memory any more.
  ~TxQueue() { clear(); }
  TxQueue(const TxQueue&) = delete;
  TxQueue& operator=(const TxQueue&) = delete;

  // The batch under way; null: the transport has taken everything.
  [[nodiscard]] TxBatch* under_way() const noexcept { return under_way_; }
  // The last batch, to which the writer adds; null: the queue is empty.
  [[nodiscard]] TxBatch* newest() const noexcept { return newest_; }
  // Neither in flight, under way nor prepared.
  [[nodiscard]] bool empty() const noexcept { return oldest_ == nullptr; }
  [[nodiscard]] bool has_prepared() const noexcept {
    return under_way_ != nullptr && newest_ != under_way_;
  }
  // The transport may be reading memory of ours.
  [[nodiscard]] bool in_flight() const noexcept {
    return oldest_ != nullptr && oldest_->released != oldest_->sent;
  }

  // Puts a new batch at the end; null: the source has none now.
  TxBatch* append() {
    TxBatch* batch = source_.acquire_batch();
    if (batch == nullptr) return nullptr;
    assert(batch->next == nullptr && batch->bytes == 0);
    (newest_ != nullptr ? newest_->next : oldest_) = batch;
    newest_ = batch;
    if (under_way_ == nullptr) under_way_ = batch;
    return batch;
  }

  // The transport took `n` more octets of the batch under way.
  void taken(std::size_t n) noexcept {
    TxBatch& b = *under_way_;
    b.sent += n;
    assert(b.sent <= b.bytes);
    if (b.sent == b.bytes) {
      under_way_ = b.next;
      return;
    }
    while (n >= b.slices[b.slice_next].size) n -= b.slices[b.slice_next++].size;
    b.slices[b.slice_next].data += n;
    b.slices[b.slice_next].size -= n;
  }

  // The transport no longer reads the oldest `n` octets in flight.
  void released(std::size_t n) noexcept {
    while (n != 0) {
      assert(oldest_ != nullptr);
      TxBatch& b = *oldest_;
      const std::size_t here = b.sent - b.released;
      const std::size_t part = n < here ? n : here;
      assert(part != 0);
      n -= part;
      b.released += part;
      if (b.released == b.bytes) {
        drop_oldest();
      } else if (b.released == b.sent) {
        b.unpin();
      }
    }
  }

  // The transport is not reading the batch under way now: its memory may be revoked. What is in
  // flight stays pinned.
  void rest() noexcept {
    if (under_way_ != nullptr && under_way_->released == under_way_->sent) under_way_->unpin();
  }

  // Gives the prepared batches back. Returns how many octets they held.
  std::size_t drop_prepared() noexcept;
  // Takes the rest of the batch under way back, without regard to FPDU borders; and all prepared
  // ones. What is in flight stays. Returns how many octets were taken back.
  std::size_t drop_untaken() noexcept;
  // Gives the newest batch back if nothing was built into it.
  void drop_empty() noexcept;
  void clear() noexcept;

 private:
  void give_back(TxBatch* batch) noexcept {
    batch->clear();
    source_.release_batch(batch);
  }
  void drop_oldest() noexcept {
    TxBatch* const b = oldest_;
    oldest_ = b->next;
    if (under_way_ == b) under_way_ = oldest_;
    if (oldest_ == nullptr) newest_ = nullptr;
    give_back(b);
  }
  void make_last(TxBatch* last) noexcept;
  void drop_last(TxBatch* last) noexcept;

  BatchSource& source_;
  TxBatch* oldest_ = nullptr;
  TxBatch* under_way_ = nullptr;
  TxBatch* newest_ = nullptr;
};

}  // namespace weft::proto
