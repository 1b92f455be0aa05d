// Each message of the data protocol by itself: it comes back as it was, a cut one is refused, and
// so is one that no client may ask.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "files/protocol/data_messages.h"

namespace weft::files {
namespace {

using Octets = std::vector<std::uint8_t>;

constexpr RemoteMemory kMemory{0xfedcba9876543210U, 0x12345678U, 4096};
constexpr Attributes kAttributes{0100644, 1, 1000, 100, std::uint64_t{1} << 40U, 8, -5, -4, 77, 0};
constexpr FileState kState{kAttributes, {1, 2, 3}, kLevelTimes};
constexpr std::uint64_t kTag = 0x0102030405060708U;

template <class Request>
Octets request_octets(const Request& request) {
  std::uint8_t bytes[kMessageBytes];
  const std::size_t size = encode_request(request, kTag, bytes);
  return {bytes, bytes + size};
}

template <class Reply>
Octets reply_octets(const Reply& reply) {
  std::uint8_t bytes[kMessageBytes];
  const std::size_t size = encode_reply(Op::kStat, reply, kTag, bytes);
  return {bytes, bytes + size};
}

template <class Message>
std::optional<Message> decode(const Octets& octets) {
  const auto head = decode_head(octets);
  return head ? Message::decode(body_of(*head, octets)) : std::nullopt;
}

// `fixed`: the octets behind the head that are there however short the texts are.
template <class Request>
void try_request(const Request& request, std::size_t fixed) {
  const Octets octets = request_octets(request);
  ASSERT_GE(octets.size(), Head::kSize + fixed);
  const auto head = decode_head(octets);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->op, Request::kOp);
  EXPECT_EQ(head->tag, kTag);
  const auto out = Request::decode(body_of(*head, octets));
  ASSERT_TRUE(out) << static_cast<int>(Request::kOp);
  EXPECT_EQ(request_octets(*out), octets);
  for (std::size_t cut = 0; cut < Head::kSize + fixed; ++cut) {
    EXPECT_FALSE(decode<Request>({octets.begin(), octets.begin() + static_cast<long>(cut)}))
        << static_cast<int>(Request::kOp) << " at " << cut;
  }
  // A path has no end of its own.
  if constexpr (requires { request.path; }) return;
  Octets longer = octets;
  longer.push_back(0);
  EXPECT_FALSE(decode<Request>(longer)) << static_cast<int>(Request::kOp);
}

template <class Reply>
void try_reply(const Reply& reply, std::size_t fixed) {
  const Octets octets = reply_octets(reply);
  ASSERT_GE(octets.size(), Head::kSize + fixed);
  const auto out = decode<Reply>(octets);
  ASSERT_TRUE(out);
  EXPECT_EQ(reply_octets(*out), octets);
  for (std::size_t cut = Head::kSize; cut < Head::kSize + fixed; ++cut) {
    EXPECT_FALSE(decode<Reply>({octets.begin(), octets.begin() + static_cast<long>(cut)})) << cut;
  }
}

Nonce filled(std::uint8_t with) {
  Nonce out;
  out.fill(with);
  return out;
}

TEST(HelloMessage, ComesBackAsItWas) {
  try_request(HelloRequest{kVersion, filled(0xa5)}, 36);
  try_reply(HelloReply{kVersion, 3, 32, 1U << 24U, 99, filled(0x5a)}, 56);
}

TEST(HelloMessage, OfAnotherVersionIsKnownWhateverFollows) {
  const Octets octets = request_octets(HelloRequest{kVersion + 1, filled(1)});
  for (std::size_t size = 0; size <= octets.size(); ++size) {
    const auto out =
        decode<HelloRequest>({octets.begin(), octets.begin() + static_cast<long>(size)});
    EXPECT_EQ(out.has_value(), size >= Head::kSize + 4) << size;
    if (out) {
      EXPECT_EQ(out->version, kVersion + 1);
    }
  }
  const Octets reply = reply_octets(HelloReply{kVersion + 1, 0, 0, 0, 0, {}});
  const auto out = decode<HelloReply>({reply.begin(), reply.begin() + Head::kSize + 4});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->version, kVersion + 1);
}

