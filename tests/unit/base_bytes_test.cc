#include "base/bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace weft {
namespace {

constexpr std::array<std::uint8_t, 16> kBytes{0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
                                              0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10};

TEST(Bytes, LoadsBigEndianAtAnyAlignment) {
  for (std::uint8_t at = 0; at < 8; ++at) {
    const std::uint8_t* p = kBytes.data() + at;
    const std::uint64_t first = at + 1U;
    EXPECT_EQ(load_be16(p), first << 8 | (first + 1));
    EXPECT_EQ(load_be32(p), first << 24 | (first + 1) << 16 | (first + 2) << 8 | (first + 3));
    std::uint64_t expected = 0;
    for (unsigned i = 0; i < 8; ++i) expected = expected << 8 | p[i];
    EXPECT_EQ(load_be64(p), expected);
  }
}

TEST(Bytes, LoadsLittleEndianLeastSignificantFirst) {
  EXPECT_EQ(load_le32(kBytes.data() + 1), 0x05040302U);
  EXPECT_EQ(load_le64(kBytes.data()), 0x0807060504030201U);
}

TEST(Bytes, StoresMirrorLoads) {
  std::array<std::uint8_t, 9> out{};
  store_be16(out.data() + 1, 0xa1b2);
  EXPECT_EQ(out[1], 0xa1);
  EXPECT_EQ(out[2], 0xb2);
  store_be32(out.data() + 1, 0xa1b2c3d4);
  EXPECT_EQ(out[1], 0xa1);
  EXPECT_EQ(out[4], 0xd4);
  store_be64(out.data() + 1, 0xa1b2c3d4e5f60718);
  EXPECT_EQ(out[1], 0xa1);
  EXPECT_EQ(out[8], 0x18);
  store_le32(out.data() + 1, 0xe3069283);
  EXPECT_EQ(out[1], 0x83);
  EXPECT_EQ(out[4], 0xe3);
  EXPECT_EQ(out[0], 0);
}

TEST(ByteReader, ReadsInOrderAndCountsDown) {
  ByteReader in(kBytes);
  EXPECT_EQ(in.remaining(), 16U);
  EXPECT_EQ(in.u8(), 0x01);
  EXPECT_EQ(in.be16(), 0x0203);
  EXPECT_EQ(in.be32(), 0x04050607U);
  in.skip(1);
  EXPECT_EQ(in.rest().data(), kBytes.data() + 8);
  EXPECT_EQ(in.remaining(), 8U);
  const auto two = in.bytes(2);
  EXPECT_EQ(two.data(), kBytes.data() + 8);
  EXPECT_EQ(two.size(), 2U);
  EXPECT_FALSE(in.empty());
  in.skip(6);
  EXPECT_TRUE(in.empty());
}

TEST(ByteReader, ReadsEightOctetsAsOneNumber) {
  ByteReader in(kBytes);
  EXPECT_EQ(in.be64(), 0x0102030405060708U);
}

TEST(ByteReader, EmptyInputHasNothing) {
  EXPECT_EQ(ByteReader().remaining(), 0U);
  EXPECT_TRUE(ByteReader(std::span<const std::uint8_t>{}).empty());
}

TEST(ByteWriter, WritesInOrderAndReportsWhatWasWritten) {
  std::vector<std::uint8_t> out(20, 0xee);
  ByteWriter w(out);
  EXPECT_EQ(w.room(), 20U);
  EXPECT_TRUE(w.written().empty());
  w.u8(0x01);
  w.be16(0x0203);
  w.be32(0x04050607);
  w.be64(0x08090a0b0c0d0e0f);
  w.bytes(std::span(kBytes).last(1));
  EXPECT_EQ(w.room(), 4U);
  EXPECT_TRUE(std::equal(kBytes.begin(), kBytes.end(), w.written().begin(), w.written().end()));
  w.zeros(3);
  EXPECT_EQ(out[18], 0);
  EXPECT_EQ(out[19], 0xee);
}

TEST(ByteWriter, AcceptsEmptyRuns) {
  ByteWriter w;
  w.bytes({});
  w.zeros(0);
  EXPECT_EQ(w.written().size(), 0U);
}

TEST(ByteWriter, ClaimGivesTheBytesToTheCaller) {
  std::array<std::uint8_t, 4> out{};
  ByteWriter w(out);
  w.u8(1);
  std::uint8_t* p = w.claim(2);
  EXPECT_EQ(p, out.data() + 1);
  EXPECT_EQ(w.written().size(), 3U);
}

#if !defined(NDEBUG) && GTEST_HAS_DEATH_TEST
TEST(ByteReaderDeathTest, ReadingPastTheEndIsABug) {
  ByteReader in{std::span(kBytes).first(3)};
  EXPECT_DEATH((void)in.be32(), "remaining");
}

TEST(ByteWriterDeathTest, WritingPastTheEndIsABug) {
  std::array<std::uint8_t, 3> out{};
  ByteWriter w(out);
  EXPECT_DEATH(w.be32(0), "room");
}
#endif

}  // namespace
}  // namespace weft
