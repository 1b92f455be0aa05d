#include "proto/tx_queue.h"

namespace weft::proto {

// Gives back what lies behind `last`; null: everything.
void TxQueue::make_last(TxBatch* last) noexcept {
  TxBatch* b = last != nullptr ? last->next : oldest_;
  while (b != nullptr) {
    TxBatch* const next = b->next;
    give_back(b);
    b = next;
  }
  newest_ = last;
  if (last != nullptr) {
    last->next = nullptr;
  } else {
    oldest_ = nullptr;
  }
}

std::size_t TxQueue::drop_prepared() noexcept {
  if (under_way_ == nullptr) return 0;
  std::size_t bytes = 0;
  for (const TxBatch* b = under_way_->next; b != nullptr; b = b->next) bytes += b->bytes;
  make_last(under_way_);
  return bytes;
}

std::size_t TxQueue::drop_untaken() noexcept {
  if (under_way_ == nullptr) return 0;
  std::size_t bytes = drop_prepared();
  TxBatch* const b = under_way_;
  bytes += b->bytes - b->sent;
  b->bytes = b->sent;
  under_way_ = nullptr;
  if (b->released == b->sent) drop_last(b);
  return bytes;
}

void TxQueue::drop_empty() noexcept {
  if (newest_ == nullptr || newest_->bytes != 0) return;
  if (under_way_ == newest_) under_way_ = nullptr;
  drop_last(newest_);
}

void TxQueue::drop_last(TxBatch* last) noexcept {
  TxBatch* before = nullptr;
  for (TxBatch* b = oldest_; b != last; b = b->next) before = b;
  make_last(before);
}

void TxQueue::clear() noexcept {
  make_last(nullptr);
  under_way_ = nullptr;
}

}  // namespace weft::proto
