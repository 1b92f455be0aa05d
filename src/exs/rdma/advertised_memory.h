// Memory that the peer has offered by adverts, in the order of StreamSender and numbered as it
// numbers them.
//
// Values.
#pragma once

#include <cassert>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "exs/core/exs_messages.h"

namespace weft::exs {

class AdvertisedMemory {
 public:
  void add(std::span<const Segment> segments) {
    adverts_.emplace_back(segments.begin(), segments.end());
  }
  // The adverts before `number` are used up, or void.
  void drop_before(std::uint64_t number) {
    assert(number >= first_ && number - first_ <= adverts_.size());
    for (; first_ != number; ++first_) adverts_.pop_front();
  }
  // REQUIRES: `number` is the first that is left.
  [[nodiscard]] std::span<const Segment> first(std::uint64_t number) const {
    assert(number == first_ && !adverts_.empty());
    return adverts_.front();
  }
  [[nodiscard]] bool empty() const { return adverts_.empty(); }

 private:
  std::deque<std::vector<Segment>> adverts_;
  std::uint64_t first_ = 0;
};

}  // namespace weft::exs
