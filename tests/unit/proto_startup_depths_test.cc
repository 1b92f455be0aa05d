// What both sides agree on: IRD, ORD and peer-to-peer, RFC 6581 section 9.
#include <gtest/gtest.h>

#include "startup_frames.h"

namespace weft::proto::startup_test {
namespace {

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
}  // namespace weft::proto::startup_test
