// MPA start-up, both roles: RFC 5044 section 7.1, RFC 6581 sections 6 and 9.
#include <gtest/gtest.h>

#include "startup_frames.h"

namespace weft::proto::startup_test {
namespace {

// --- frames as sent ---

TEST(StartupFrames, RequestsAreThoseOfTheExamples) {
  const Bytes ping = text("ping");
  auto s = Startup::initiator(ping_offer(ping));
  ASSERT_TRUE(s);
  EXPECT_EQ(to_hex(s->to_send()), to_hex(request("50 02 0008 8010 c010 70696e67")));

  StartupOffer plain;
  plain.revision = 1;
  s = Startup::initiator(plain);
  ASSERT_TRUE(s);
  EXPECT_EQ(to_hex(s->to_send()), to_hex(request("40 01 0000")));

  StartupOffer siw;
  siw.crc = false;
  siw.ird = siw.ord = 128;
  s = Startup::initiator(siw);
  ASSERT_TRUE(s);
  EXPECT_EQ(to_hex(s->to_send()), to_hex(request("10 02 0004 0080 0080")));
}

TEST(StartupFrames, RepliesAreThoseOfTheExamples) {
  const Bytes pong = text("pong");
  StartupOffer o;
  o.ird = 16;
  o.ord = 8;
  o.private_data = pong;
  EXPECT_EQ(to_hex(answer(request("50 02 0008 8010 c010 70696e67"), o)),
            to_hex(reply("50 02 0008 8010 4008 706f6e67")));

  Startup s = server_with(request("50 02 0008 8010 c010 70696e67"));
  ASSERT_TRUE(s.reject({}));
  EXPECT_EQ(to_hex(s.to_send()), to_hex(reply("30 02 0004 0000 0000")));
  s.sent(s.to_send().size());
  EXPECT_EQ(s.state(), StartupState::kRejected);
}

TEST(StartupFrames, MarkersAreAskedForByTheirReceiver) {
  StartupOffer o;
  o.revision = 1;
  o.markers = true;
  auto s = Startup::initiator(o);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->to_send()[16], 0xc0);

  Startup r = server_with(request("80 01 0000"));
  EXPECT_TRUE(r.peer().markers);
  ASSERT_TRUE(r.accept({}));
  EXPECT_TRUE(r.result().tx_markers);
  EXPECT_FALSE(r.result().rx_markers);
  EXPECT_EQ(r.to_send()[16], 0x40);
}

TEST(StartupFrames, GoOutInPieces) {
  auto s = Startup::initiator({});
  ASSERT_TRUE(s);
  Bytes out;
  while (!s->to_send().empty()) {
    EXPECT_EQ(s->state(), StartupState::kSendingRequest);
    out.push_back(s->to_send()[0]);
    s->sent(1);
  }
  EXPECT_EQ(to_hex(out), to_hex(request("50 02 0004 0000 0000")));
  EXPECT_EQ(s->state(), StartupState::kAwaitingReply);
}

// --- what a caller may ask for ---

TEST(StartupOffers, PrivateDataFitsWithTheEnhancedWordsInTheSame512Octets) {
  const Bytes fits(508, 1), one_more(509, 1), plain_most(512, 1), too_long(513, 1);
  StartupOffer o;
  o.private_data = fits;
  EXPECT_TRUE(Startup::initiator(o));
  o.private_data = one_more;
  EXPECT_EQ(Startup::initiator(o).error(), Error::kPrivateDataTooLong);
  o.revision = 1;
  o.private_data = plain_most;
  EXPECT_TRUE(Startup::initiator(o));
  o.private_data = too_long;
  EXPECT_EQ(Startup::initiator(o).error(), Error::kPrivateDataTooLong);
}

TEST(StartupOffers, AnAnswerTooLongChangesNothing) {
  const Bytes fits(508, 1), one_more(509, 1);
  Startup s = server_with(request("50 02 0004 0000 0000"));
  EXPECT_EQ(s.private_data_max(), 508U);
  StartupOffer o;
  o.private_data = one_more;
  EXPECT_EQ(s.accept(o).error(), Error::kPrivateDataTooLong);
  EXPECT_EQ(s.reject(one_more).error(), Error::kPrivateDataTooLong);
  EXPECT_EQ(s.state(), StartupState::kRequestReady);
  o.private_data = fits;
  EXPECT_TRUE(s.accept(o));
  EXPECT_EQ(s.to_send().size(), 532U);

  Startup plain = server_with(request("40 01 0000"));
  EXPECT_EQ(plain.private_data_max(), 512U);
  EXPECT_TRUE(plain.reject(Bytes(512, 1)));
}

TEST(StartupOffers, NonsenseIsRefused) {
  const auto refused = [](auto change) {
    StartupOffer o;
    change(o);
    const auto s = Startup::initiator(o);
    return !s && s.error() == Error::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](StartupOffer& o) { o.revision = 0; }));
  EXPECT_TRUE(refused([](StartupOffer& o) { o.revision = 3; }));
  EXPECT_TRUE(refused([](StartupOffer& o) { o.ird = 0x3fff; }));
  EXPECT_TRUE(refused([](StartupOffer& o) { o.ord = 0x3fff; }));
  EXPECT_TRUE(refused([](StartupOffer& o) { o.peer_to_peer = true, o.revision = 1; }));
  EXPECT_TRUE(
      refused([](StartupOffer& o) { o.peer_to_peer = true, o.rtr_read = o.rtr_write = false; }));
  EXPECT_FALSE(refused([](StartupOffer& o) { o.ird = o.ord = 0x3ffe; }));

  Startup s = Startup::responder();
  EXPECT_EQ(s.accept({}).error(), Error::kBadState);
  EXPECT_EQ(s.reject({}).error(), Error::kBadState);
  s = server_with(request("40 01 0000"));
  StartupOffer o;
  o.ird = 0x3fff;
  EXPECT_EQ(s.accept(o).error(), Error::kInvalidArgument);
  EXPECT_TRUE(s.accept({}));
  EXPECT_EQ(s.accept({}).error(), Error::kBadState);
}

