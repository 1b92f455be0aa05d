// The FPDU of MPA: length, pad, CRC field, markers, and how large a ULPDU may be.
// RFC 5044 sections 4 and 5.
//
// Inline arithmetic for the data path: no state, no allocation, any thread.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/seq.h"
#include "wire/limits.h"

namespace weft {

// Zero octets between ULPDU and CRC, 0 to 3.
[[nodiscard]] constexpr std::uint32_t fpdu_pad(std::uint32_t ulpdu_len) noexcept {
  return (0U - (ulpdu_len + 2U)) & 3U;
}

// Octets of a whole FPDU without markers: length field, ULPDU, pad, CRC.
[[nodiscard]] constexpr std::uint32_t fpdu_size(std::uint32_t ulpdu_len) noexcept {
  return ((ulpdu_len + 2U + 3U) & ~3U) + static_cast<std::uint32_t>(kCrcSize);
}

// Octets under the CRC, without markers: all of the FPDU before the CRC field.
[[nodiscard]] constexpr std::uint32_t fpdu_covered(std::uint32_t ulpdu_len) noexcept {
  return (ulpdu_len + 2U + 3U) & ~3U;
}

inline constexpr std::uint32_t kMinFpduTagged = fpdu_size(kDdpTaggedSize);
inline constexpr std::uint32_t kMinFpduUntagged = fpdu_size(kDdpUntaggedSize);

// ULPDU_Length: counts neither itself nor pad, CRC or markers.
inline void store_ulpdu_length(std::uint8_t* p, std::uint16_t ulpdu_len) noexcept {
  store_be16(p, ulpdu_len);
}
[[nodiscard]] inline std::uint16_t load_ulpdu_length(const std::uint8_t* p) noexcept {
  return load_be16(p);
}

// The CRC field: least significant octet first.
inline void store_crc(std::uint8_t* p, std::uint32_t crc) noexcept { store_le32(p, crc); }
[[nodiscard]] inline std::uint32_t load_crc(const std::uint8_t* p) noexcept { return load_le32(p); }

// A marker of 4 octets: two reserved, sent as zero and ignored, then FPDUPTR, the distance back to
// the length field of the FPDU the marker lies in (0 between FPDUs). A sender's distance is a
// multiple of 4; a receiver masks the low two bits.
inline void store_marker(std::uint8_t* p, std::uint32_t fpdu_ptr) noexcept {
  assert(fpdu_ptr <= 0xffffU && (fpdu_ptr & 3U) == 0);
  store_be32(p, fpdu_ptr);
}
[[nodiscard]] inline std::uint16_t load_marker(const std::uint8_t* p) noexcept {
  return static_cast<std::uint16_t>(load_be16(p + 2) & 0xfffcU);
}

// Octets that may be sent from `offset` before a marker is due: 0 at a multiple of 512, where the
// marker comes first.
[[nodiscard]] constexpr std::uint32_t until_marker(StreamOffset offset) noexcept {
  return static_cast<std::uint32_t>((0U - offset) & (kMarkerInterval - 1));
}

// How many markers fall into a run of `len` data octets that begins at `offset` of the stream: one
// before the first octet if the offset is a multiple of 512, then one every 508 data octets. A
// marker due right behind the last octet is not counted: it belongs to what follows.
// REQUIRES: `offset` is not inside a marker. All FPDUs begin 4-aligned, so it never is.
[[nodiscard]] constexpr std::uint32_t markers_in(StreamOffset offset, std::uint32_t len) noexcept {
  constexpr std::uint32_t kDataPerMarker =
      static_cast<std::uint32_t>(kMarkerInterval - kMarkerSize);
  const std::uint32_t before = until_marker(offset);
  return len <= before ? 0 : 1 + (len - before - 1) / kDataPerMarker;
}

// Octets that a whole FPDU takes in a stream with markers, if it begins (with its leading marker,
// if one is due) at `offset`.
[[nodiscard]] constexpr std::uint32_t fpdu_size_marked(StreamOffset offset,
                                                       std::uint32_t ulpdu_len) noexcept {
  const std::uint32_t size = fpdu_size(ulpdu_len);
  return size + markers_in(offset, size) * static_cast<std::uint32_t>(kMarkerSize);
}

// The largest ULPDU to send when one TCP segment carries `emss` octets (MSS less options, RFC 5044
// section 4.5): such an FPDU fits one segment wherever it starts. Between 128 and 64768; below 128
// alignment is given up.
[[nodiscard]] constexpr std::uint32_t mulpdu(std::uint32_t emss, bool markers) noexcept {
  constexpr auto kInterval = static_cast<std::uint32_t>(kMarkerInterval);
  const std::uint32_t due = emss / kInterval + (emss % kInterval != 0 ? 1U : 0U);
  const std::uint32_t marker_bytes = markers ? due * static_cast<std::uint32_t>(kMarkerSize) : 0;
  const std::uint32_t overhead = 6 + marker_bytes + emss % 4;
  if (emss < overhead) return kMinMulpdu;
  return std::clamp(emss - overhead, kMinMulpdu, kMaxUlpdu);
}

}  // namespace weft
