// The stream of a lane: one connection after the other, and what all of them have counted.
//
// The lane's holder works with the stream. Any thread may ask for its counters meanwhile.
#pragma once

#include <weft/counters.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <optional>
#include <utility>

#include "os/lock.h"
#include "progress/counters_sum.h"
#include "proto/stream.h"

namespace weft::progress {

class LaneStream {
 public:
  // Counters of the stream before this one stay in the sum.
  template <class... Arguments>
  void begin(Arguments&&... arguments) {
    const os::SpinGuard lock(lock_);
    if (stream_) add(past_, stream_->counters());
    readable_.store(false, std::memory_order_release);
    stream_.emplace(std::forward<Arguments>(arguments)...);
    readable_.store(true, std::memory_order_release);
  }

  // With the lane held.
  explicit operator bool() const noexcept { return stream_.has_value(); }
  proto::Stream* operator->() noexcept { return &**this; }
  const proto::Stream* operator->() const noexcept {
    assert(stream_);
    return &*stream_;
  }
  proto::Stream& operator*() noexcept {
    assert(stream_);
    return *stream_;
  }

  // Any thread. 0 before there is a stream.
  [[nodiscard]] std::uint32_t max_ulpdu() const {
    const os::SpinGuard lock(lock_);
    return readable_.load(std::memory_order_acquire) ? stream_->max_ulpdu() : 0;
  }
  void add_counters(Counters& sum) const {
    const os::SpinGuard lock(lock_);
    add(sum, past_);
    if (readable_.load(std::memory_order_acquire)) add(sum, stream_->counters());
  }

 private:
  std::optional<proto::Stream> stream_;
  mutable os::SpinLock lock_;  // against begin()
  std::atomic<bool> readable_{false};
  Counters past_ WEFT_GUARDED_BY(lock_);  // of streams before this one
};

}  // namespace weft::progress
