// The header that rdma_cm of RoCE-like devices puts ahead of the program's private data, in both
// MPA start-up frames of a connection that only carries the numbers of two queue pairs
// (docs/personality.md). 40 octets:
//
//    0  8   magic "WEFTRDCM", so that no iWARP program's private data is mistaken for it
//    8  1   version, 1
//    9  1   flags: bit 0, the sender's queue pair has a shared receive queue; the others 0
//   10  1   how often the peer retries (0 to 7)
//   11  1   how often the peer retries when the sender has no receive (0 to 7)
//   12  16  GID of the sender's queue pair
//   28  4   its number: 24 bits, of a queue pair or whatever the program says
//   32  4   PSN that the sender sends first
//   36  4   reserved, 0
//
// Behind the Reply the connection carries one octet at most in each direction (kCmReadyToUse,
// kCmRejected); its end is the disconnect. All numbers are big-endian. Values only: no I/O, any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "roce/hello.h"

namespace weft::roce {

struct CmHeader {
  static constexpr std::size_t kSize = 40;

  bool shared_queue = false;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  Gid gid{};
  std::uint32_t number = 0;
  std::uint32_t psn = 0;

  bool operator==(const CmHeader&) const = default;
};

// The end that connected has made its queue pair ready: the connection is established.
inline constexpr std::uint8_t kCmReadyToUse = 1;
// It wants none after all.
inline constexpr std::uint8_t kCmRejected = 2;

// Reads the header; the program's data follows. On error `in` has not moved.
//   kTruncated      fewer than kSize octets
//   kBadKey         no such header
//   kBadRevision    of a version that is not spoken here
//   kReservedBits   something that has to be zero is not
//   kProtocol       a field is out of its range
[[nodiscard]] Result<CmHeader> decode_cm_header(ByteReader& in) noexcept;
// Appends kSize octets. REQUIRES: room for them, and fields in their range.
void encode(const CmHeader& header, ByteWriter& out) noexcept;

}  // namespace weft::roce
