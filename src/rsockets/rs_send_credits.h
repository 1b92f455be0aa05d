// How many messages the peer of an rsocket has receives for.
//
// Values. Numbers are modulo 2^16, as on the wire.
#pragma once

#include <cassert>
#include <cstdint>

namespace weft::rsockets {

class RsSendCredits {
 public:
  // The peer allows messages up to number `last`.
  void allow(std::uint16_t last) { allowed_ = last; }
  // Messages that cost a credit may be sent. The last credits stay for messages that cost none at
  // the peer, but a receive (H1). A count above half of the range is a peer that takes credits
  // back: then there are none left.
  [[nodiscard]] bool any() const {
    const auto left = static_cast<std::uint16_t>(allowed_ - sent_);
    return left > kReserve && left <= 0x8000U + kReserve;
  }
  // REQUIRES any().
  void sent() {
    assert(any());
    ++sent_;
  }

 private:
  static constexpr std::uint16_t kReserve = 8;

  std::uint16_t allowed_ = 0;
  std::uint16_t sent_ = 0;
};

}  // namespace weft::rsockets