// --- responder: what is refused, and how ---

TEST(StartupResponder, TakesARequestInAnyPiecesAndNeverAsksForMore) {
  const Bytes frame = request("50 02 0008 8010 c010 70696e67");
  for (std::size_t piece = 1; piece <= frame.size(); ++piece) {
    Startup s = Startup::responder();
    std::size_t at = 0;
    while (s.missing() != 0) {
      const std::size_t n = std::min({piece, s.missing(), frame.size() - at});
      ASSERT_GT(n, 0U) << "asked for octets behind the frame";
      EXPECT_EQ(s.received({frame.data() + at, n}).value_or(0), n);
      at += n;
    }
    EXPECT_EQ(at, frame.size());
    EXPECT_EQ(s.state(), StartupState::kRequestReady);
    EXPECT_EQ(to_hex(s.peer().private_data), "70696e67");
  }
}

// Whoever answers enhanced words has some: they are read with what says how long the rest is.
TEST(StartupInitiator, AsksForTheWordsWithTheHeadOfTheReply) {
  for (const std::uint8_t revision : std::initializer_list<std::uint8_t>{1, 2}) {
    StartupOffer offer;
    offer.revision = revision;
    Startup s = *Startup::initiator(offer);
    EXPECT_EQ(s.missing_with_words(), 0U);
    s.sent(s.to_send().size());
    EXPECT_EQ(s.missing(), 20U);
    EXPECT_EQ(s.missing_with_words(), revision == 2 ? 24U : 20U);
    const Bytes answer =
        reply(revision == 2 ? "50 02 0008 0001 0001 70696e67" : "40 01 0004 70696e67");
    EXPECT_EQ(s.received({answer.data(), 7}).value_or(0), 7U);
    EXPECT_EQ(s.missing_with_words(), revision == 2 ? 17U : 13U);
    const std::size_t rest = 7 + s.missing_with_words();
    EXPECT_EQ(s.received({answer.data() + 7, rest - 7}).value_or(0), rest - 7);
    EXPECT_EQ(s.missing_with_words(), 4U);
    EXPECT_EQ(s.received({answer.data() + rest, 4}).value_or(0), 4U);
    EXPECT_EQ(s.state(), StartupState::kDone);
  }
}

TEST(StartupResponder, SaysWhyARequestIsBad) {
  EXPECT_EQ(failure_of(text("GET / HTTP/1.1\r\n\r\n")), StartupFailure::kNotMpa);
  EXPECT_EQ(failure_of(text("X")), StartupFailure::kNotMpa);
  EXPECT_EQ(failure_of(reply("40 01 0000")), StartupFailure::kTwoResponders);
  EXPECT_EQ(failure_of(request("40 01 0201")), StartupFailure::kPrivateDataTooLong);
  EXPECT_EQ(failure_of(request("40 03 0000")), StartupFailure::kRevisionUnknown);
  EXPECT_EQ(failure_of(request("40 ff 0000")), StartupFailure::kRevisionUnknown);
  EXPECT_EQ(failure_of(request("50 02 0003 000000")), StartupFailure::kEnhancedCutShort);
  EXPECT_EQ(failure_of(request("50 02 0000")), StartupFailure::kEnhancedCutShort);
  EXPECT_EQ(failure_of(request("40 01 0000 00")), StartupFailure::kDataBehindRequest);
}

