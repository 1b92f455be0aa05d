// How large the ULPDUs are that a connection sends, where no TCP segment decides.
#pragma once

#include <cstdint>

#include "wire/fpdu.h"

namespace weft::verbs {

inline constexpr std::uint32_t kCappedFpdu = 16U << 10U;
// The largest ULPDU whose FPDU is within the cap: length field and CRC are around it.
inline constexpr std::uint32_t kCappedUlpdu = kCappedFpdu - 6;
static_assert(fpdu_size(kCappedUlpdu) == kCappedFpdu);
// On loopback, and between peers that know each other, no one counts segments: 16 KiB of payload
// behind a tagged header keep the pieces of a large message aligned.
inline constexpr std::uint32_t kLargeCrcUlpdu = (16U << 10U) + kDdpTaggedSize;

[[nodiscard]] constexpr std::uint32_t large_ulpdu(bool crc) noexcept {
  return crc ? kLargeCrcUlpdu : kMaxUlpdu;
}

}  // namespace weft::verbs