TEST(ProveMessage, ComesBackAsItWas) {
  try_request(ProveRequest{filled(9)}, 32);
  try_reply(ProveReply{filled(8)}, 32);
}

TEST(NameMessages, ComeBackAsTheyWere) {
  try_request(StatRequest{{"a/path"}}, 0);
  try_reply(StatReply{kAttributes}, Attributes::kSize);
  try_request(ListRequest{5, kMemory, {"a/path"}}, 24);
  try_request(ListRequest{5, kMemory, {"a/path", 1}, true}, 24);
  try_reply(ListReply{6, 100}, 12);
  try_request(ReadLinkRequest{{"a/path"}}, 0);
  try_reply(ReadLinkReply{"a target"}, 0);
  try_request(MakeDirectoryRequest{0755, {"a/path"}}, 4);
  try_request(RemoveRequest{kRemoveDirectory, {"a/path", 1}}, 4);
  try_request(SymlinkRequest{"a target", {"a/path"}}, 10);
  try_request(RenameRequest{kRenameKeep, "an/old", {"a/path"}}, 12);
  try_request(StatFsRequest{{"a/path"}}, 0);
  try_reply(StatFsReply{{1, std::uint64_t{1} << 63U, 3, 4, 5}, {6, 7}}, Usage::kSize);
}

TEST(NameMessages, AnEarlierReleaseTellsOfNoFileSystem) {
  const Octets octets = reply_octets(StatFsReply{{1, 2, 3, 4, 5}, {6, 7}});
  const auto out = decode<StatFsReply>({octets.begin(), octets.end() - 1});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->usage, (Usage{1, 2, 3, 4, 5}));
  EXPECT_EQ(out->file_system, FileSystem());
}

TEST(NameMessages, AListTellsOfFailuresOnlyWhereItIsAskedTo) {
  for (const bool tells : {false, true}) {
    const auto out = decode<ListRequest>(request_octets(ListRequest{0, kMemory, {"a"}, tells}));
    ASSERT_TRUE(out);
    EXPECT_EQ(out->tells_failures, tells);
  }
  EXPECT_EQ(Attributes::of_failure(13).failure(), 13);
  EXPECT_EQ(Attributes::of_failure(-1).failure(), EIO);  // no errno of Linux
  EXPECT_EQ(Attributes().failure(), EIO);
  EXPECT_EQ(kAttributes.failure(), 0);
}

TEST(NameMessages, ATextThatIsLongerThanItsMessageIsRefused) {
  Octets octets = request_octets(SymlinkRequest{"target", {}});
  EXPECT_TRUE(decode<SymlinkRequest>(octets));
  ++octets[Head::kSize + 1];
  EXPECT_FALSE(decode<SymlinkRequest>(octets));
}

TEST(FileMessages, ComeBackAsTheyWere) {
  try_request(OpenRequest{kMemory, {"a/path"}}, 16);
  try_reply(OpenReply{7, 100, kState}, 12 + FileState::kSize);
  try_request(ReadRequest{7, 1U << 30U, kMemory}, 32);
  try_reply(ReadReply{100}, 4);
  try_request(CloseRequest{7}, 8);
  try_reply(CloseReply{kState}, FileState::kSize);
  try_request(SumRequest{7, 8, 9}, 20);
  try_reply(SumReply{0xe3069283U}, 4);
  try_request(ExtentsRequest{7, 8}, 16);
  try_reply(ExtentsReply{9000, 2, {{{0, 10}, {4096, 4096}}}}, 12 + 2 * 16);
  try_request(CreateRequest{0640, 1U << 30U, {"a/path"}}, 12);
  try_reply(CreateReply{7}, 8);
  try_request(WriteRequest{7, 1U << 30U, kMemory}, 32);
  try_reply(WriteReply{100, 99}, 12);
  try_request(CommitRequest{7, 0640, kCommitDurable, -5}, 24);
  try_request(DraftRequest{1, 2, {"a/path"}}, 16);
  try_reply(DraftReply{7, 8}, 16);
  try_request(EditRequest{0640, kEditCreate, {"a/path"}}, 8);
  try_reply(EditReply{7, kState}, 8 + FileState::kSize);
  try_request(SetRequest{7, kSetSize, 0640, 100, -5, {"a/path"}}, 32);
  try_reply(SetReply{kAttributes}, Attributes::kSize);
  try_request(SyncRequest{7}, 8);
  try_reply(SyncReply{99}, 8);
}