TEST(StartupResponder, LongestPrivateDataIsTaken) {
  const Bytes data(512, 0x5a);
  const Startup s = server_with(request("40 01 0200") + data);
  EXPECT_EQ(to_hex(s.peer().private_data), to_hex(data));
}

TEST(StartupResponder, IgnoresReservedBitsAndRejectInARequest) {
  EXPECT_EQ(server_with(request("2f 01 0000")).state(), StartupState::kRequestReady);
  EXPECT_FALSE(
      server_with(request("10 01 0002 1234")).peer().enhanced);  // S means nothing in rev 1
  EXPECT_EQ(to_hex(server_with(request("10 01 0002 1234")).peer().private_data), "1234");
}

TEST(StartupResponder, AnswersRevisionZeroWithARejectOfRevisionOneThenFails) {
  Startup s = Startup::responder();
  EXPECT_FALSE(s.received(request("c0 00 0000")).has_value());
  EXPECT_EQ(s.failure(), StartupFailure::kRevisionZero);
  ASSERT_EQ(s.state(), StartupState::kSendingRevision);
  EXPECT_EQ(to_hex(s.to_send()), to_hex(reply("20 01 0000")));
  s.sent(s.to_send().size());
  EXPECT_EQ(s.state(), StartupState::kFailed);
}

TEST(StartupResponder, OctetsBeforeTheReplyIsOutAreAnError) {
  const Bytes one{0};
  Startup s = server_with(request("40 01 0000"));
  EXPECT_EQ(s.missing(), 0U);
  EXPECT_FALSE(s.received(one).has_value());
  EXPECT_EQ(s.failure(), StartupFailure::kDataBehindRequest);

  s = server_with(request("40 01 0000"));
  ASSERT_TRUE(s.accept({}));
  s.sent(3);
  EXPECT_FALSE(s.received(one).has_value());
  EXPECT_EQ(s.state(), StartupState::kFailed);
  EXPECT_TRUE(s.to_send().empty());

  s = server_with(request("40 01 0000"));
  ASSERT_TRUE(s.accept({}));
  s.sent(s.to_send().size());
  EXPECT_EQ(s.state(), StartupState::kDone);
  EXPECT_EQ(s.received(one).value_or(9), 0U);  // the stream's
  EXPECT_EQ(s.state(), StartupState::kDone);
}

TEST(StartupResponder, ARejectGoesOutWhateverFollowsTheRequest) {
  Startup s = server_with(request("40 01 0000"));
  ASSERT_TRUE(s.reject(hex("abcd")));
  EXPECT_TRUE(s.received(Bytes{1}).has_value());
  EXPECT_EQ(to_hex(s.to_send()), to_hex(reply("20 01 0002 abcd")));
  s.sent(s.to_send().size());
  EXPECT_EQ(s.state(), StartupState::kRejected);
}

TEST(StartupResponder, AnswersInTheRevisionAndWithTheSBitOfTheRequest) {
  EXPECT_EQ(to_hex(answer(request("40 01 0000"), {})), to_hex(reply("40 01 0000")));
  EXPECT_EQ(to_hex(answer(request("40 02 0000"), {})), to_hex(reply("40 02 0000")));
  EXPECT_EQ(to_hex(answer(request("50 02 0004 00000000"), {})),
            to_hex(reply("50 02 0004 0000 0000")));
}

TEST(StartupResponder, RejectKeepsRevisionAndSBit) {
  Startup s = server_with(request("40 02 0000"));
  ASSERT_TRUE(s.reject({}));
  EXPECT_EQ(to_hex(s.to_send()), to_hex(reply("20 02 0000")));
  s = server_with(request("50 02 0004 80ff c0ff"));
  ASSERT_TRUE(s.reject(hex("77")));
  EXPECT_EQ(to_hex(s.to_send()), to_hex(reply("30 02 0005 0000 0000 77")));
}

// --- CRC: on as soon as either frame has C ---

