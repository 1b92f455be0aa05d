// One transmit batch: FPDUs laid out as a gather list, ready for one system call.
//
// Headers, trailers and small payloads are copied into the arena; larger payloads are named where
// they lie, or copied too where their CRC is sent (FpduWriter::copies_payload). A stream borrows a
// batch from its host while it has bytes under way and gives it back when the transport has
// released all of them, so idle connections hold none.
#pragma once

#include <weft/limits.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/profile.h"
#include "base/slice.h"
#include "base/time.h"
#include "proto/stag_table.h"

namespace weft::proto {

inline constexpr std::size_t kBatchSlices = profile::kBatchSlices;
inline constexpr std::size_t kBatchArenaBytes = profile::kBatchArenaBytes;
inline constexpr std::size_t kBatchBytes = profile::kBatchBytes;  // bytes per batch, about
// With CRCs on, the first batch after a pause is this small: the peer works on it while the CRCs of
// the next batch are computed. Each further one is twice as large.
inline constexpr std::size_t kBatchBytesFirst = profile::kBatchBytesFirst;
// A batch that follows such a batch sooner than this follows without a pause: the peer is still at
// work.
inline constexpr Duration kBatchPause{60'000};
// Distinct STags named by one batch: a message may begin while there is room for all of its SGEs.
inline constexpr std::size_t kBatchSources = 2 * std::size_t{limits::kSgesPerRequest};
inline constexpr std::size_t kBatchFpdus = profile::kBatchFpdus;
inline constexpr std::size_t kBatchSpillBytes = profile::kBatchSpillBytes;
// Whether payload is copied to lay markers into it or to compute its CRC, and the rest of an FPDU
// when the batch is cut. If not, both stay where they are, and a cut batch keeps its pins.
inline constexpr bool kBatchCopies = profile::kBatchCopies;

struct TxBatch {
  // Members that every message touches come first, and lie together.
  std::size_t bytes = 0;     // of the whole batch
  std::size_t sent = 0;      // of them, taken by the transport
  std::size_t released = 0;  // of those, no longer read by the transport
  std::size_t slice_count = 0;
  std::size_t slice_next = 0;  // first not wholly sent
  std::size_t arena_used = 0;
  std::size_t fpdu_count = 0;
  std::size_t source_count = 0;
  TxBatch* next = nullptr;  // in its TxQueue

  // Memory named by slices, pinned while the transport may read it. The first source_count of them
  // have an STag, pinned or not.
  Pin pins[kBatchSources];
  // The last FPDU with payload from each. Once that has been taken, its requests may have
  // completed, and the memory may be gone.
  std::uint32_t source_fpdus[kBatchSources];

  // Where FPDUs end, in bytes from the start of the batch: the borders at which it may be cut.
  std::uint32_t fpdu_ends[kBatchFpdus];
  Slice slices[kBatchSlices];
  // Where batches copy (kBatchCopies), behind the first kBatchArenaBytes of it: the rest of the
  // FPDU in progress when the batch is cut short, at most one FPDU. With markers all of an FPDU
  // lies in the arena, and its rest stays where it is; so the arena is all of it.
  std::uint8_t arena[kBatchArenaBytes + kBatchSpillBytes];

  // The octets that the transport has not taken, and how many of them are up to the next border.
  [[nodiscard]] std::span<const Slice> unsent() const noexcept {
    return {slices + slice_next, slice_count - slice_next};
  }
  [[nodiscard]] std::size_t unsent_of_fpdu() const noexcept {
    return *std::upper_bound(fpdu_ends, fpdu_ends + fpdu_count, sent) - sent;
  }
  // Whether the transport has still to take payload from source `i`.
  [[nodiscard]] bool needs_source(std::size_t i) const noexcept {
    return source_fpdus[i] >= fpdu_count || fpdu_ends[source_fpdus[i]] > sent;
  }
  void clear() noexcept {
    slice_count = slice_next = arena_used = bytes = sent = released = fpdu_count = 0;
    unpin();
    source_count = 0;
    next = nullptr;
  }
  void unpin() noexcept {
    for (std::size_t i = 0; i < source_count; ++i) pins[i].release();
  }
};

}  // namespace weft::proto
