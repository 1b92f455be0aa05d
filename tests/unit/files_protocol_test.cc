// The messages of the data protocol.
#include "files/protocol/data_protocol.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft::files {
namespace {

std::vector<Request> one_of_each(std::span<const std::uint8_t> secret) {
  std::vector<Request> out;
  for (int op = 1; op <= static_cast<int>(Op::kStatFs); ++op) {
    Request r;
    r.op = static_cast<Op>(op);
    r.tag = 0x0102030405060708U;
    r.version = kVersion;
    r.secret = secret;
    r.path = "a/path";
    r.target = "a target";
    r.memory = {0xfedcba9876543210U, 0x12345678U, 4096};
    r.handle = 77;
    r.offset = 1U << 30U;
    r.length = 99;
    r.mode = 0640;
    r.identity = 0x1122334455667788U;
    r.flags = 1;
    r.mtime_ns = -5;
    r.pitch = 8192;
    r.slots = 3;
    r.records = 50;
    r.record = 49;
    r.limit = 3;
    out.push_back(r);
  }
  return out;
}

TEST(DataProtocol, EachRequestComesBackAsItWas) {
  const std::vector<std::uint8_t> secret(kNonceBytes, 0xa5);
  for (const Request& in : one_of_each(secret)) {
    std::uint8_t bytes[kMessageBytes];
    const std::size_t size = encode(in, bytes);
    ASSERT_NE(size, 0U);
    const auto out = decode_request({bytes, size});
    ASSERT_TRUE(out) << static_cast<int>(in.op);
    std::uint8_t again[kMessageBytes];
    ASSERT_EQ(encode(*out, again), size);
    EXPECT_EQ(std::vector(bytes, bytes + size), std::vector(again, again + size));
    EXPECT_EQ(out->tag, in.tag);
  }
}

TEST(DataProtocol, RefusesEveryRequestCutInItsFixedPart) {
  const std::vector<std::uint8_t> secret(kNonceBytes, 0xa5);
  for (Request in : one_of_each(secret)) {
    in.path = {};
    in.target = {};
    std::uint8_t bytes[kMessageBytes];
    const std::size_t size = encode(in, bytes);
    for (std::size_t cut = 0; cut < size; ++cut) {
      EXPECT_FALSE(decode_request({bytes, cut})) << static_cast<int>(in.op) << " at " << cut;
    }
  }
}

TEST(DataProtocol, KnowsAHelloOfAnotherVersionWhateverFollows) {
  const std::vector<std::uint8_t> secret(kNonceBytes, 0xa5);
  Request hello = one_of_each(secret).front();
  std::uint8_t bytes[kMessageBytes] = {};
  EXPECT_FALSE(is_other_version({bytes, encode(hello, bytes)}));
  hello.version = kVersion + 1;
  const std::size_t size = encode(hello, bytes);
  for (std::size_t cut = 0; cut <= size + 1; ++cut) {
    EXPECT_EQ(is_other_version({bytes, cut}), cut >= 20) << cut;
  }
  bytes[0] = static_cast<std::uint8_t>(Op::kProve);
  EXPECT_FALSE(is_other_version({bytes, size}));
}

TEST(DataProtocol, BoundsLinksWithinThePathOnly) {
  Request request;
  request.op = Op::kRemove;
  request.path = "a/path";
  std::uint8_t bytes[kMessageBytes];
  for (const std::uint16_t links : {std::uint16_t{0}, std::uint16_t{6}, kLinksAnywhere}) {
    request.links = links;
    const auto out = decode_request({bytes, encode(request, bytes)});
    ASSERT_TRUE(out) << links;
    EXPECT_EQ(out->links, links);
  }
  request.links = 7;
  EXPECT_FALSE(decode_request({bytes, encode(request, bytes)}));
  request.op = Op::kClose;  // has no path
  const auto out = decode_request({bytes, encode(request, bytes)});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->links, kLinksAnywhere);
}

