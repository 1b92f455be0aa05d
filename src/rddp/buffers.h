// Buffers that a stream borrows from its owner while it runs: transmit batches, and the place where
// an FPDU that came in parts is put together.
//
// One thread at a time. REQUIRES: the stream is gone before this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "base/arena.h"
#include "proto/batch.h"
#include "proto/fpdu_reader.h"

namespace weft::rddp {

class StreamBuffers {
 public:
  StreamBuffers() = default;
  ~StreamBuffers() {
    while (proto::TxBatch* batch = acquire_batch()) {
      if (profile::kHeap && !lent_) delete batch;
    }
  }
  StreamBuffers(const StreamBuffers&) = delete;
  StreamBuffers& operator=(const StreamBuffers&) = delete;

  // Once, from the heap or from a caller's arena. `batches`: what is built ahead of
  // acknowledgments. False: no memory.
  [[nodiscard]] bool allocate(std::uint32_t batches, Arena* arena = nullptr) {
    lent_ = arena != nullptr;
    if (!profile::kHeap && !lent_) return false;
    carry_ = make_array<std::uint8_t>(arena, proto::kCarryBytesMax);
    if (carry_ == nullptr) return false;
    for (std::uint32_t i = 0; i < batches; ++i) {
      auto* batch = lent_ || !profile::kHeap ? arena->make<proto::TxBatch>()
                                             : new (std::nothrow) proto::TxBatch;
      if (batch == nullptr) return false;
      release_batch(batch);
    }
    return true;
  }

  static constexpr std::size_t memory_needed(std::uint32_t batches) noexcept {
    return arena_bytes<std::uint8_t>(proto::kCarryBytesMax) +
           batches * arena_bytes<proto::TxBatch>();
  }

  // As CarryPool and BatchSource.
  [[nodiscard]] std::uint8_t* acquire_carry(std::size_t size) noexcept {
    if (carry_out_ || size > proto::kCarryBytesMax) return nullptr;
    carry_out_ = true;
    return carry_.get();
  }
  void release_carry() noexcept { carry_out_ = false; }
  [[nodiscard]] proto::TxBatch* acquire_batch() noexcept {
    proto::TxBatch* const batch = spare_;
    if (batch == nullptr) return nullptr;
    spare_ = batch->next;
    batch->next = nullptr;
    return batch;
  }
  void release_batch(proto::TxBatch* batch) noexcept {
    batch->next = spare_;
    spare_ = batch;
  }

 private:
  LentArray<std::uint8_t> carry_;
  bool lent_ = false;  // the arena's
  bool carry_out_ = false;
  proto::TxBatch* spare_ = nullptr;  // those not in use
};

}  // namespace weft::rddp
