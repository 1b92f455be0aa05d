// MPA start-up, both roles: RFC 5044 section 7.1, RFC 6581 sections 6 and 9.
#include <gtest/gtest.h>

#include "proto/startup.h"
#include "wire_testing.h"

namespace weft::proto {
namespace {

using testing::Bytes;
using testing::hex;
using testing::operator+;
using testing::to_hex;

const Bytes kRequestKey = hex("4d504120494420526571204672616d65");
const Bytes kReplyKey = hex("4d504120494420526570204672616d65");

Bytes text(std::string_view s) { return {s.begin(), s.end()}; }
Bytes request(std::string_view rest) { return kRequestKey + hex(rest); }
Bytes reply(std::string_view rest) { return kReplyKey + hex(rest); }

Startup client(const StartupOffer& offer) {
  auto s = Startup::initiator(offer);
  EXPECT_TRUE(s.has_value());
  s->sent(s->to_send().size());
  EXPECT_EQ(s->state(), StartupState::kAwaitingReply);
  return *s;
}

Startup server_with(const Bytes& frame) {
  Startup s = Startup::responder();
  EXPECT_EQ(s.received(frame).value_or(0), frame.size());
  EXPECT_EQ(s.state(), StartupState::kRequestReady);
  return s;
}

// The Reply that `offer` draws to `frame`.
Bytes answer(const Bytes& frame, const StartupOffer& offer) {
  Startup s = server_with(frame);
  EXPECT_TRUE(s.accept(offer).has_value());
  const auto out = s.to_send();
  return {out.begin(), out.end()};
}

StartupFailure failure_of(const Bytes& frame) {
  Startup s = Startup::responder();
  const auto taken = s.received(frame);
  EXPECT_FALSE(taken.has_value());
  return s.failure();
}

StartupFailure failure_of_reply(const StartupOffer& offer, const Bytes& frame) {
  Startup s = client(offer);
  EXPECT_FALSE(s.received(frame).has_value());
  EXPECT_EQ(s.state(), StartupState::kFailed);
  EXPECT_TRUE(s.to_send().empty());
  return s.failure();
}

// The example pair of RFC 6581 set-up: CRC, peer-to-peer, both RTR kinds, 16 and 16.
StartupOffer ping_offer(const Bytes& data) {
  StartupOffer o;
  o.peer_to_peer = true;
  o.ird = o.ord = 16;
  o.private_data = data;
  return o;
}

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
    EXPECT_EQ(s->state(), StartupState::kSending);
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
  ASSERT_EQ(s.state(), StartupState::kSending);
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

// --- IRD and ORD (RFC 6581 section 9.1) ---

struct Depths {
  std::uint16_t ird, ord;
  bool operator==(const Depths&) const = default;
};
void PrintTo(const Depths& d, std::ostream* out) { *out << "ird " << d.ird << " ord " << d.ord; }

// What a responder with `o` says and does about a Request with these words.
std::pair<Depths, Depths> settle(std::uint16_t their_ird, std::uint16_t their_ord,
                                 const StartupOffer& o) {
  Bytes frame = request("50 02 0004 00000000");
  store_be16(frame.data() + 20, their_ird);
  store_be16(frame.data() + 22, their_ord);
  Startup s = server_with(frame);
  EXPECT_EQ(s.peer().ird, their_ird);
  EXPECT_EQ(s.peer().ord, their_ord);
  EXPECT_TRUE(s.accept(o));
  const auto words = s.to_send().subspan(20);
  return {{static_cast<std::uint16_t>(load_be16(words.data()) & 0x3fff),
           static_cast<std::uint16_t>(load_be16(words.data() + 2) & 0x3fff)},
          {s.result().ird, s.result().ord}};
}

StartupOffer depths(std::uint16_t ird, std::uint16_t ord) {
  StartupOffer o;
  o.ird = ird;
  o.ord = ord;
  return o;
}

TEST(StartupDepths, ResponderLowersItsOrdToThePeersIrd) {
  EXPECT_EQ(settle(3, 0, depths(8, 10)).first, (Depths{8, 3}));
  EXPECT_EQ(settle(3, 0, depths(8, 10)).second, (Depths{8, 3}));
  EXPECT_EQ(settle(30, 0, depths(8, 10)).second, (Depths{8, 10}));
}

TEST(StartupDepths, ResponderServesNoMoreThanItsIrd) {
  EXPECT_EQ(settle(0, 16, depths(3, 0)).first, (Depths{3, 0}));
  EXPECT_EQ(settle(0, 16, depths(3, 0)).second, (Depths{3, 0}));
  EXPECT_EQ(settle(0, 2, depths(3, 0)).first, (Depths{3, 0}));
}

TEST(StartupDepths, ResponderAnswersNotNegotiatedInKind) {
  EXPECT_EQ(settle(0x3fff, 16, depths(3, 9)).first, (Depths{3, 0x3fff}));
  EXPECT_EQ(settle(0x3fff, 16, depths(3, 9)).second, (Depths{3, 9}));
  EXPECT_EQ(settle(4, 0x3fff, depths(3, 9)).first, (Depths{0x3fff, 4}));
  EXPECT_EQ(settle(4, 0x3fff, depths(3, 9)).second, (Depths{3, 4}));
}

TEST(StartupDepths, ResponderServesOneReadEvenIfTheApplicationServesNone) {
  EXPECT_EQ(settle(0, 0, depths(0, 0)).first, (Depths{0, 0}));
  EXPECT_EQ(settle(0, 0, depths(0, 0)).second.ird, 1);
  Startup s = server_with(request("40 01 0000"));
  ASSERT_TRUE(s.accept(depths(0, 5)));
  EXPECT_EQ(s.result().ird, 1);  // some initiators send a Read RTR in revision 1
  EXPECT_EQ(s.result().ord, 5);
}

Negotiated after_reply(const StartupOffer& o, std::string_view words) {
  Startup s = client(o);
  EXPECT_TRUE(s.received(reply("50 02 0004" + std::string(words))));
  EXPECT_EQ(s.state(), StartupState::kDone);
  return s.result();
}

TEST(StartupDepths, InitiatorLowersItsOrdToTheReplysIrd) {
  EXPECT_EQ(after_reply(depths(4, 16), "0003 0002").ord, 3);
  EXPECT_EQ(after_reply(depths(4, 16), "0030 0002").ord, 16);
  EXPECT_EQ(after_reply(depths(4, 16), "3fff 0002").ord, 16);
}

TEST(StartupDepths, InitiatorWithTooLittleIrdEndsWithATerminate) {
  EXPECT_FALSE(after_reply(depths(4, 16), "0003 0004").startup_failure);
  EXPECT_EQ(after_reply(depths(4, 16), "0003 0005").startup_failure, Violation::kInsufficientIrd);
  EXPECT_FALSE(after_reply(depths(4, 16), "0003 3fff").startup_failure);
}

TEST(StartupDepths, RevisionOneNegotiatesNothing) {
  StartupOffer o = depths(4, 16);
  o.revision = 1;
  Startup s = client(o);
  ASSERT_TRUE(s.received(reply("40 01 0000")));
  EXPECT_EQ(s.result().ird, 4);
  EXPECT_EQ(s.result().ord, 16);
  EXPECT_FALSE(s.result().peer_to_peer);
}

// --- peer-to-peer (RFC 6581 section 9.2) ---

// RTR bits of the Reply to a Request with A and these bits: B 4, C 2, D 1.
unsigned chosen(unsigned asked, bool read, bool write) {
  Bytes frame = request("50 02 0004 80008000");
  frame[20] = static_cast<std::uint8_t>(0x80U | ((asked & 4U) != 0 ? 0x40U : 0U));
  frame[22] = static_cast<std::uint8_t>(((asked & 2U) != 0 ? 0x80U : 0U) |
                                        ((asked & 1U) != 0 ? 0x40U : 0U));
  Startup s = server_with(frame);
  StartupOffer o;
  o.rtr_read = read;
  o.rtr_write = write;
  EXPECT_TRUE(s.accept(o));
  EXPECT_TRUE(s.result().peer_to_peer);
  const auto words = s.to_send().subspan(20);
  EXPECT_NE(words[0] & 0x80, 0) << "A is copied";
  const unsigned bits = ((words[0] & 0x40U) != 0 ? 4U : 0U) | ((words[2] & 0x80U) != 0 ? 2U : 0U) |
                        ((words[2] & 0x40U) != 0 ? 1U : 0U);
  EXPECT_EQ(s.result().rtr, bits == 1 ? RtrKind::kRead : RtrKind::kWrite);
  if (bits == 1) {
    EXPECT_GE(load_be16(words.data()) & 0x3fff, 1) << "a Read RTR needs a slot";
  }
  return bits;
}

TEST(StartupRtr, ResponderPicksReadAloneIfItCan) {
  EXPECT_EQ(chosen(1, true, true), 1U);
  EXPECT_EQ(chosen(3, true, true), 1U);
  EXPECT_EQ(chosen(7, true, true), 1U);
  EXPECT_EQ(chosen(2, true, true), 2U);
  EXPECT_EQ(chosen(3, false, true), 2U);
  EXPECT_EQ(chosen(6, true, true), 2U);
}

TEST(StartupRtr, ResponderNamesSomethingWhereNothingIsCommonButNeverASend) {
  EXPECT_EQ(chosen(4, true, true), 1U);
  EXPECT_EQ(chosen(0, true, true), 1U);
  EXPECT_EQ(chosen(2, true, false), 1U);
  EXPECT_EQ(chosen(1, false, true), 2U);
  EXPECT_EQ(chosen(4, false, false), 1U);
}

TEST(StartupRtr, ResponderClearsAllBitsWithoutA) {
  EXPECT_EQ(to_hex(answer(request("50 02 0004 4001 c000"), depths(1, 1))),
            to_hex(reply("50 02 0004 0001 0001")));
}

StartupOffer p2p(bool read, bool write) {
  StartupOffer o = depths(4, 0);
  o.peer_to_peer = true;
  o.rtr_read = read;
  o.rtr_write = write;
  return o;
}

TEST(StartupRtr, InitiatorSendsReadIfBothAreAgreed) {
  EXPECT_EQ(after_reply(p2p(true, true), "8001 c000").rtr, RtrKind::kRead);
  EXPECT_EQ(after_reply(p2p(true, true), "8001 8000").rtr, RtrKind::kWrite);
  EXPECT_EQ(after_reply(p2p(true, true), "c001 4000").rtr, RtrKind::kRead);
  EXPECT_EQ(after_reply(p2p(false, true), "8001 c000").rtr, RtrKind::kWrite);
}

TEST(StartupRtr, AReadRtrNeedsOneOutstandingRead) {
  EXPECT_EQ(after_reply(p2p(true, false), "8001 4000").ord, 1);
  EXPECT_EQ(after_reply(p2p(false, true), "8001 8000").ord, 0);
}

TEST(StartupRtr, InitiatorWithoutAnAgreedKindEndsWithATerminate) {
  const auto failure = [](const StartupOffer& o, std::string_view words) {
    const Negotiated n = after_reply(o, words);
    EXPECT_EQ(n.rtr, RtrKind::kNone);
    return n.startup_failure;
  };
  EXPECT_EQ(failure(p2p(true, false), "8001 8000"), Violation::kNoMatchingRtr);
  EXPECT_EQ(failure(p2p(true, true), "8001 0000"), Violation::kNoMatchingRtr);
  EXPECT_EQ(failure(p2p(true, true), "c001 0000"), Violation::kNoMatchingRtr);
  EXPECT_EQ(failure(p2p(true, true), "0001 c000"), Violation::kNoMatchingRtr);  // A not copied
}

TEST(StartupRtr, WithoutPeerToPeerTheReplysBitsMeanNothing) {
  const Negotiated n = after_reply(depths(4, 4), "8001 c000");
  EXPECT_EQ(n.rtr, RtrKind::kNone);
  EXPECT_FALSE(n.peer_to_peer);
  EXPECT_FALSE(n.startup_failure);
}

TEST(Startup, EveryFailureAndStateHasWords) {
  for (int f = 0; f <= static_cast<int>(StartupFailure::kClosedByPeer); ++f) {
    EXPECT_NE(describe(static_cast<StartupFailure>(f)), "unknown start-up failure");
  }
  for (int s = 0; s <= static_cast<int>(StartupState::kFailed); ++s) {
    EXPECT_NE(describe(static_cast<StartupState>(s)), "unknown state");
  }
}

// Both roles of our own against each other, for all policies.
TEST(Startup, TwoOfUsAlwaysAgree) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const auto bit = [&](unsigned n) { return (bits >> n & 1U) != 0; };
    StartupOffer a = depths(2, 5), b = depths(3, 7);
    a.crc = bit(0);
    b.crc = bit(1);
    a.markers = bit(2);
    b.markers = bit(3);
    a.revision = bit(4) ? 2 : 1;
    a.peer_to_peer = bit(4) && bit(5);
    a.rtr_read = bit(6);
    a.rtr_write = !bit(6) || bit(7);
    auto i = Startup::initiator(a);
    ASSERT_TRUE(i);
    Startup r = Startup::responder();
    ASSERT_TRUE(r.received(i->to_send()));
    i->sent(i->to_send().size());
    ASSERT_TRUE(r.accept(b));
    ASSERT_TRUE(i->received(r.to_send()));
    r.sent(r.to_send().size());
    const Negotiated& x = i->result();
    const Negotiated& y = r.result();
    EXPECT_EQ(x.crc, y.crc);
    EXPECT_EQ(x.tx_markers, y.rx_markers);
    EXPECT_EQ(x.rx_markers, y.tx_markers);
    EXPECT_EQ(x.peer_to_peer, y.peer_to_peer);
    EXPECT_EQ(x.rtr, y.rtr);
    EXPECT_EQ(x.revision, y.revision);
    EXPECT_FALSE(x.startup_failure);
    if (a.revision == 2) {
      EXPECT_LE(x.ord, y.ird);
      EXPECT_LE(y.ord, x.ird);
    }
  }
}

}  // namespace
}  // namespace weft::proto
