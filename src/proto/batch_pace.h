// How large transmit batches become. With CRCs on, the first one behind a pause is small: the peer
// works on it while the CRCs of the next are computed. Each further one is twice as large.
//
// One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/time.h"
#include "proto/batch.h"

namespace weft::proto {

class BatchPace {
 public:
  // Nothing was left to send; `small`: what follows begins small.
  void pause(bool small) noexcept { after_pause_ = small; }
  // Octets of the batch that is begun now.
  [[nodiscard]] std::size_t next() noexcept {
    if (!kSteps) return kBatchBytes;
    if (after_pause_) next_ = kBatchBytesFirst;
    return std::exchange(next_, std::min(2 * next_, kBatchBytes));
  }
  // A batch is full. True once for the first one behind a pause, if it was one: see was_none().
  [[nodiscard]] bool end_pause() noexcept { return kSteps && std::exchange(after_pause_, false); }
  // Whether there was a pause at all: not while the peer has the batch before to work on. If there
  // was none, the batch becomes as large as the others.
  [[nodiscard]] bool was_none(Instant now) noexcept {
    if (now > no_pause_until_) return false;
    next_ = kBatchBytes;
    return true;
  }
  // The transport has taken some of a batch of this many octets; `now` is asked if it matters.
  template <class Clock>
  void taken(std::size_t bytes, Clock&& now) noexcept {
    if (kSteps && bytes >= kBatchBytesFirst) no_pause_until_ = now() + kBatchPause;
  }

 private:
  static constexpr bool kSteps = kBatchBytesFirst != kBatchBytes;

  std::size_t next_ = kBatchBytes;
  bool after_pause_ = false;
  Instant no_pause_until_{-1};  // before 0: never
};

}  // namespace weft::proto
