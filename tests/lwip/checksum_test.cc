// The sum that lwIP's checksums are made of, beside RFC 1071 word by word.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include <lwip/arch.h>
#include <lwip/def.h>

namespace weft::testing {
namespace {

// In host order, as lwIP wants it.
std::uint16_t sum_of(const std::uint8_t* octets, std::size_t size) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < size; ++i) {
    sum += i % 2 == 0 ? std::uint64_t{octets[i]} << 8U : octets[i];
  }
  while (sum > 0xffff) sum = (sum & 0xffffU) + (sum >> 16U);
  return lwip_htons(static_cast<std::uint16_t>(sum));
}

TEST(LwipChecksum, IsRightForEveryAlignmentAndLength) {
  std::mt19937 random(1);
  std::vector<std::uint8_t> octets(300);
  for (auto& octet : octets) octet = static_cast<std::uint8_t>(random());
  for (std::size_t at = 0; at < 8; ++at) {
    for (std::size_t size = 0; size + at <= octets.size(); ++size) {
      ASSERT_EQ(weft_lwip_checksum(octets.data() + at, static_cast<int>(size)),
                sum_of(octets.data() + at, size))
          << at << ", " << size;
    }
  }
}

// Where sums are largest, and would wrap if they could.
TEST(LwipChecksum, OfTheLongestRunsDoesNotWrap) {
  for (const int octet : {0xff, 0xfe, 0x80, 0x01, 0x00}) {
    const std::vector<std::uint8_t> octets(0xffff + 4, static_cast<std::uint8_t>(octet));
    for (std::size_t at = 0; at < 4; ++at) {
      EXPECT_EQ(weft_lwip_checksum(octets.data() + at, 0xffff), sum_of(octets.data() + at, 0xffff))
          << octet << ", " << at;
    }
  }
}

}  // namespace
}  // namespace weft::testing
