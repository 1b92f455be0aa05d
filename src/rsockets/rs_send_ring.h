// The octets of the send ring of an rsocket: which are free, and where the next ones go.
//
// Values. Octets come back in the order in which they were taken.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace weft::rsockets {

class RsSendRing {
 public:
  // Once, before use.
  void open(std::size_t bytes) {
    assert(bytes_ == 0 && bytes != 0);
    bytes_ = free_ = bytes;
  }

  [[nodiscard]] std::size_t free() const { return free_; }
  // Below this much free memory, a sender waits: tiny pieces cost as much as large ones.
  [[nodiscard]] bool is_low() const { return free_ < std::min(kLowWater, bytes_ / 2); }

  // Where the next `length` octets go: from at() on, the first so many of them, and the others at
  // the ring's begin. REQUIRES: they are free.
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] std::size_t before_wrap(std::size_t length) const {
    assert(length <= free_);
    return std::min(length, bytes_ - at_);
  }
  // They have been taken.
  void take(std::size_t length) {
    assert(length <= free_);
    at_ = (at_ + length) % bytes_;
    free_ -= length;
  }
  // The oldest `length` octets that were taken are free again.
  void give_back(std::size_t length) {
    assert(length <= bytes_ - free_);
    free_ += length;
  }

 private:
  static constexpr std::size_t kLowWater = 2048;

  std::size_t bytes_ = 0;
  std::size_t at_ = 0;
  std::size_t free_ = 0;
};

}  // namespace weft::rsockets
