// Questions and answers about the TCP port behind a port of rdma_cm.
#include "wire/port_map.h"

#include <gtest/gtest.h>

#include <array>

namespace weft {
namespace {

using MapOctets = std::array<std::uint8_t, PortMapMessage::kSize>;

MapOctets map_encoded(const PortMapMessage& message) {
  MapOctets out{};
  ByteWriter writer{std::span(out)};
  encode(message, writer);
  EXPECT_EQ(writer.room(), 0U);
  return out;
}

const PortMapMessage kExample{PortMapKind::kAnswer, 20049, true, 0x0123456789abcdef};

Error map_error_with(std::size_t at, std::uint8_t value) {
  MapOctets octets = map_encoded(kExample);
  octets[at] = value;
  ByteReader in{std::span<const std::uint8_t>(octets)};
  const auto message = decode_port_map(in);
  EXPECT_EQ(in.remaining(), message ? 0U : octets.size());
  return message ? Error{} : message.error();
}

TEST(PortMap, WhatIsWrittenIsRead) {
  for (const PortMapMessage& m : {kExample, PortMapMessage{PortMapKind::kQuestion, 1, false, 7}}) {
    const MapOctets octets = map_encoded(m);
    ByteReader in{std::span<const std::uint8_t>(octets)};
    const auto message = decode_port_map(in);
    ASSERT_TRUE(message);
    EXPECT_EQ(*message, m);
  }
}

TEST(PortMap, EveryPrefixIsTruncated) {
  const MapOctets octets = map_encoded(kExample);
  for (std::size_t size = 0; size < octets.size(); ++size) {
    ByteReader in{std::span<const std::uint8_t>(octets).first(size)};
    const auto message = decode_port_map(in);
    ASSERT_FALSE(message);
    EXPECT_EQ(message.error(), Error::kTruncated);
    EXPECT_EQ(in.remaining(), size);
  }
}

TEST(PortMap, OtherOctetsAreRefused) {
  EXPECT_EQ(map_error_with(0, 'w'), Error::kBadKey);
  EXPECT_EQ(map_error_with(8, 2), Error::kBadRevision);
  EXPECT_EQ(map_error_with(9, 0), Error::kProtocol);
  EXPECT_EQ(map_error_with(9, 3), Error::kProtocol);
  EXPECT_EQ(map_error_with(12, 2), Error::kProtocol);
  EXPECT_EQ(map_error_with(13, 1), Error::kReservedBits);
  EXPECT_EQ(map_error_with(15, 1), Error::kReservedBits);
  MapOctets nowhere = map_encoded(kExample);
  nowhere[10] = nowhere[11] = 0;
  ByteReader in{std::span<const std::uint8_t>(nowhere)};
  EXPECT_FALSE(decode_port_map(in));
}

}  // namespace
}  // namespace weft
