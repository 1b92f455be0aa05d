// Octets of a ULPDU where they were read, perhaps with markers still among them.
//
// They are copied to their place once, and the markers left out on the way. Inline: data path.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "wire/limits.h"

namespace weft::proto {

class MarkedOctets {
 public:
  static constexpr std::size_t kNoMarker = std::numeric_limits<std::size_t>::max();

  MarkedOctets() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): octets without markers are such octets
  MarkedOctets(std::span<const std::uint8_t> plain) noexcept
      : at_(plain.data()), left_(plain.size()) {}
  // `size` octets, markers not counted; the first marker stands behind `until_marker` of them, the
  // others at their interval.
  MarkedOctets(const std::uint8_t* at, std::size_t size, std::size_t until_marker) noexcept
      : at_(at), left_(size), until_marker_(until_marker) {}

  [[nodiscard]] std::size_t size() const noexcept { return left_; }
  [[nodiscard]] bool empty() const noexcept { return left_ == 0; }
  // Those before the first marker.
  [[nodiscard]] std::span<const std::uint8_t> front() const noexcept {
    return {at_, std::min(left_, until_marker_)};
  }

  // Moves the first `n` to `to`.  REQUIRES: n <= size().
  void move_to(std::uint8_t* to, std::size_t n) noexcept {
    assert(n <= left_);
    while (n > until_marker_) {
      std::memcpy(to, at_, until_marker_);
      to += until_marker_;
      n -= until_marker_;
      left_ -= until_marker_;
      at_ += until_marker_ + kMarkerSize;
      until_marker_ = kMarkerInterval - kMarkerSize;
    }
    if (n != 0) std::memcpy(to, at_, n);  // none may lie nowhere
    drop(n);
  }
  // Leaves out the first `n`.  REQUIRES: n <= front().size().
  void drop(std::size_t n) noexcept {
    at_ += n;
    left_ -= n;
    if (until_marker_ != kNoMarker) until_marker_ -= n;
  }

 private:
  const std::uint8_t* at_ = nullptr;
  std::size_t left_ = 0;
  std::size_t until_marker_ = kNoMarker;
};

}  // namespace weft::proto
