#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace weft {
namespace {

using Bytes = std::vector<std::uint8_t>;

// RFC 3720 section 12.1, one bit at a time.
std::uint32_t crc32c_bitwise(std::span<const std::uint8_t> bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

std::uint32_t crc32c_table(std::span<const std::uint8_t> bytes) {
  return ~detail::crc32c_extend_portable(0xffffffffU, bytes.data(), bytes.size());
}

Bytes random_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes out(size);
  for (std::uint8_t& b : out) b = static_cast<std::uint8_t>(random());
  return out;
}

struct Vector {
  const char* name;
  Bytes input;
  std::uint32_t value;
  std::array<std::uint8_t, 4> wire;
};

std::vector<Vector> published_vectors() {
  Bytes rising(32);
  for (std::uint8_t i = 0; i < 32; ++i) rising[i] = i;
  Bytes falling(rising.rbegin(), rising.rend());
  const std::string digits = "123456789";
  return {
      {"digits", Bytes(digits.begin(), digits.end()), 0xe3069283, {0x83, 0x92, 0x06, 0xe3}},
      {"zeros", Bytes(32, 0x00), 0x8a9136aa, {0xaa, 0x36, 0x91, 0x8a}},
      {"ones", Bytes(32, 0xff), 0x62a8ab43, {0x43, 0xab, 0xa8, 0x62}},
      {"rising", rising, 0x46dd794e, {0x4e, 0x79, 0xdd, 0x46}},
      {"falling", falling, 0x113fdb5c, {0x5c, 0xdb, 0x3f, 0x11}},
  };
}

TEST(Crc32c, MatchesThePublishedVectors) {
  for (const Vector& v : published_vectors()) {
    EXPECT_EQ(crc32c(v.input), v.value) << v.name;
    EXPECT_EQ(crc32c_table(v.input), v.value) << v.name;
    EXPECT_EQ(crc32c_bitwise(v.input), v.value) << v.name;
  }
}

TEST(Crc32c, GoesOnTheWireLeastSignificantOctetFirst) {
  for (const Vector& v : published_vectors()) {
    std::array<std::uint8_t, 4> wire{};
    store_le32(wire.data(), crc32c(v.input));
    EXPECT_EQ(wire, v.wire) << v.name;
    EXPECT_EQ(load_le32(wire.data()), v.value) << v.name;
  }
}

TEST(Crc32c, OfNothingIsZero) {
  EXPECT_EQ(crc32c({}), 0U);
  Crc32c sum;
  sum.update(nullptr, 0);
  EXPECT_EQ(sum.value(), 0U);
}

TEST(Crc32c, AgreesWithTheBitwiseDefinitionAtEveryShortLengthAndAlignment) {
  const Bytes data = random_bytes(700, 1);
  for (std::size_t at = 0; at < 9; ++at) {
    for (std::size_t size = 0; size <= 600; ++size) {
      const auto run = std::span(data).subspan(at, size);
      const std::uint32_t expected = crc32c_bitwise(run);
      ASSERT_EQ(crc32c(run), expected) << at << "+" << size;
      ASSERT_EQ(crc32c_table(run), expected) << at << "+" << size;
    }
  }
}

TEST(Crc32c, AgreesWithTheBitwiseDefinitionOnLongRuns) {
  const Bytes data = random_bytes(100000, 2);
  std::mt19937 random(3);
  for (int round = 0; round < 40; ++round) {
    const std::size_t at = random() % 64;
    const std::size_t size = random() % (data.size() - at);
    const auto run = std::span(data).subspan(at, size);
    const std::uint32_t expected = crc32c_bitwise(run);
    ASSERT_EQ(crc32c(run), expected) << at << "+" << size;
    ASSERT_EQ(crc32c_table(run), expected) << at << "+" << size;
  }
}

TEST(Crc32c, DoesNotDependOnWhereTheInputIsCut) {
  const Bytes data = random_bytes(3000, 4);
  const std::uint32_t expected = crc32c_bitwise(data);
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    Crc32c sum;
    const std::size_t longest = 1 + random() % 900;
    for (std::size_t at = 0; at < data.size();) {
      const std::size_t size = std::min(data.size() - at, std::size_t{random() % (longest + 1)});
      sum.update(data.data() + at, size);
      at += size;
    }
    ASSERT_EQ(sum.value(), expected);
  }
}

TEST(Crc32c, ValueMayBeAskedInTheMiddle) {
  const Bytes data = random_bytes(900, 6);
  Crc32c sum;
  for (std::size_t size = 0; size < data.size(); size += 9) {
    EXPECT_EQ(sum.value(), crc32c_bitwise(std::span(data).first(size)));
    sum.update(std::span(data).subspan(size, 9));
  }
  sum.reset();
  EXPECT_EQ(sum.value(), 0U);
}

TEST(Crc32c, SeesEverySingleBit) {
  Bytes data = random_bytes(300, 7);
  const std::uint32_t good = crc32c(data);
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    const auto mask = static_cast<std::uint8_t>(1U << (bit % 8));
    data[bit / 8] ^= mask;
    ASSERT_NE(crc32c(data), good) << bit;
    data[bit / 8] ^= mask;
  }
}

TEST(Crc32c, NamesItsMethod) {
  const std::string method = crc32c_method();
  EXPECT_TRUE(method == "isa-l" || method == "sse4.2" || method == "armv8" || method == "table")
      << method;
}

}  // namespace
}  // namespace weft
