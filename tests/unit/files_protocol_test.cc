// The values of the data protocol, its head, and the entries of a list.
#include "files/protocol/data_protocol.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "files/protocol/data_messages.h"

namespace weft::files {
namespace {

using Octets = std::vector<std::uint8_t>;

TEST(DataHead, RefusesOneCutAtEveryOctet) {
  std::uint8_t bytes[kMessageBytes];
  ASSERT_EQ(encode_request(CloseRequest{1}, 7, bytes), Head::kSize + 8);
  for (std::size_t cut = 0; cut < Head::kSize; ++cut) EXPECT_FALSE(decode_head({bytes, cut}));
  const auto head = decode_head({bytes, Head::kSize});
  ASSERT_TRUE(head);
  EXPECT_EQ(head->op, Op::kClose);
  EXPECT_EQ(head->tag, 7U);
  EXPECT_FALSE(head->is_reply);
}

TEST(DataHead, RefusesOperationsThatTheProtocolDoesNotHave) {
  Octets message(Head::kSize, 0);
  const auto last = static_cast<std::uint8_t>(kLastOp);
  for (int op = 0; op < 256; ++op) {
    message[0] = static_cast<std::uint8_t>(op);
    const int without_bit = op & ~kReplyBit;
    EXPECT_EQ(decode_head(message).has_value(), without_bit >= 1 && without_bit <= last) << op;
  }
}

TEST(DataHead, ARefusalHasNothingElse) {
  std::uint8_t bytes[kMessageBytes];
  EXPECT_EQ(encode_refusal(Op::kOpen, 13, 9, bytes), Head::kSize);
  const auto head = decode_head({bytes, Head::kSize});
  ASSERT_TRUE(head);
  EXPECT_TRUE(head->is_reply);
  EXPECT_EQ(head->error, 13U);
  EXPECT_EQ(head->tag, 9U);
}

TEST(DataPath, BoundsLinksWithinThePathOnly) {
  std::uint8_t bytes[kMessageBytes];
  const auto decoded = [&](std::size_t size) {
    const std::span<const std::uint8_t> message(bytes, size);
    return RemoveRequest::decode(body_of(*decode_head(message), message));
  };
  for (const std::uint16_t links : {std::uint16_t{0}, std::uint16_t{6}, kLinksAnywhere}) {
    const auto out = decoded(encode_request(RemoveRequest{0, {"a/path", links}}, 1, bytes));
    ASSERT_TRUE(out) << links;
    EXPECT_EQ(out->path.links, links);
  }
  EXPECT_FALSE(decoded(encode_request(RemoveRequest{0, {"a/path", 7}}, 1, bytes)));
}

TEST(DataPath, RefusesANulAndMoreThanTheLongestPath) {
  std::uint8_t bytes[kMessageBytes];
  const std::string with_nul("a\0b", 3);
  const std::size_t size = encode_request(StatRequest{{with_nul}}, 1, bytes);
  EXPECT_FALSE(StatRequest::decode(BodyReader({bytes + Head::kSize, size - Head::kSize}, 0xffff)));
  const std::string longest(kPathBytes, 'x');
  EXPECT_NE(encode_request(StatRequest{{longest}}, 1, bytes), 0U);
  EXPECT_EQ(encode_request(StatRequest{{longest + "x"}}, 1, bytes), 0U);
  const Octets too_long(kPathBytes + 1, 'x');
  EXPECT_FALSE(StatRequest::decode(BodyReader(too_long, kLinksAnywhere)));
}

TEST(DataPath, TwoLongTextsDoNotFitIntoOneMessage) {
  std::uint8_t bytes[kMessageBytes];
  const std::string half(2000, 'x');
  const std::string more(2600, 'x');
  EXPECT_NE(encode_request(SymlinkRequest{half, {half}}, 1, bytes), 0U);
  EXPECT_EQ(encode_request(SymlinkRequest{half, {more}}, 1, bytes), 0U);
}

TEST(DataToken, IsTheSameForOneVersionOnly) {
  FileState one;
  one.attributes = {0100644, 1, 2, 3, 12, 8, 100, 200, 4, 5};
  one.object.fill(7);
  EXPECT_TRUE(same_token(one, one));
  const auto differs = [&](auto change) {
    FileState other = one;
    change(other);
    return !same_token(one, other);
  };
  EXPECT_TRUE(differs([](FileState& s) { ++s.attributes.size; }));
  EXPECT_TRUE(differs([](FileState& s) { ++s.attributes.mtime_ns; }));
  EXPECT_TRUE(differs([](FileState& s) { ++s.attributes.ctime_ns; }));
  EXPECT_TRUE(differs([](FileState& s) { ++s.object.back(); }));
  EXPECT_FALSE(differs([](FileState& s) { ++s.attributes.blocks; })) << "blocks come with flushes";
}

TEST(DataEntries, FollowEachOther) {
  std::uint8_t bytes[300];
  const Attributes attributes{0100644, 1, 2, 3, 12, 8, -7, -6, 4, 5};
  std::size_t size = encode(Entry{"first", attributes}, bytes);
  size += encode(Entry{"second", attributes}, std::span(bytes).subspan(size));
  EXPECT_EQ(encode(Entry{std::string(300, 'x'), attributes}, bytes), 0U) << "no room";
  std::span<const std::uint8_t> in(bytes, size);
  const auto first = decode_entry(in);
  const auto second = decode_entry(in);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->name, "first");
  EXPECT_EQ(second->name, "second");
  EXPECT_EQ(second->attributes, attributes);
  EXPECT_FALSE(decode_entry(in));
}

}  // namespace
}  // namespace weft::files