TEST(StartupCrc, IsOffOnlyIfNeitherSideWantsIt) {
  for (const bool theirs : {false, true}) {
    for (const bool ours : {false, true}) {
      StartupOffer o;
      o.crc = ours;
      Startup r = server_with(request(theirs ? "40 01 0000" : "00 01 0000"));
      ASSERT_TRUE(r.accept(o));
      EXPECT_EQ(r.result().crc, ours || theirs);
      EXPECT_EQ((r.to_send()[16] & 0x40) != 0, ours || theirs);

      o.revision = 1;
      Startup i = client(o);
      ASSERT_TRUE(i.received(reply(theirs ? "40 01 0000" : "00 01 0000")));
      EXPECT_EQ(i.result().crc, ours || theirs);
    }
  }
}

// --- initiator: the Reply ---

TEST(StartupInitiator, SaysWhyAReplyIsBad) {
  const StartupOffer rev2;
  StartupOffer rev1;
  rev1.revision = 1;
  EXPECT_EQ(failure_of_reply(rev2, text("HTTP/1.1 400")), StartupFailure::kNotMpa);
  EXPECT_EQ(failure_of_reply(rev2, request("40 01 0000")), StartupFailure::kTwoInitiators);
  EXPECT_EQ(failure_of_reply(rev2, reply("50 02 0201")), StartupFailure::kPrivateDataTooLong);
  EXPECT_EQ(failure_of_reply(rev2, reply("40 01 0000")), StartupFailure::kRevisionMismatch);
  EXPECT_EQ(failure_of_reply(rev1, reply("40 02 0000")), StartupFailure::kRevisionMismatch);
  EXPECT_EQ(failure_of_reply(rev2, reply("40 02 0000")), StartupFailure::kEnhancedMissing);
  EXPECT_EQ(failure_of_reply(rev2, reply("50 02 0003 000000")), StartupFailure::kEnhancedCutShort);
}

TEST(StartupInitiator, LeavesFpdusBehindTheReplyToTheStream) {
  Startup s = client({});
  const Bytes frame = reply("50 02 0005 0000 0000 aa");
  EXPECT_EQ(s.received(frame + hex("0012 4143")).value_or(0), frame.size());
  EXPECT_EQ(s.state(), StartupState::kDone);
  EXPECT_EQ(to_hex(s.peer().private_data), "aa");
}

TEST(StartupInitiator, NothingMayComeBeforeTheRequestIsOut) {
  auto s = Startup::initiator({});
  ASSERT_TRUE(s);
  s->sent(5);
  EXPECT_FALSE(s->received(Bytes{'M'}).has_value());
  EXPECT_EQ(s->failure(), StartupFailure::kDataBeforeRequest);
}

TEST(StartupInitiator, ARejectCarriesPrivateDataInAnyRevisionWithOrWithoutWords) {
  Startup s = client({});
  ASSERT_TRUE(s.received(reply("30 02 000c 0000 0000 3031323334353637")));
  EXPECT_EQ(s.state(), StartupState::kRejected);
  EXPECT_EQ(to_hex(s.peer().private_data), "3031323334353637");

  s = client({});
  ASSERT_TRUE(s.received(reply("30 02 0000")));  // siw: S, but nothing behind it
  EXPECT_EQ(s.state(), StartupState::kRejected);
  EXPECT_TRUE(s.peer().private_data.empty());
  EXPECT_FALSE(s.peer().enhanced);

  s = client({});
  ASSERT_TRUE(s.received(reply("20 01 0001 07")));
  EXPECT_EQ(s.state(), StartupState::kRejected);
  EXPECT_EQ(s.peer().revision, 1);
  EXPECT_EQ(to_hex(s.peer().private_data), "07");
}

TEST(Startup, ClosedByThePeerBeforeTheEndIsAFailure) {
  Startup s = Startup::responder();
  ASSERT_TRUE(s.received(Bytes{'M', 'P'}));
  s.peer_closed();
  EXPECT_EQ(s.state(), StartupState::kFailed);
  EXPECT_EQ(s.failure(), StartupFailure::kClosedByPeer);
  EXPECT_FALSE(s.received(Bytes{'A'}).has_value());

  Startup done = client({});
  ASSERT_TRUE(done.received(reply("50 02 0004 00000000")));
  done.peer_closed();
  EXPECT_EQ(done.state(), StartupState::kDone);
}

TEST(Startup, EveryFailureAndStateHasWords) {
  for (int f = 0; f <= static_cast<int>(StartupFailure::kClosedByPeer); ++f) {
    EXPECT_NE(describe(static_cast<StartupFailure>(f)), "unknown start-up failure");
  }
  for (int s = 0; s <= static_cast<int>(StartupState::kFailed); ++s) {
    EXPECT_NE(describe(static_cast<StartupState>(s)), "unknown state");
  }
}
}  // namespace
}  // namespace weft::proto::startup_test