TEST(ObjectMessages, ComeBackAsTheyWere) {
  try_request(LeaseRequest{7}, 8);
  try_reply(LeaseReply{kState}, FileState::kSize);
  try_request(LinkRequest{"an/old", {"a/path"}}, 8);
  try_request(OwnRequest{7, 1000, kSameOwner, {"a/path"}}, 16);
  try_request(XattrsRequest{7, kMemory, {"a/path"}}, 24);
  try_reply(XattrsReply{100, kState}, 4 + FileState::kSize);
  const std::uint8_t value[] = {0, 1, 0xff};
  try_request(SetXattrRequest{7, 0, "user.a", value, {"a/path"}}, 12 + 8 + 5);
  try_request(SetXattrRequest{0, 1, "user.a", {}, {"a/path"}}, 12 + 8 + 2);
  try_request(KeepRequest{}, 0);
  try_reply(KeepReply{{1, 2}}, 16);
  try_request(ReopenRequest{{1, 2}, 7}, 24);
  const std::string longest(SetXattrRequest::kNameBytes, 'n');
  for (const std::string& name : {std::string(), longest, longest + "n"}) {
    const bool legal = name.size() == longest.size();
    const Octets octets = request_octets(SetXattrRequest{7, 0, name, {}, {}});
    EXPECT_EQ(decode<SetXattrRequest>(octets).has_value(), legal) << name.size();
  }
  EXPECT_FALSE(decode<SetXattrRequest>(request_octets(SetXattrRequest{7, 2, "n", {}, {}})));
}

TEST(ObjectMessages, AValueThatFitsIntoNoMessageIsNotSent) {
  const std::vector<std::uint8_t> value(kMessageBytes);
  EXPECT_TRUE(request_octets(SetXattrRequest{7, 0, "user.a", value, {}}).empty());
}

TEST(Xattr, ComesBackAsItWasAndIsRefusedIfItIsCut) {
  const std::uint8_t value[] = {0, 1, 0xff};
  std::uint8_t room[64];
  const std::size_t first = encode(Xattr{"user.a", value}, room);
  const std::size_t second = encode(Xattr{"user.empty", {}}, std::span(room).subspan(first));
  ASSERT_EQ(first, kXattrHeadBytes + 6 + 3);
  ASSERT_NE(second, 0U);
  std::span<const std::uint8_t> in(room, first + second);
  const auto one = decode_xattr(in);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->name, "user.a");
  EXPECT_TRUE(std::ranges::equal(one->value, value));
  const auto other = decode_xattr(in);
  ASSERT_TRUE(other && other->value.empty() && in.empty());
  EXPECT_FALSE(decode_xattr(in));
  for (std::size_t cut = 0; cut < first; ++cut) {
    std::span<const std::uint8_t> part(room, cut);
    EXPECT_FALSE(decode_xattr(part)) << cut;
    EXPECT_EQ(part.size(), cut);
  }
  EXPECT_EQ(encode(Xattr{"user.a", value}, std::span(room).first(first - 1)), 0U);
  EXPECT_EQ(encode(Xattr{"", value}, room), 0U);
}

TEST(FileMessages, RefuseWhatNoClientMayAsk) {
  const auto is_legal = [](const auto& request) {
    using Request = std::decay_t<decltype(request)>;
    return decode<Request>(request_octets(request)).has_value();
  };
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 62U;
  for (const std::uint32_t bytes : {0U, 1U, kMaxIoBytes, kMaxIoBytes + 1}) {
    const bool legal = bytes != 0 && bytes <= kMaxIoBytes;
    EXPECT_EQ(is_legal(ReadRequest{1, 0, {0, 1, bytes}}), legal) << bytes;
    EXPECT_EQ(is_legal(WriteRequest{1, 0, {0, 1, bytes}}), legal) << bytes;
    EXPECT_EQ(is_legal(SumRequest{1, 0, bytes}), bytes <= kMaxIoBytes) << bytes;
  }
  for (const std::uint64_t offset : {kEnd, kEnd + 1, ~std::uint64_t{0}}) {
    const bool legal = offset == kEnd;
    EXPECT_EQ(is_legal(ReadRequest{1, offset, kMemory}), legal);
    EXPECT_EQ(is_legal(WriteRequest{1, offset, kMemory}), legal);
    EXPECT_EQ(is_legal(SumRequest{1, offset, 1}), legal);
    EXPECT_EQ(is_legal(CreateRequest{0, offset, {"x"}}), legal);
    EXPECT_EQ(is_legal(DraftRequest{0, offset, {"x"}}), legal);
    EXPECT_EQ(is_legal(SetRequest{1, 0, 0, offset, 0, {}}), legal);
  }
}

