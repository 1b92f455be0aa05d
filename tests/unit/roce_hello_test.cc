// Hellos and the numbers of wired queue pairs.
#include "roce/hello.h"

#include <gtest/gtest.h>

#include <array>

#include "roce/qp_number.h"

namespace weft::roce {
namespace {

using Octets = std::array<std::uint8_t, Hello::kSize>;

Hello example() {
  Hello h;
  h.crc = false;
  h.from = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1}, to_number({40000, 2})};
  h.to = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 2}, to_number({50000, 511})};
  h.psn = 0xabcdef;
  h.reads_served = 16;
  h.min_rnr_timer = 12;
  h.generation = 7;
  return h;
}

Octets encoded(const Hello& hello) {
  Octets out{};
  ByteWriter writer{std::span(out)};
  encode(hello, writer);
  EXPECT_EQ(writer.room(), 0U);
  return out;
}

Result<Hello> decoded(const Octets& octets) {
  ByteReader in{std::span<const std::uint8_t>(octets)};
  const auto hello = decode_hello(in);
  EXPECT_EQ(in.remaining(), hello ? 0U : octets.size());
  return hello;
}

Error error_with(std::size_t at, std::uint8_t value) {
  Octets octets = encoded(example());
  octets[at] = value;
  const auto hello = decoded(octets);
  return hello ? Error{} : hello.error();
}

TEST(RoceNumber, HoldsPortAndIndexAtBothEndsOfTheirRanges) {
  EXPECT_EQ(to_number({kPortMin, kIndexMin}), 2U);
  EXPECT_EQ(to_number({kPortMax, kIndexMax}), kNumberMask);
  for (const QpNumber n :
       {QpNumber{kPortMin, kIndexMax}, QpNumber{kPortMax, kIndexMin}, QpNumber{48000, 300}}) {
    EXPECT_EQ(split_number(to_number(n)), n);
    EXPECT_TRUE(is_number(to_number(n)));
  }
  EXPECT_FALSE(is_number(0));
  EXPECT_FALSE(is_number(1));
  EXPECT_FALSE(is_number(1U << kIndexBits));  // index 0 of the second port
  EXPECT_FALSE(is_number(kNumberMask + 3));
}

TEST(RoceHello, ComesBackAsItWas) {
  EXPECT_EQ(decoded(encoded(example())).value(), example());
  Hello answer = example();
  answer.kind = HelloKind::kAnswer;
  answer.verdict = Verdict::kBusy;
  answer.crc = true;
  answer.sealed = true;
  EXPECT_EQ(decoded(encoded(answer)).value(), answer);
}

TEST(RoceHello, StandsOnTheWireAsDescribed) {
  const Octets octets = encoded(example());
  EXPECT_EQ(std::string(octets.begin(), octets.begin() + 8), "WEFTROCE");
  EXPECT_EQ(octets[8], 1);
  EXPECT_EQ(octets[12 + 15], 1);
  EXPECT_EQ(octets[28 + 15], 2);
  EXPECT_EQ(load_be32(&octets[44]), to_number({40000, 2}));
  EXPECT_EQ(load_be32(&octets[52]), 0xabcdefU);
  EXPECT_EQ(octets[56], 2);
  EXPECT_EQ(octets[63], 7);
}

TEST(RoceHello, CutAtEveryOctetIsTruncated) {
  const Octets octets = encoded(example());
  for (std::size_t size = 0; size < octets.size(); ++size) {
    ByteReader in{std::span<const std::uint8_t>(octets).first(size)};
    const auto hello = decode_hello(in);
    ASSERT_FALSE(hello.has_value());
    EXPECT_EQ(hello.error(), Error::kTruncated);
    EXPECT_EQ(in.remaining(), size);
  }
}

TEST(RoceHello, RefusesWhatIsNoHello) {
  EXPECT_EQ(error_with(0, 'M'), Error::kBadKey);
  EXPECT_EQ(error_with(7, 'e'), Error::kBadKey);
  EXPECT_EQ(error_with(8, 2), Error::kBadRevision);
  EXPECT_EQ(error_with(9, 4), Error::kProtocol);       // kind
  EXPECT_EQ(error_with(10, 1), Error::kProtocol);      // a request with a verdict
  EXPECT_EQ(error_with(11, 4), Error::kReservedBits);  // flags
  EXPECT_EQ(error_with(44, 1), Error::kProtocol);      // a number above 24 bits
  EXPECT_EQ(error_with(52, 1), Error::kProtocol);      // a PSN above 24 bits
  EXPECT_EQ(error_with(56, 4), Error::kProtocol);      // type
  EXPECT_EQ(error_with(58, 32), Error::kProtocol);     // RNR timer
  EXPECT_EQ(error_with(59, 1), Error::kReservedBits);
}

TEST(RoceHello, EveryVerdictHasWords) {
  for (std::uint8_t v = 0; v <= static_cast<std::uint8_t>(Verdict::kOtherSecret); ++v) {
    EXPECT_NE(describe(static_cast<Verdict>(v)), "unknown verdict");
  }
}

}  // namespace
}  // namespace weft::roce
