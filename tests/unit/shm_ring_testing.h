// Two ends of a ring in one process, made as two processes make them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shm/ring_handover.h"

namespace weft::shm {

struct RingPair {
  std::optional<Ring> responder;  // made the memory
  std::optional<Ring> initiator;  // adopted it

  static RingPair make(std::uint32_t bytes = kRingBytesMin) {
    RingPair pair;
    auto offer = RingOffer::open();
    if (!offer) return pair;
    auto made = answer_ring_offer(offer->ticket(), bytes);
    if (!made) return pair;
    auto taken = offer->take();
    if (!taken || !made->secure()) return pair;
    pair.responder.emplace(std::move(*made));
    pair.initiator.emplace(std::move(*taken));
    return pair;
  }
  [[nodiscard]] bool whole() const { return responder.has_value() && initiator.has_value(); }
};

inline std::size_t send_bytes(Ring& ring, std::span<const std::uint8_t> bytes) {
  const Slice part{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  return ring.send({&part, 1}).value_or(0);
}

inline std::vector<std::uint8_t> receive_bytes(Ring& ring, std::size_t most) {
  std::vector<std::uint8_t> out(most);
  const Slice part{out.data(), out.size()};
  out.resize(ring.receive({&part, 1}).value_or(0));
  return out;
}

// Octet `i` of a stream that both ends know.
inline std::uint8_t pattern(std::uint64_t i) {
  return static_cast<std::uint8_t>((i * 2654435761U) >> 13U);
}

}  // namespace weft::shm
