// The memory of a lane: the segment that both ends of the connection share, with a ring for each
// direction, and what this end has for itself.
//
// Threads: any that is counted (calls_under_way.h); attach() is called once, with Meeting::lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "sockets/grant/grant_words.h"
#include "sockets/granted/segment.h"
#include "sockets/granted/writers_lock.h"

namespace weft::sockets::granted {

// This end's alone: shared by the processes that have it, and by nobody else.
struct Own {
  GrantOwn words;
  WritersLock lock;
};

class LaneRings {
 public:
  // REQUIRES: no call knows the lane, and it has no memory. False: there is none to be had.
  [[nodiscard]] bool map_own();
  // REQUIRES: no call knows the lane. After it there is no memory until map_own().
  void unmap();
  [[nodiscard]] bool has_own() const { return own_ != nullptr; }

  // `end`: 0 or 1, which end of the segment's connection this is.
  void attach(Segment& segment, unsigned end);
  [[nodiscard]] bool attached() const { return segment_.load() != nullptr; }

  // REQUIRES of all below: attached().
  [[nodiscard]] GrantMemory in() const { return direction(1 - end_); }
  [[nodiscard]] GrantMemory out() const { return direction(end_); }
  // The octets of out().
  [[nodiscard]] std::uint8_t* ring_out() const { return segment().rings.at(end_).data(); }
  [[nodiscard]] WritersLock& lock() const { return own_->lock; }
  // Notes where this end runs. Whether the other end ran on the same core last: then it can't go on
  // while this thread looks for its octets.
  [[nodiscard]] bool on_one_core() const;
  [[nodiscard]] Segment& segment() const { return *segment_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] GrantMemory direction(unsigned from) const {
    Segment& s = segment();
    return {s.words.at(from), own_->words, s.rings.at(from).data(), kRingBytes};
  }

  Own* own_ = nullptr;
  unsigned end_ = 0;
  std::atomic<Segment*> segment_{nullptr};
};

}  // namespace weft::sockets::granted
