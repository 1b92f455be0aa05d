// What rdma_cm of RoCE-like devices says about queue pairs.
#include "roce/cm_header.h"

#include <gtest/gtest.h>

namespace weft::roce {
namespace {

using CmOctets = std::array<std::uint8_t, CmHeader::kSize>;

CmHeader cm_example() {
  CmHeader h;
  h.shared_queue = true;
  h.retry_count = 3;
  h.rnr_retry = 5;
  h.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
  h.number = 0x123456;
  h.psn = 0xabcdef;
  return h;
}

CmOctets cm_encoded() {
  CmOctets out{};
  ByteWriter writer{std::span(out)};
  encode(cm_example(), writer);
  EXPECT_EQ(writer.room(), 0U);
  return out;
}

Error cm_error_with(std::size_t at, std::uint8_t value) {
  CmOctets octets = cm_encoded();
  octets[at] = value;
  ByteReader in{std::span<const std::uint8_t>(octets)};
  const auto header = decode_cm_header(in);
  EXPECT_EQ(in.remaining(), header ? 0U : octets.size());
  return header ? Error{} : header.error();
}

TEST(CmHeader, WhatIsWrittenIsRead) {
  const CmOctets octets = cm_encoded();
  ByteReader in{std::span<const std::uint8_t>(octets)};
  const auto header = decode_cm_header(in);
  ASSERT_TRUE(header);
  EXPECT_EQ(*header, cm_example());
}

TEST(CmHeader, EveryPrefixIsTruncated) {
  const CmOctets octets = cm_encoded();
  for (std::size_t size = 0; size < octets.size(); ++size) {
    ByteReader in{std::span<const std::uint8_t>(octets).first(size)};
    const auto header = decode_cm_header(in);
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error(), Error::kTruncated);
    EXPECT_EQ(in.remaining(), size);
  }
}

TEST(CmHeader, OtherOctetsAreRefused) {
  EXPECT_EQ(cm_error_with(7, 'm'), Error::kBadKey);
  EXPECT_EQ(cm_error_with(8, 2), Error::kBadRevision);
  EXPECT_EQ(cm_error_with(9, 0x02), Error::kReservedBits);
  EXPECT_EQ(cm_error_with(39, 1), Error::kReservedBits);
  EXPECT_EQ(cm_error_with(10, 8), Error::kProtocol);
  EXPECT_EQ(cm_error_with(11, 8), Error::kProtocol);
  EXPECT_EQ(cm_error_with(28, 1), Error::kProtocol);
  EXPECT_EQ(cm_error_with(32, 1), Error::kProtocol);
  EXPECT_EQ(cm_error_with(10, 7), Error{});
  EXPECT_EQ(cm_error_with(29, 0xff), Error{});
}

}  // namespace
}  // namespace weft::roce
