#include "weft/common/pattern.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft::cli {
namespace {

std::vector<std::uint8_t> filled(std::size_t size, std::uint64_t seed) {
  std::vector<std::uint8_t> bytes(size);
  fill_pattern(bytes, seed);
  return bytes;
}

TEST(Pattern, IsAcceptedAtEveryLength) {
  for (std::size_t size = 0; size < 70; ++size) {
    EXPECT_FALSE(check_pattern(filled(size, 7), 7).has_value()) << size;
  }
}

TEST(Pattern, ShowsEveryChangedByteWhereItIs) {
  auto bytes = filled(43, 7);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= 0x10;
    const auto bad = check_pattern(bytes, 7);
    ASSERT_TRUE(bad.has_value()) << i;
    EXPECT_EQ(bad->offset, i);
    EXPECT_EQ(bad->found, bytes[i]);
    EXPECT_EQ(bad->expected, bytes[i] ^ 0x10);
    bytes[i] ^= 0x10;
  }
}

TEST(Pattern, DiffersBetweenMessagesAndConnections) {
  EXPECT_TRUE(check_pattern(filled(64, pattern_seed(0, 1)), pattern_seed(0, 2)).has_value());
  EXPECT_TRUE(check_pattern(filled(64, pattern_seed(0, 1)), pattern_seed(1, 1)).has_value());
  EXPECT_TRUE(check_pattern(filled(64, pattern_seed(1, 0)), pattern_seed(0, 1)).has_value());
}

TEST(Pattern, DoesNotPassWhenShiftedByWholeWords) {
  const auto bytes = filled(256, 3);
  const std::vector<std::uint8_t> shifted(bytes.begin() + 8, bytes.end());
  EXPECT_TRUE(check_pattern(shifted, 3).has_value());
}

TEST(Pattern, IsNeitherZerosNorARepeatedByte) {
  EXPECT_TRUE(check_pattern(std::vector<std::uint8_t>(64, 0x00), 1).has_value());
  EXPECT_TRUE(check_pattern(std::vector<std::uint8_t>(64, 0xa5), 1).has_value());
}

}  // namespace
}  // namespace weft::cli