TEST(DataProtocol, RefusesAPlayThatCannotBe) {
  Request legal;
  legal.op = Op::kPlay;
  legal.memory = {0, 1, kMaxRecordBytes};
  legal.pitch = kMaxRecordBytes;
  legal.slots = kMaxSlots;
  legal.records = 1;
  std::uint8_t bytes[kMessageBytes];
  const auto is_legal = [&](auto change) {
    Request r = legal;
    change(r);
    const std::size_t size = encode(r, bytes);
    return decode_request({bytes, size}).has_value();
  };
  EXPECT_TRUE(is_legal([](Request&) {}));
  EXPECT_FALSE(is_legal([](Request& r) { r.memory.bytes = r.pitch = kMaxRecordBytes + 1; }));
  EXPECT_FALSE(is_legal([](Request& r) { r.memory.bytes = 0; }));
  EXPECT_FALSE(is_legal([](Request& r) { r.pitch -= 1; }));
  EXPECT_FALSE(is_legal([](Request& r) { r.slots = 0; }));
  EXPECT_FALSE(is_legal([](Request& r) { r.slots = kMaxSlots + 1; }));
  EXPECT_FALSE(is_legal([](Request& r) { r.record = 1; }));
  EXPECT_FALSE(is_legal([](Request& r) { r.records = 0; }));
  EXPECT_FALSE(is_legal([](Request& r) { r.offset = (std::uint64_t{1} << 62U) + 1; }));
}

TEST(DataProtocol, RefusesWhatNoClientMayAsk) {
  Request read;
  read.op = Op::kRead;
  std::uint8_t bytes[kMessageBytes];
  const auto is_legal = [&] {
    const std::size_t size = encode(read, bytes);
    return decode_request({bytes, size}).has_value();
  };
  read.memory.bytes = kMaxIoBytes;
  EXPECT_TRUE(is_legal());
  read.memory.bytes = kMaxIoBytes + 1;
  EXPECT_FALSE(is_legal());
  read.memory.bytes = 0;
  EXPECT_FALSE(is_legal());
  read.memory.bytes = 1;
  read.offset = (std::uint64_t{1} << 62U) + 1;
  EXPECT_FALSE(is_legal());

  Request stat;
  stat.op = Op::kStat;
  const std::string with_nul("a\0b", 3);
  stat.path = with_nul;
  const std::size_t size = encode(stat, bytes);
  EXPECT_FALSE(decode_request({bytes, size}));
  const std::string longest(kPathBytes, 'x');
  stat.path = longest;
  EXPECT_NE(encode(stat, bytes), 0U);
  const std::string too_long(kPathBytes + 1, 'x');
  stat.path = too_long;
  EXPECT_EQ(encode(stat, bytes), 0U);
}

TEST(DataProtocol, UsageComesBackAsItWas) {
  Reply in;
  in.op = Op::kStatFs;
  in.usage = {1, std::uint64_t{1} << 63U, 3, 4, 5};
  std::uint8_t bytes[kMessageBytes];
  const std::size_t size = encode(in, bytes);
  ASSERT_EQ(size, 16 + Usage::kSize);
  const auto out = decode_reply({bytes, size});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->usage, in.usage);
  for (std::size_t cut = 0; cut < size; ++cut) EXPECT_FALSE(decode_reply({bytes, cut}));
}

TEST(DataProtocol, AReplyWithAnErrorHasNothingElse) {
  Reply in;
  in.op = Op::kOpen;
  in.tag = 9;
  in.error = 13;
  in.handle = 5;
  std::uint8_t bytes[kMessageBytes];
  EXPECT_EQ(encode(in, bytes), 16U);
  const auto out = decode_reply({bytes, 16});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->error, 13U);
  EXPECT_EQ(out->handle, 0U);
  for (std::size_t cut = 0; cut < 16; ++cut) EXPECT_FALSE(decode_reply({bytes, cut}));
}

TEST(DataProtocol, EntriesOfAListFollowEachOther) {
  std::uint8_t bytes[200];
  const Attributes attributes{0100644, 12, -7, 3, 4};
  std::size_t size = encode(Entry{"first", attributes}, bytes);
  size += encode(Entry{"second", attributes}, std::span(bytes).subspan(size));
  EXPECT_EQ(encode(Entry{std::string(200, 'x'), attributes}, bytes), 0U) << "no room";
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
