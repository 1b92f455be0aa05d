// DdpStream by itself: what it takes and refuses (RFC 5041 sections 5 and 7), and in which order
// messages, FIN and memory go.
#include <gtest/gtest.h>

#include <string>

#include "ddp_side.h"

namespace weft::testing {
namespace {

using proto::DdpEnd;
using proto::DdpParams;

const Octets kTen(10, 0x5a);

DdpParams params(std::uint32_t queues = 2) {
  DdpParams p;
  p.queues = queues;
  p.send_depth = 4;
  return p;
}

DdpUntagged untagged(std::uint32_t queue, std::uint32_t msn, std::uint32_t mo = 0,
                     bool last = true) {
  return {.last = last, .queue = queue, .msn = Msn{msn}, .mo = mo};
}

void feed(DdpSide& side, Octets octets) { side.stream().feed(octets); }

// --- untagged ---

TEST(DdpStream, QueuesKeepTheirOwnNumbersAndMayInterleave) {
  DdpSide side(params());
  side.post_buffer(20, 0);
  side.post_buffer(10, 1);
  side.post_buffer(10, 0);
  feed(side, fpdu(untagged(0, 1, 0, false), kTen));
  feed(side, fpdu(untagged(1, 1), kTen));
  feed(side, fpdu(untagged(0, 1, 10), kTen));
  feed(side, fpdu(untagged(0, 2), {}));
  ASSERT_EQ(side.got.size(), 3U);
  EXPECT_EQ(side.got[0].queue, 1U);
  EXPECT_EQ(side.got[1].octets, Octets(20, 0x5a));
  EXPECT_TRUE(side.got[2].octets.empty());
  EXPECT_FALSE(side.ended);
}

struct Refusal {
  std::string name;
  DdpUntagged header;
  std::size_t payload;
  DdpEnd how;
};
class DdpUntaggedRefusal : public ::testing::TestWithParam<Refusal> {};

// One buffer of 10 octets is posted on queue 0, none on queue 1.
TEST_P(DdpUntaggedRefusal, EndsTheStream) {
  DdpSide side(params());
  side.post_buffer(10);
  feed(side, fpdu(GetParam().header, Octets(GetParam().payload, 1)));
  EXPECT_EQ(side.ended, GetParam().how);
  EXPECT_TRUE(side.stream().wants_reset());
  EXPECT_TRUE(side.got.empty());
  EXPECT_TRUE(side.intact());
}
INSTANTIATE_TEST_SUITE_P(
    Rfc5041_7_1, DdpUntaggedRefusal,
    ::testing::Values(Refusal{"QueueBehindTheLast", untagged(2, 1), 1, DdpEnd::kNoQueue},
                      Refusal{"MsnAhead", untagged(0, 2), 1, DdpEnd::kMsn},
                      Refusal{"MsnOfTheLastMessage", untagged(0, 0), 1, DdpEnd::kMsn},
                      Refusal{"NoBuffer", untagged(1, 1), 1, DdpEnd::kNoBuffer},
                      Refusal{"OffsetAhead", untagged(0, 1, 1), 1, DdpEnd::kBadOffset},
                      Refusal{"OneOctetTooLong", untagged(0, 1), 11, DdpEnd::kTooLong}),
    [](const auto& r) { return r.param.name; });

TEST(DdpStream, AMessageMayFillItsBufferToTheLastOctet) {
  DdpSide side(params());
  side.post_buffer(10);
  feed(side, fpdu(untagged(0, 1), kTen));
  ASSERT_EQ(side.got.size(), 1U);
  EXPECT_EQ(side.got[0].octets, kTen);
  EXPECT_TRUE(side.intact());
}

// The segments of a message come in order: the second one again, or one with a gap, is refused.
TEST(DdpStream, AGapWithinAMessageIsRefused) {
  for (const std::uint32_t offset : {0U, 9U, 11U}) {
    DdpSide side(params());
    side.post_buffer(30);
    feed(side, fpdu(untagged(0, 1, 0, false), kTen));
    feed(side, fpdu(untagged(0, 1, offset), kTen));
    EXPECT_EQ(side.ended, DdpEnd::kBadOffset) << offset;
  }
}

// --- tagged ---

TEST(DdpStream, TaggedSegmentsArePlacedAndTheLastOneIsDelivered) {
  DdpSide side(params());
  feed(side, fpdu(DdpTagged{false, 7, DdpSide::kStag, DdpSide::kBase + 10}, kTen));
  EXPECT_TRUE(side.notified.empty());
  feed(side, fpdu(DdpTagged{true, 7, DdpSide::kStag, DdpSide::kBase + 20}, kTen));
  EXPECT_EQ(side.notified, std::vector<std::uint8_t>{7});
  EXPECT_EQ(Octets(side.memory().begin() + 10, side.memory().begin() + 30), Octets(20, 0x5a));
  EXPECT_EQ(side.memory()[9], DdpSide::kFill);
  EXPECT_EQ(side.memory()[30], DdpSide::kFill);
}

TEST(DdpStream, FaultsOfMemoryEndIt) {
  struct Case {
    Stag stag;
    std::uint64_t to;
    DdpEnd how;
  };
  constexpr std::uint64_t kEnd = DdpSide::kBase + 4096;
  for (const Case& c : {Case{Stag{5}, DdpSide::kBase, DdpEnd::kInvalidStag},
                        Case{DdpSide::kForeignStag, DdpSide::kBase, DdpEnd::kNotOfStream},
                        Case{DdpSide::kReadOnlyStag, DdpSide::kBase, DdpEnd::kNoRight},
                        Case{DdpSide::kStag, DdpSide::kBase - 1, DdpEnd::kBounds},
                        Case{DdpSide::kStag, kEnd - 9, DdpEnd::kBounds},
                        Case{DdpSide::kStag, ~std::uint64_t{0} - 8, DdpEnd::kWrap}}) {
    DdpSide side(params());
    feed(side, fpdu(DdpTagged{true, 0, c.stag, c.to}, kTen));
    EXPECT_EQ(side.ended, c.how);
    EXPECT_TRUE(side.intact());
  }
  DdpSide side(params());
  feed(side, fpdu(DdpTagged{true, 0, DdpSide::kStag, kEnd - 10}, kTen));
  EXPECT_FALSE(side.ended);
}

// RFC 5041 5.2: STag and offset of a segment without payload are not checked.
TEST(DdpStream, ATaggedSegmentWithoutPayloadMayNameAnything) {
  DdpSide side(params());
  feed(side, fpdu(DdpTagged{true, 9, Stag{0xdead}, ~std::uint64_t{0}}, {}));
  EXPECT_EQ(side.notified, std::vector<std::uint8_t>{9});
}

TEST(DdpStream, AnUpperLayerThatTakesNoMoreEndsIt) {
  DdpSide side(params());
  side.takes_notifications = false;
  feed(side, fpdu(DdpTagged{true, 9, DdpSide::kStag, DdpSide::kBase}, kTen));
  EXPECT_EQ(side.ended, DdpEnd::kRefused);
}

// --- framing ---

TEST(DdpStream, RefusesAHeaderCutAtEveryOctet) {
  for (const bool is_tagged : {false, true}) {
    Octets header(is_tagged ? kDdpTaggedSize : kDdpUntaggedSize);
    if (is_tagged) {
      store_ddp(DdpTagged{true, 0, DdpSide::kStag, DdpSide::kBase}, header.data());
    } else {
      store_ddp(untagged(0, 1), header.data());
    }
    for (std::size_t size = 1; size < header.size(); ++size) {
      DdpSide side(params());
      side.post_buffer(10);
      feed(side, fpdu(std::span(header).first(size)));
      EXPECT_EQ(side.ended, DdpEnd::kFraming) << size;
    }
  }
}

TEST(DdpStream, RefusesAnotherVersion) {
  Octets header(kDdpTaggedSize);
  store_ddp(DdpTagged{true, 0, DdpSide::kStag, DdpSide::kBase}, header.data());
  header[0] = static_cast<std::uint8_t>((header[0] & 0xfcU) | 2U);
  DdpSide side(params());
  feed(side, fpdu(header));
  EXPECT_EQ(side.ended, DdpEnd::kVersion);
}

TEST(DdpStream, ABadCrcPlacesNothing) {
  DdpSide side(params());
  Octets bad = fpdu(DdpTagged{true, 0, DdpSide::kStag, DdpSide::kBase}, kTen);
  bad[bad.size() - 1] ^= 1U;
  feed(side, bad);
  EXPECT_EQ(side.ended, DdpEnd::kFraming);
  EXPECT_EQ(Octets(side.memory().begin(), side.memory().end()), Octets(4096, DdpSide::kFill));
}

// --- MPA by itself ---

TEST(DdpStream, WithoutHeadersEachFpduIsAMessage) {
  DdpParams p = params(1);
  p.bare = true;
  p.max_ulpdu = 100;
  DdpSide from(p), to(p);
  EXPECT_EQ(from.send(Octets(101)).error(), Error::kInvalidArgument);
  EXPECT_EQ(from.send({}).error(), Error::kInvalidArgument);
  EXPECT_EQ(from.write(kTen, 0).error(), Error::kInvalidArgument);
  ASSERT_TRUE(from.send(Octets(100, 3)));
  ASSERT_TRUE(from.send({4}));
  to.post_buffer(100);
  to.post_buffer(100);
  feed(to, from.take());
  ASSERT_EQ(to.got.size(), 2U);
  EXPECT_EQ(to.got[0].octets, Octets(100, 3));
  EXPECT_EQ(to.got[1].octets, Octets{4});
}

// --- posting ---

TEST(DdpStream, PostingIsBoundedByMessagesWhoseMemoryIsInUse) {
  DdpSide side(params());
  EXPECT_EQ(side.send(kTen, 2).error(), Error::kInvalidArgument);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(side.send(kTen));
  EXPECT_EQ(side.send(kTen).error(), Error::kNoSpace);
  (void)side.take(SIZE_MAX, true);
  EXPECT_EQ(side.send(kTen).error(), Error::kNoSpace) << "taken is not released";
  side.release_held();
  EXPECT_EQ(side.released_whole, 4U);
  EXPECT_TRUE(side.send(kTen));
  side.stream().close();
  EXPECT_EQ(side.send(kTen).error(), Error::kBadState);
}

TEST(DdpStream, WithoutABatchItWaits) {
  DdpSide side(params());
  side.batches_max = 0;
  ASSERT_TRUE(side.send(kTen));
  EXPECT_TRUE(side.take().empty());
  EXPECT_TRUE(side.stream().tx_pending());
  side.batches_max = 1;
  EXPECT_FALSE(side.take().empty());
  EXPECT_EQ(side.released_whole, 1U);
}

// A responder of MPA may not send before its peer has (RFC 5044 7.1.3).
TEST(DdpStream, AResponderHoldsItsMessagesUntilThePeerHasSpoken) {
  DdpParams p = params();
  p.may_send = false;
  DdpSide side(p);
  ASSERT_TRUE(side.send(kTen));
  EXPECT_TRUE(side.take().empty());
  feed(side, fpdu(DdpTagged{true, 0, DdpSide::kStag, DdpSide::kBase}, kTen));
  EXPECT_FALSE(side.take().empty());
}

TEST(DdpStream, ThePatienceOfAResponderEnds) {
  DdpParams p = params();
  p.may_send = false;
  DdpSide side(p);
  ASSERT_TRUE(side.send(kTen));
  side.stream().speak();
  EXPECT_FALSE(side.take().empty());
}

// --- ending ---

// What is posted goes first, however long the stream has to hold it.
TEST(DdpStream, TheFinOfAResponderFollowsWhatItHolds) {
  DdpParams p = params();
  p.may_send = false;
  DdpSide side(p);
  ASSERT_TRUE(side.send(kTen));
  side.stream().close();
  EXPECT_FALSE(side.stream().take_fin());
  side.stream().speak();
  EXPECT_FALSE(side.stream().take_fin());
  EXPECT_FALSE(side.take(5).empty());
  EXPECT_FALSE(side.stream().take_fin()) << "in the middle of the FPDU";
  EXPECT_FALSE(side.take().empty());
  EXPECT_TRUE(side.stream().take_fin());
  EXPECT_FALSE(side.stream().take_fin()) << "once";
  side.stream().peer_closed();
  EXPECT_EQ(side.ended, DdpEnd::kOrderly);
  EXPECT_EQ(side.released_whole, 1U);
  EXPECT_TRUE(side.intact());
}

TEST(DdpStream, AResponderWhosePeerClosesWithoutAWordGivesBackWhatItHeld) {
  DdpParams p = params();
  p.may_send = false;
  DdpSide side(p);
  ASSERT_TRUE(side.send(kTen));
  side.stream().peer_closed();
  EXPECT_EQ(side.ended, DdpEnd::kOrderly);
  EXPECT_EQ(side.released_unsent, 1U);
  EXPECT_TRUE(side.stream().take_fin());
  EXPECT_TRUE(side.stream().finished());
}

TEST(DdpStream, AFinWithinAMessageIsALoss) {
  const Octets first = fpdu(untagged(0, 1, 0, false), kTen);
  for (std::size_t n = 1; n <= first.size(); ++n) {
    DdpSide side(params());
    side.post_buffer(20);
    feed(side, Octets(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(n)));
    side.stream().peer_closed();
    EXPECT_EQ(side.ended, DdpEnd::kLost) << n;
    EXPECT_TRUE(side.intact()) << n;
  }
  DdpSide side(params());
  feed(side, fpdu(DdpTagged{false, 0, DdpSide::kStag, DdpSide::kBase}, kTen));
  side.stream().peer_closed();
  EXPECT_EQ(side.ended, DdpEnd::kLost) << "of a tagged message";
}

TEST(DdpStream, WhatThePeerStillWaitsForGoesOutBehindItsFin) {
  DdpSide side(params());
  ASSERT_TRUE(side.send(kTen));
  side.stream().peer_closed();
  EXPECT_FALSE(side.ended);
  EXPECT_FALSE(side.take(SIZE_MAX, true).empty());
  EXPECT_FALSE(side.ended);
  side.release_held();
  EXPECT_EQ(side.ended, DdpEnd::kOrderly);
}

// The memory of a message that is in flight is the transport's until it says otherwise.
TEST(DdpStream, AnAbortLeavesWhatIsInFlightToTheTransport) {
  DdpSide side(params());
  ASSERT_TRUE(side.send(kTen));
  ASSERT_TRUE(side.send(kTen));
  EXPECT_EQ(side.take(5, true).size(), 5U);
  side.stream().abort();
  EXPECT_EQ(side.ended, DdpEnd::kAborted);
  EXPECT_EQ(side.released_whole + side.released_unsent, 0U);
  side.stream().transport_closed();
  EXPECT_EQ(side.released_unsent, 2U);
  EXPECT_TRUE(side.intact());
}

}  // namespace
}  // namespace weft::testing
