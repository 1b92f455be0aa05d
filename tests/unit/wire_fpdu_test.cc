#include "wire/fpdu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "wire_testing.h"

namespace weft {
namespace {

using namespace weft::testing;

TEST(Fpdu, PadMakesEverythingBeforeTheCrcAMultipleOfFour) {
  for (std::uint32_t len = 0; len <= kMaxUlpduAccepted; ++len) {
    ASSERT_LT(fpdu_pad(len), 4U);
    ASSERT_EQ((2 + len + fpdu_pad(len)) % 4, 0U) << len;
    ASSERT_EQ(fpdu_covered(len), 2 + len + fpdu_pad(len)) << len;
    ASSERT_EQ(fpdu_size(len), fpdu_covered(len) + 4) << len;
  }
}

TEST(Fpdu, TheShortestLegalOnesAreTwentyAndTwentyFour) {
  EXPECT_EQ(kMinFpduTagged, 20U);
  EXPECT_EQ(kMinFpduUntagged, 24U);
}

TEST(Fpdu, LengthAndCrcFieldsHaveTheirOwnByteOrder) {
  std::uint8_t field[4] = {};
  store_ulpdu_length(field, 0x1234);
  EXPECT_EQ(field[0], 0x12);
  EXPECT_EQ(load_ulpdu_length(field), 0x1234);
  store_crc(field, 0xe3069283);
  EXPECT_EQ(to_hex(field), "839206e3");
  EXPECT_EQ(load_crc(field), 0xe3069283U);
}

TEST(Marker, IsTwoReservedOctetsAndTheDistance) {
  std::uint8_t marker[4];
  store_marker(marker, 0x0014);
  EXPECT_EQ(to_hex(marker), "00000014");
  store_marker(marker, 0xfffc);
  EXPECT_EQ(to_hex(marker), "0000fffc");
  EXPECT_EQ(load_marker(marker), 0xfffc);
}

TEST(Marker, ReceiverIgnoresReservedOctetsAndTheLowTwoBits) {
  EXPECT_EQ(load_marker(hex("ffff0014").data()), 0x14);
  for (unsigned low = 0; low < 4; ++low) {
    Bytes marker = hex("00000014");
    marker[3] = static_cast<std::uint8_t>(marker[3] | low);
    EXPECT_EQ(load_marker(marker.data()), 0x14);
  }
}

// Walks the stream octet by octet.
std::uint32_t markers_by_hand(std::uint64_t offset, std::uint32_t len) {
  std::uint32_t markers = 0;
  for (std::uint32_t i = 0; i < len; ++i) {
    if (offset % 512 == 0) {
      ++markers;
      offset += 4;
    }
    ++offset;
  }
  return markers;
}

TEST(Marker, CountInARunAgreesWithWalkingTheStream) {
  for (std::uint64_t offset = 0; offset < 1024; ++offset) {
    if (offset % 512 > 0 && offset % 512 < 4) continue;  // inside a marker
    for (std::uint32_t len = 0; len < 1100; ++len) {
      ASSERT_EQ(markers_in(offset, len), markers_by_hand(offset, len)) << offset << " " << len;
    }
  }
}

TEST(Marker, CountHoldsForLongRunsFarIntoTheStream) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t offset = (random() >> 1) & ~std::uint64_t{3};
    const auto len = static_cast<std::uint32_t>(random() % 70000);
    ASSERT_EQ(markers_in(offset, len), markers_by_hand(offset, len)) << offset << " " << len;
  }
}

TEST(Marker, OneDueRightBehindTheRunBelongsToWhatFollows) {
  EXPECT_EQ(markers_in(0, 508), 1U);
  EXPECT_EQ(markers_in(0, 509), 2U);
  EXPECT_EQ(markers_in(4, 508), 0U);
  EXPECT_EQ(markers_in(4, 509), 1U);
  EXPECT_EQ(markers_in(512, 0), 0U);
}

TEST(Marker, DistanceToTheNextIsZeroWhereItIsDue) {
  EXPECT_EQ(until_marker(0), 0U);
  EXPECT_EQ(until_marker(4), 508U);
  EXPECT_EQ(until_marker(508), 4U);
  EXPECT_EQ(until_marker(512), 0U);
  EXPECT_EQ(until_marker(0xfffffffffffffffcULL), 4U);
}

TEST(Marker, SizeOfAnFpduAgreesWithBuildingIt) {
  for (std::uint64_t offset = 0; offset < 512; offset += 4) {
    for (const std::uint32_t len : {14U, 18U, 487U, 488U, 489U, 490U, 1000U, 1442U, 5000U}) {
      const Bytes fpdu = build_fpdu(zeros(len), true, offset);
      ASSERT_EQ(fpdu_size_marked(offset, len), fpdu.size()) << offset << " " << len;
    }
  }
}

TEST(Marker, TwelveHundredOctetsAsFirstFpduCarryThree) {
  const std::uint32_t ulpdu = 18 + 1200;
  EXPECT_EQ(fpdu_size_marked(0, ulpdu), 1236U);
  const Bytes fpdu = build_fpdu(zeros(ulpdu), true, 0);
  ASSERT_EQ(fpdu.size(), 1236U);
  EXPECT_EQ(load_marker(fpdu.data()), 0U);
  EXPECT_EQ(load_marker(fpdu.data() + 512), 508U);
  EXPECT_EQ(load_marker(fpdu.data() + 1024), 1020U);
}

TEST(Marker, LargestFpduWeSendStaysInReachOfFpduPtr) {
  for (std::uint64_t offset = 0; offset < 512; offset += 4) {
    ASSERT_LE(fpdu_size_marked(offset, kMaxUlpdu), 0xffffU);
  }
}

TEST(Mulpdu, MatchesTheWorkedTable) {
  EXPECT_EQ(mulpdu(1448, false), 1442U);
  EXPECT_EQ(mulpdu(1460, false), 1454U);
  EXPECT_EQ(mulpdu(8948, false), 8942U);
  EXPECT_EQ(mulpdu(65484, false), 64768U);
  EXPECT_EQ(mulpdu(1448, true), 1430U);
  EXPECT_EQ(mulpdu(1460, true), 1442U);
  EXPECT_EQ(mulpdu(8948, true), 8870U);
  EXPECT_EQ(mulpdu(65484, true), 64768U);
}

TEST(Mulpdu, StaysWithinItsRange) {
  EXPECT_EQ(mulpdu(0, false), kMinMulpdu);
  EXPECT_EQ(mulpdu(5, true), kMinMulpdu);
  EXPECT_EQ(mulpdu(132, false), kMinMulpdu);
  EXPECT_EQ(mulpdu(136, false), 130U);
  EXPECT_EQ(mulpdu(0xffffffff, false), kMaxUlpdu);
  EXPECT_EQ(mulpdu(0xffffffff, true), kMaxUlpdu);
}

TEST(Mulpdu, SuchAnFpduFitsOneSegmentWhereverItStarts) {
  for (std::uint32_t emss = 160; emss < 9100; ++emss) {
    const std::uint32_t plain = mulpdu(emss, false);
    ASSERT_LE(fpdu_size(plain), emss) << emss;
    ASSERT_GT(fpdu_size(plain + 4), emss & ~3U) << emss << ": one word more does not fit";
    const std::uint32_t marked = mulpdu(emss, true);
    for (std::uint64_t offset = 0; offset < 512; offset += 4) {
      ASSERT_LE(fpdu_size_marked(offset, marked), emss) << emss << " at " << offset;
    }
  }
}

}  // namespace
}  // namespace weft
