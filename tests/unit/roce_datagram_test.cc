// Datagrams of queue pairs and the route headers before received ones.
#include "roce/datagram.h"

#include <gtest/gtest.h>

#include "roce/qp_number.h"

namespace weft::roce {
namespace {

using Octets = std::array<std::uint8_t, Datagram::kSize>;

Datagram example() {
  Datagram d;
  d.with_immediate = d.solicited = true;
  d.from = to_number({40000, 2});
  d.to = to_number({50000, 511});
  d.key = 0x8111'1111;
  d.immediate = 0x0102'0304;
  return d;
}

Octets encoded(const Datagram& d) {
  Octets out{};
  ByteWriter writer{std::span(out)};
  encode(d, writer);
  EXPECT_EQ(writer.room(), 0U);
  return out;
}

Error error_with(std::size_t at, std::uint8_t value) {
  Octets octets = encoded(example());
  octets[at] = value;
  ByteReader in{std::span<const std::uint8_t>(octets)};
  const auto d = decode_datagram(in);
  return d ? Error{} : d.error();
}

TEST(RoceDatagram, ComesBackAsItWas) {
  const Octets octets = encoded(example());
  ByteReader in{std::span<const std::uint8_t>(octets)};
  EXPECT_EQ(decode_datagram(in).value(), example());
  EXPECT_EQ(load_be32(&octets[16]), 0x8111'1111U);
}

TEST(RoceDatagram, CutAtEveryOctetIsTruncated) {
  const Octets octets = encoded(example());
  for (std::size_t size = 0; size < octets.size(); ++size) {
    ByteReader in{std::span<const std::uint8_t>(octets).first(size)};
    EXPECT_EQ(decode_datagram(in).error(), Error::kTruncated);
    EXPECT_EQ(in.remaining(), size);
  }
}

TEST(RoceDatagram, WhatIsWrongIsNamed) {
  EXPECT_EQ(error_with(0, 'X'), Error::kBadKey);
  EXPECT_EQ(error_with(4, 2), Error::kBadRevision);
  EXPECT_EQ(error_with(5, 4), Error::kReservedBits);
  EXPECT_EQ(error_with(7, 1), Error::kReservedBits);
  EXPECT_EQ(error_with(5, 2), Error::kReservedBits);  // immediate data without the flag
  EXPECT_EQ(error_with(12, 1), Error::kProtocol);     // a number of more than 24 bits
}

Gid v4(std::uint8_t last) { return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last}; }

TEST(RoceGrh, OfIpv4StandsInTheLastTwentyOctetsWithAGoodChecksum) {
  const Grh grh{v4(1), v4(2), 100, 63, 0x68};
  auto octets = encode_grh(grh);
  EXPECT_EQ(octets[20], 0x45);
  EXPECT_EQ(octets[21], 0x68);
  EXPECT_EQ(load_be16(&octets[22]), 120U);
  EXPECT_EQ(octets[39], 2);
  octets[0] = 0x60;  // what stands before it belongs to nobody
  EXPECT_EQ(decode_grh(octets).value(), grh);
  octets[39] ^= 1U;  // the checksum does not fit now
  EXPECT_NE(decode_grh(octets)->to, grh.to);
  octets[0] = 0;
  EXPECT_EQ(decode_grh(octets).error(), Error::kBadVersion);
}

TEST(RoceGrh, OfIpv6IsThatHeader) {
  const Grh grh{{0xfd, 1}, {0xfd, 2}, 8, 64, 0xa5};
  const auto octets = encode_grh(grh);
  EXPECT_EQ(octets[0], 0x6a);
  EXPECT_EQ(octets[1], 0x50);
  EXPECT_EQ(decode_grh(octets).value(), grh);
  EXPECT_EQ(decode_grh(std::span(octets).first(39)).error(), Error::kTruncated);
}

}  // namespace
}  // namespace weft::roce