TEST(FileMessages, RefuseExtentsThatCannotBe) {
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 62U;
  const auto is_legal = [](std::uint64_t next, std::initializer_list<Extent> extents) {
    ExtentsReply reply;
    reply.next = next;
    for (const Extent& one : extents) reply.extents[reply.count++] = one;
    return decode<ExtentsReply>(reply_octets(reply)).has_value();
  };
  EXPECT_TRUE(is_legal(0, {{0, 10}, {10, 1}}));
  EXPECT_FALSE(is_legal(0, {{0, 10}, {9, 1}}));
  EXPECT_FALSE(is_legal(0, {{0, 0}}));
  EXPECT_TRUE(is_legal(0, {{kEnd, kEnd}}));
  EXPECT_FALSE(is_legal(0, {{kEnd + 1, 1}}));
  EXPECT_FALSE(is_legal(0, {{1, kEnd + 1}}));
  EXPECT_TRUE(is_legal(20, {{10, 10}}));
  EXPECT_FALSE(is_legal(19, {{10, 10}}));
  EXPECT_FALSE(is_legal(kEnd + 1, {}));
  ExtentsReply most;
  for (; most.count < ExtentsReply::kMost; ++most.count) most.extents[most.count] = {most.count, 1};
  Octets octets = reply_octets(most);
  EXPECT_TRUE(decode<ExtentsReply>(octets));
  octets[Head::kSize + 11] = 1;  // the lowest octet of 257
  octets.resize(octets.size() + 16, 1);
  EXPECT_FALSE(decode<ExtentsReply>(octets));
}

TEST(PlayMessages, ComeBackAsTheyWere) {
  try_request(PlayRequest{7, 100, kMemory, 8192, 3, 50, 49, kPlayLoop, 3}, 60);
  try_reply(PlayReply{50, 1000}, 16);
  try_request(GrantRequest{7, 3, 49, kGrantSeek}, 24);
  try_reply(GrantReply{5}, 8);
}

TEST(PlayMessages, RefuseAFilmThatCannotBe) {
  PlayRequest legal;
  legal.memory = {0, 1, kMaxRecordBytes};
  legal.pitch = kMaxRecordBytes;
  legal.slots = kMaxSlots;
  legal.records = 1;
  const auto is_legal = [&](auto change) {
    PlayRequest r = legal;
    change(r);
    return decode<PlayRequest>(request_octets(r)).has_value();
  };
  EXPECT_TRUE(is_legal([](PlayRequest&) {}));
  EXPECT_FALSE(is_legal([](PlayRequest& r) { r.memory.bytes = r.pitch = kMaxRecordBytes + 1; }));
  EXPECT_FALSE(is_legal([](PlayRequest& r) { r.memory.bytes = 0; }));
  EXPECT_FALSE(is_legal([](PlayRequest& r) { r.pitch -= 1; }));
  EXPECT_FALSE(is_legal([](PlayRequest& r) { r.slots = 0; }));
  EXPECT_FALSE(is_legal([](PlayRequest& r) { r.slots = kMaxSlots + 1; }));
  EXPECT_FALSE(is_legal([](PlayRequest& r) { r.record = 1; }));
  EXPECT_FALSE(is_legal([](PlayRequest& r) { r.records = 0; }));
  EXPECT_FALSE(is_legal([](PlayRequest& r) { r.offset = (std::uint64_t{1} << 62U) + 1; }));
}

}  // namespace
}  // namespace weft::files
