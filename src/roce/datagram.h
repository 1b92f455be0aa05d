// A message of an unreliable datagram queue pair: one UDP datagram between the ports that the
// numbers of both name (qp_number.h), a header of 24 octets and the payload.
//
//    0  4   magic "WFUD"
//    4  1   version, 1
//    5  1   flags: bit 0 immediate data, bit 1 solicited; the others 0
//    6  2   reserved, 0
//    8  4   queue pair number of the sender
//   12  4   queue pair number of the receiver
//   16  4   Q_Key
//   20  4   immediate data; without it 0
//
// All numbers are big-endian. The GIDs are the addresses of the IP header, which the sender cannot
// choose. Values only: no I/O, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "roce/hello.h"

namespace weft::roce {

struct Datagram {
  static constexpr std::size_t kSize = 24;
  static constexpr std::size_t kPayloadMax = 4096;  // the largest MTU of verbs

  bool with_immediate = false;
  bool solicited = false;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t key = 0;
  std::uint32_t immediate = 0;

  bool operator==(const Datagram&) const = default;
};

// Reads the header; the payload follows. On error `in` has not moved.
//   kTruncated      fewer than kSize octets
//   kBadKey         not such a datagram at all
//   kBadRevision    of a version that is not spoken here
//   kReservedBits   something that has to be zero is not
//   kProtocol       a number that no queue pair has
[[nodiscard]] Result<Datagram> decode_datagram(ByteReader& in) noexcept;
// Appends kSize octets. REQUIRES: room for them, and `from` and `to` are numbers.
void encode(const Datagram& header, ByteWriter& out) noexcept;

// The Global Route Header that verbs put before the payload of a received datagram: 40 octets. Of
// IPv4 it is that header, in the last 20 octets; the first 20 are not written (as RoCE v2 has it).
inline constexpr std::size_t kGrhSize = 40;
inline constexpr std::size_t kGrhSizeIpv4 = 20;
struct Grh {
  Gid from{};
  Gid to{};
  std::uint16_t payload = 0;  // octets behind the IP header
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;

  bool operator==(const Grh&) const = default;
};
[[nodiscard]] bool is_ipv4(const Gid& gid) noexcept;
// All 40 octets. Where both are IPv4, octets 0 to 19 are zero, and belong to nobody.
[[nodiscard]] std::array<std::uint8_t, kGrhSize> encode_grh(const Grh& grh) noexcept;
//   kTruncated    fewer than 40 octets
//   kBadVersion   neither an IPv4 header with a good checksum nor an IPv6 header
[[nodiscard]] Result<Grh> decode_grh(std::span<const std::uint8_t> octets) noexcept;

}  // namespace weft::roce
