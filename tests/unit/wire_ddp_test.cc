#include "wire/ddp.h"

#include <gtest/gtest.h>

#include "wire_testing.h"

namespace weft {
namespace {

using namespace weft::testing;

const Bytes kTaggedBytes = hex("c140 01020304 0000000000001000");
const DdpTagged kTagged{.last = true, .ulp_ctrl = 0x40, .stag = Stag{0x01020304}, .to = 0x1000};

const Bytes kUntaggedBytes = hex("0143 0a0b0c0d 00000003 00000102 00000008");
const DdpUntagged kUntagged{.last = false,
                            .ulp_ctrl = 0x43,
                            .rsvd_ulp = 0x0a0b0c0d,
                            .queue = 3,
                            .msn = Msn{0x102},
                            .mo = 8};

TEST(DdpTaggedCodec, ReadsAndWritesTheHeader) {
  const Bytes with_payload = kTaggedBytes + hex("aabb");
  ByteReader in(with_payload);
  EXPECT_EQ(decode_ddp_tagged(in), kTagged);
  EXPECT_EQ(to_hex(in.rest()), "aabb") << "the reader is at the payload";
  EXPECT_EQ(to_hex(encoded(kTagged, DdpTagged::kSize)), to_hex(kTaggedBytes));
}

TEST(DdpUntaggedCodec, ReadsAndWritesTheHeader) {
  const Bytes with_payload = kUntaggedBytes + hex("aabb");
  ByteReader in(with_payload);
  EXPECT_EQ(decode_ddp_untagged(in), kUntagged);
  EXPECT_EQ(to_hex(in.rest()), "aabb");
  EXPECT_EQ(to_hex(encoded(kUntagged, DdpUntagged::kSize)), to_hex(kUntaggedBytes));
}

TEST(DdpTaggedCodec, RefusesHeaderCutAtEveryByte) {
  for (std::size_t size = 0; size < DdpTagged::kSize; ++size) {
    ByteReader in{std::span(kTaggedBytes).first(size)};
    EXPECT_EQ(decode_ddp_tagged(in), fail(Error::kTruncated)) << size;
    EXPECT_EQ(in.remaining(), size);
  }
}

TEST(DdpUntaggedCodec, RefusesHeaderCutAtEveryByte) {
  for (std::size_t size = 0; size < DdpUntagged::kSize; ++size) {
    ByteReader in{std::span(kUntaggedBytes).first(size)};
    EXPECT_EQ(decode_ddp_untagged(in), fail(Error::kTruncated)) << size;
    EXPECT_EQ(in.remaining(), size);
  }
}

TEST(DdpTaggedCodec, EveryFirstOctetIsTakenOrRefusedByTagAndVersionAlone) {
  for (unsigned first = 0; first < 256; ++first) {
    Bytes bytes = kTaggedBytes;
    bytes[0] = static_cast<std::uint8_t>(first);
    ByteReader in(bytes);
    const auto header = decode_ddp_tagged(in);
    if (first < 0x80) {
      EXPECT_EQ(header, fail(Error::kNotTagged)) << first;
    } else if ((first & 3U) != 1) {
      EXPECT_EQ(header, fail(Error::kBadVersion)) << first;
    } else {
      ASSERT_TRUE(header) << "reserved bits are ignored: " << first;
      EXPECT_EQ(header->last, (first & 0x40U) != 0);
      EXPECT_EQ(encoded(*header, DdpTagged::kSize)[0], first & 0xc1U) << "and sent as zero";
    }
    EXPECT_EQ(in.remaining(), header ? 0U : DdpTagged::kSize);
  }
}

TEST(DdpUntaggedCodec, EveryFirstOctetIsTakenOrRefusedByTagAndVersionAlone) {
  for (unsigned first = 0; first < 256; ++first) {
    Bytes bytes = kUntaggedBytes;
    bytes[0] = static_cast<std::uint8_t>(first);
    ByteReader in(bytes);
    const auto header = decode_ddp_untagged(in);
    if (first >= 0x80) {
      EXPECT_EQ(header, fail(Error::kTagged)) << first;
    } else if ((first & 3U) != 1) {
      EXPECT_EQ(header, fail(Error::kBadVersion)) << first;
    } else {
      ASSERT_TRUE(header) << first;
      EXPECT_EQ(header->last, (first & 0x40U) != 0);
      EXPECT_EQ(encoded(*header, DdpUntagged::kSize)[0], first & 0xc1U);
    }
    EXPECT_EQ(in.remaining(), header ? 0U : DdpUntagged::kSize);
  }
}

TEST(DdpTaggedCodec, EveryFieldBitSurvivesTheRoundTrip) {
  for (std::size_t bit = 8; bit < DdpTagged::kSize * 8; ++bit) {
    Bytes bytes = hex("c1") + zeros(DdpTagged::kSize - 1);
    bytes[bit / 8] = static_cast<std::uint8_t>(0x80U >> (bit % 8));
    ByteReader in(bytes);
    const auto header = decode_ddp_tagged(in);
    ASSERT_TRUE(header);
    EXPECT_EQ(to_hex(encoded(*header, DdpTagged::kSize)), to_hex(bytes));
  }
}

TEST(DdpUntaggedCodec, EveryFieldBitSurvivesTheRoundTrip) {
  for (std::size_t bit = 8; bit < DdpUntagged::kSize * 8; ++bit) {
    Bytes bytes = hex("41") + zeros(DdpUntagged::kSize - 1);
    bytes[bit / 8] = static_cast<std::uint8_t>(0x80U >> (bit % 8));
    ByteReader in(bytes);
    const auto header = decode_ddp_untagged(in);
    ASSERT_TRUE(header);
    EXPECT_EQ(to_hex(encoded(*header, DdpUntagged::kSize)), to_hex(bytes));
  }
}

TEST(DdpControl, FirstOctetsAreTheOnesOfTheRfc) {
  EXPECT_EQ(ddp_control(true, true), 0xc1);
  EXPECT_EQ(ddp_control(true, false), 0x81);
  EXPECT_EQ(ddp_control(false, true), 0x41);
  EXPECT_EQ(ddp_control(false, false), 0x01);
}

TEST(DdpControl, FirstOctetTellsTheHeaderSize) {
  EXPECT_TRUE(peek_tagged(0xc1));
  EXPECT_FALSE(peek_tagged(0x41));
  EXPECT_EQ(ddp_header_size(0x81), 14U);
  EXPECT_EQ(ddp_header_size(0x01), 18U);
}

}  // namespace
}  // namespace weft
