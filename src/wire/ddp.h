// DDP segment headers: RFC 5041 sections 4.1 to 4.3.
//
// Inline for the data path: fixed sizes, big-endian, no allocation, any thread. The two load_ and
// store_ forms work on memory whose size the caller has checked; decode_ and encode check it.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "base/seq.h"
#include "wire/limits.h"

namespace weft {

// First octet of both headers: T, L, four reserved bits (sent as zero, ignored), version.
inline constexpr std::uint8_t kDdpTaggedBit = 0x80;
inline constexpr std::uint8_t kDdpLastBit = 0x40;
inline constexpr std::uint8_t kDdpVersionMask = 0x03;
inline constexpr std::uint8_t kDdpVersion = 0x01;

[[nodiscard]] constexpr bool peek_tagged(std::uint8_t first_octet) noexcept {
  return (first_octet & kDdpTaggedBit) != 0;
}
[[nodiscard]] constexpr bool peek_last(std::uint8_t first_octet) noexcept {
  return (first_octet & kDdpLastBit) != 0;
}
[[nodiscard]] constexpr bool ddp_version_ok(std::uint8_t first_octet) noexcept {
  return (first_octet & kDdpVersionMask) == kDdpVersion;
}
// Size of the header that begins with this octet.
[[nodiscard]] constexpr std::size_t ddp_header_size(std::uint8_t first_octet) noexcept {
  return peek_tagged(first_octet) ? kDdpTaggedSize : kDdpUntaggedSize;
}
[[nodiscard]] constexpr std::uint8_t ddp_control(bool tagged, bool last) noexcept {
  return static_cast<std::uint8_t>((tagged ? kDdpTaggedBit : 0) | (last ? kDdpLastBit : 0) |
                                   kDdpVersion);
}

// Untagged queues. No others exist.
inline constexpr std::uint32_t kQueueSend = 0;            // Send kinds and immediate data
inline constexpr std::uint32_t kQueueReadRequest = 1;     // Read Requests and Atomic Requests
inline constexpr std::uint32_t kQueueTerminate = 2;       // the one Terminate
inline constexpr std::uint32_t kQueueAtomicResponse = 3;  // Atomic Responses
inline constexpr std::uint32_t kQueueCount = 4;

// Tagged segment: payload goes where STag and TO say.
struct DdpTagged {
  static constexpr std::size_t kSize = kDdpTaggedSize;

  bool last = false;          // L: final segment of its message
  std::uint8_t ulp_ctrl = 0;  // RsvdULP octet: the RDMAP control octet
  Stag stag{};                // names a buffer at the receiver
  std::uint64_t to = 0;       // where this payload starts in it, in octets

  bool operator==(const DdpTagged&) const = default;
};

// Untagged segment: payload goes into the buffer queued for (queue, msn), at mo.
struct DdpUntagged {
  static constexpr std::size_t kSize = kDdpUntaggedSize;

  bool last = false;           // L: final segment of its message
  std::uint8_t ulp_ctrl = 0;   // RsvdULP octet: the RDMAP control octet
  std::uint32_t rsvd_ulp = 0;  // STag to invalidate, else sent as 0 and ignored
  std::uint32_t queue = 0;     // QN, raw
  Msn msn{};                   // message sequence number in that queue
  std::uint32_t mo = 0;        // octets of the message before this segment

  bool operator==(const DdpUntagged&) const = default;
};

// REQUIRES: kSize octets at p. T bit and version are not looked at: the caller has checked them
// (ddp_version_ok, peek_tagged, or check_segment_control of wire/rdmap.h for all at once).
[[nodiscard]] inline DdpTagged load_ddp_tagged(const std::uint8_t* p) noexcept {
  return {.last = peek_last(p[0]),
          .ulp_ctrl = p[1],
          .stag = Stag{load_be32(p + 2)},
          .to = load_be64(p + 6)};
}
[[nodiscard]] inline DdpUntagged load_ddp_untagged(const std::uint8_t* p) noexcept {
  return {.last = peek_last(p[0]),
          .ulp_ctrl = p[1],
          .rsvd_ulp = load_be32(p + 2),
          .queue = load_be32(p + 6),
          .msn = Msn{load_be32(p + 10)},
          .mo = load_be32(p + 14)};
}

// Write exactly kSize octets. REQUIRES: that much room at p.
inline void store_ddp(const DdpTagged& h, std::uint8_t* p) noexcept {
  p[0] = ddp_control(true, h.last);
  p[1] = h.ulp_ctrl;
  store_be32(p + 2, h.stag.value);
  store_be64(p + 6, h.to);
}
inline void store_ddp(const DdpUntagged& h, std::uint8_t* p) noexcept {
  p[0] = ddp_control(false, h.last);
  p[1] = h.ulp_ctrl;
  store_be32(p + 2, h.rsvd_ulp);
  store_be32(p + 6, h.queue);
  store_be32(p + 10, h.msn.value);
  store_be32(p + 14, h.mo);
}

// Reads one header and leaves `in` at the payload. On error `in` has not moved. The result borrows
// nothing.
//
//   kTruncated   fewer than kSize octets remain
//   kNotTagged   T bit clear: this is an untagged segment
//   kBadVersion  DV is not 1; answer with Terminate 1/1/04
[[nodiscard]] inline Result<DdpTagged> decode_ddp_tagged(ByteReader& in) noexcept {
  if (in.remaining() < DdpTagged::kSize) return fail(Error::kTruncated);
  const std::uint8_t* p = in.rest().data();
  if (!peek_tagged(p[0])) return fail(Error::kNotTagged);
  if (!ddp_version_ok(p[0])) return fail(Error::kBadVersion);
  in.skip(DdpTagged::kSize);
  return load_ddp_tagged(p);
}

// The same for untagged segments.
//
//   kTruncated   fewer than kSize octets remain
//   kTagged      T bit set: this is a tagged segment
//   kBadVersion  DV is not 1; answer with Terminate 1/2/06
[[nodiscard]] inline Result<DdpUntagged> decode_ddp_untagged(ByteReader& in) noexcept {
  if (in.remaining() < DdpUntagged::kSize) return fail(Error::kTruncated);
  const std::uint8_t* p = in.rest().data();
  if (peek_tagged(p[0])) return fail(Error::kTagged);
  if (!ddp_version_ok(p[0])) return fail(Error::kBadVersion);
  in.skip(DdpUntagged::kSize);
  return load_ddp_untagged(p);
}

// Append exactly kSize octets. REQUIRES: room for them.
inline void encode(const DdpTagged& h, ByteWriter& out) noexcept {
  store_ddp(h, out.claim(DdpTagged::kSize));
}
inline void encode(const DdpUntagged& h, ByteWriter& out) noexcept {
  store_ddp(h, out.claim(DdpUntagged::kSize));
}

}  // namespace weft
