// Peer-to-peer set-up of RFC 6581: the ready-to-receive indication in all its kinds.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Bytes;
using raw::hex;
using raw::kBitA;
using raw::kBitB;
using raw::kRtrRead;
using raw::kRtrWrite;
using Type = ConnectionEvent::Type;

const Bytes kReadRtr =
    hex("002e 41 41 00000000 00000001 00000001 00000000 00000001 0000000000000000 00000000"
        "00000001 0000000000000000 27dbd7e7");
const Bytes kReadRtrAnswer = hex("000e c1 42 00000001 0000000000000000 21a3e83e");
const Bytes kWriteRtr = hex("000e c1 40 00000001 0000000000000000 ebd34c5f");

// The words of the Reply to a Request with these words.
std::pair<std::uint16_t, std::uint16_t> reply_words(int ird_word, int ord_word,
                                                    std::uint16_t ird = 4) {
  Server server;
  raw::Peer peer = server.dial();
  peer.send(raw::mpa_request(
      raw::kC | raw::kS, 2,
      raw::enhanced(static_cast<std::uint16_t>(ird_word), static_cast<std::uint16_t>(ord_word))));
  ConnectionParams params;
  params.ird = ird;
  params.ord = 4;
  server.accept(params);
  const raw::MpaFrame reply = peer.recv_mpa();
  return {reply.ird_word(), reply.ord_word()};
}

bool has(int word, int bit) { return (word & bit) != 0; }

//= RFC 6581 section 9.2
//# If Control Flag A is 1 in the MPA Request message, then the responder MUST set Control Flag A
//# to 1 in the MPA reply message.
//= RFC 6581 section 9.2
//# The responder MUST set at least one RTR indication option if it supports more than one
//# initiator-specified RTR indication option.
TEST(Rfc6581_9_2, ResponderPicksReadWhereItIsOfferedAndElseWrite) {
  const auto both = reply_words(kBitA | 4, kRtrWrite | kRtrRead | 4);
  EXPECT_TRUE(has(both.first, kBitA));
  EXPECT_FALSE(has(both.first, kBitB));
  EXPECT_TRUE(has(both.second, kRtrRead));
  EXPECT_FALSE(has(both.second, kRtrWrite));
  const auto write = reply_words(kBitA | 4, kRtrWrite | 4);
  EXPECT_TRUE(has(write.first, kBitA));
  EXPECT_TRUE(has(write.second, kRtrWrite));
  EXPECT_FALSE(has(write.second, kRtrRead));
  const auto read = reply_words(kBitA | 4, kRtrRead | 4);
  EXPECT_TRUE(has(read.second, kRtrRead));
  EXPECT_FALSE(has(read.second, kRtrWrite));
}

//= RFC 6581 section 9.2
//# The responder MUST support at least one RTR indication option if it supports Enhanced RDMA
//# connection establishment.
//= RFC 6581 section 9.2
//# If the responder does not support any of the initiator-specified RTR indication options, then
//# the responder MUST set at least one RTR indication type option it supports.
TEST(Rfc6581_9_2, ResponderNamesAKindItTakesWhenOnlySendOrNothingIsOffered) {
  for (const int ird_word : {kBitA | kBitB | 4, kBitA | 4}) {
    SCOPED_TRACE(ird_word);
    const auto words = reply_words(ird_word, 4);
    EXPECT_TRUE(has(words.first, kBitA));
    EXPECT_FALSE(has(words.first, kBitB));  // a Send would take a receive of the application
    EXPECT_TRUE(has(words.second, kRtrRead | kRtrWrite));
  }
}

//= RFC 6581 section 9.2
//# The responder MUST set Control Flag A to 0 if Control Flag A is 0 in the request.
//= RFC 6581 section 9.2
//# On reception, if Control Flag A is set to 0, then Control Flags B, C, and D MUST be ignored.
TEST(Rfc6581_9_2, RtrBitsWithoutAAreIgnoredAndCleared) {
  const auto words = reply_words(kBitB | 4, kRtrWrite | kRtrRead | 4);
  EXPECT_FALSE(has(words.first, kBitA | kBitB));
  EXPECT_FALSE(has(words.second, kRtrWrite | kRtrRead));
}

TEST(Rfc6581_9_2, ReadRtrGetsAReadSlotEvenWhereTheApplicationServesNone) {
  const auto words = reply_words(kBitA | 4, kRtrRead | 4, 0);
  EXPECT_TRUE(has(words.second, kRtrRead));
  EXPECT_GE(words.first & 0x3fff, 1);
}

// A Weft responder that has answered a peer-to-peer Request, with a Send posted at once.
struct WaitingServer {
  explicit WaitingServer(int ord_bits) : out(server.host, 8) {
    post_empty_recvs(*server.weft.qp, 1, 4);
    peer = server.dial();
    peer.send(raw::mpa_request(raw::kC | raw::kS, 2,
                               raw::enhanced(kBitA | 4, static_cast<std::uint16_t>(ord_bits | 4))));
    ConnectionParams params;
    params.ird = 4;
    server.accept(params);
    (void)peer.recv_mpa();
  }
  Server server;
  Memory out;
  raw::Peer peer;
};

//= RFC 6581 section 5
//# The RDMA connection initiator MUST NOT allow any later FULPDUs to be transmitted before the RTR
//# indication.
TEST(Rfc6581_5, ResponderHoldsItsFpdusBackUntilTheRtr) {
  WaitingServer w(kRtrWrite);
  (void)w.server.weft.qp->post_send(wr_immediate(1, 42));  // refused or held back, but not sent
  EXPECT_TRUE(w.peer.quiet());
  w.peer.send(kWriteRtr);
  take_event(*w.server.weft.events, Type::kEstablished);
  post(*w.server.weft.qp, wr_immediate(2, 43));
  EXPECT_EQ(w.peer.recv_segment(raw::kImmediate).msn, 1U);
}

TEST(Rfc6581_9_2, WriteRtrEstablishesAndReachesNoApplication) {
  for (const std::uint32_t stag : {0U, 1U, 0xffffffffU}) {
    SCOPED_TRACE(stag);
    WaitingServer w(kRtrWrite);
    w.peer.send_fpdu(raw::write(stag, ~0ULL, {}));
    take_event(*w.server.weft.events, Type::kEstablished);
    EXPECT_TRUE(quiet(*w.server.weft.recv_cq));
    w.peer.send_fpdu(raw::send(1, {}));
    take_success(*w.server.weft.recv_cq, 1);
    EXPECT_EQ(w.server.weft.connection->info().rtr, RtrKind::kWrite);
  }
}

TEST(Rfc6581_9_2, ReadRtrIsAnsweredAndTakesTheFirstNumberOfItsQueue) {
  WaitingServer w(kRtrRead);
  w.peer.send(kReadRtr);
  EXPECT_EQ(w.peer.recv(kReadRtrAnswer.size()), kReadRtrAnswer);
  take_event(*w.server.weft.events, Type::kEstablished);
  EXPECT_TRUE(quiet(*w.server.weft.recv_cq));
  w.peer.send_fpdu(raw::read_request(2, {.size = 0}));
  EXPECT_TRUE(w.peer.recv_segment(raw::kReadResponse).payload.empty());
}

TEST(Rfc6581_9_2, ReadRtrWithAnyStagIsAnswered) {
  WaitingServer w(kRtrRead);
  w.peer.send_fpdu(raw::read_request(
      1, {.sink_stag = 0xabcdef01, .sink_to = 99, .size = 0, .src_stag = 0xfefefefe, .src_to = 3}));
  const raw::Segment answer = w.peer.recv_segment(raw::kReadResponse);
  EXPECT_EQ(answer.stag, 0xabcdef01U);
  EXPECT_EQ(answer.to, 99U);
  EXPECT_TRUE(answer.payload.empty());
  take_event(*w.server.weft.events, Type::kEstablished);
}

// The initiator may choose either of the kinds; a Weft responder takes the other one too.
TEST(Rfc6581_9_2, RtrOfAnotherKindThanAnsweredIsTaken) {
  WaitingServer w(kRtrRead | kRtrWrite);
  w.peer.send(kWriteRtr);
  take_event(*w.server.weft.events, Type::kEstablished);
}

// Chelsio adapters send a Read RTR in revision 1 without a word of warning.
TEST(Rfc6581_9_2, UnannouncedRtrInRevision1IsTaken) {
  for (const bool by_read : {true, false}) {
    SCOPED_TRACE(by_read);
    Session s({.revision = 1, .warm_up = false});
    s.peer.send(by_read ? kReadRtr : kWriteRtr);
    if (by_read) {
      EXPECT_EQ(s.peer.recv(kReadRtrAnswer.size()), kReadRtrAnswer);
    }
    s.expect_alive(1, 7);
  }
}

// Weft as initiator after a Reply with these words; returns what it then sends first.
struct AskingClient {
  AskingClient(int ird_word, int ord_word, std::optional<RtrKind> rtr = {}, std::uint16_t ord = 4,
               bool peer_to_peer = true, const Config& config = plain_config())
      : client(config) {
    ConnectionParams params;
    params.policy.peer_to_peer = peer_to_peer;
    params.ird = 4;
    params.ord = ord;
    params.policy.rtr = rtr;
    peer = client.connect(params);
    request = peer.recv_mpa();
    peer.send(raw::mpa_reply(
        raw::kC | raw::kS, 2,
        raw::enhanced(static_cast<std::uint16_t>(ird_word), static_cast<std::uint16_t>(ord_word))));
  }
  Client client;
  raw::Peer peer;
  raw::MpaFrame request;
};

//= RFC 6581 section 9.2
//# The initiator MUST set Control Flag A to 1 for the peer-to-peer model.
//= RFC 6581 section 9.2
//# The initiator MUST set each Control Flag B, C, and D to 1 for each of the options it supports,
//# if Control Flag A is set to 1.
TEST(Rfc6581_9_2, InitiatorOffersReadAndWrite) {
  const AskingClient c(kBitA | 4, kRtrRead | 4);
  EXPECT_EQ(c.request.ird_word(), kBitA | 4);
  EXPECT_EQ(c.request.ord_word(), kRtrRead | kRtrWrite | 4);
}

TEST(Rfc6581_9_2, InitiatorOffersOnlyTheKindItWasToldTo) {
  const AskingClient read(kBitA | 4, kRtrRead | 4, RtrKind::kRead);
  EXPECT_EQ(read.request.ord_word(), kRtrRead | 4);
  const AskingClient write(kBitA | 4, kRtrWrite | 4, RtrKind::kWrite);
  EXPECT_EQ(write.request.ord_word(), kRtrWrite | 4);
}

//= RFC 6581 section 9.2
//# The initiator MUST set Control Flag A to 0 for the client-server model.
//= RFC 6581 section 9.2
//# If Control Flag A is set to 0, then Control Flags B, C, and D MUST also be set to 0.
TEST(Rfc6581_9_2, ClientServerRequestHasNoRtrBits) {
  Client client;
  ConnectionParams params = plain_params();
  params.ird = 4;
  params.ord = 5;
  raw::Peer peer = client.connect(params);
  const raw::MpaFrame request = peer.recv_mpa();
  EXPECT_EQ(request.ird_word(), 4);
  EXPECT_EQ(request.ord_word(), 5);
  peer.send(raw::mpa_reply(raw::kC | raw::kS, 2, raw::enhanced(4, 4)));
  take_event(*client.weft.events, Type::kEstablished);
  EXPECT_TRUE(peer.quiet());  // no RTR
}

//= RFC 6581 section 9.2
//# Upon receiving the MPA Accept Frame with Control Flag A set to 1, the initiator MUST generate
//# one of the negotiated RTR indications.
TEST(Rfc6581_9_2, InitiatorSendsTheAgreedRtrByteExact) {
  AskingClient read(kBitA | 4, kRtrRead | 4);
  EXPECT_EQ(read.peer.recv(kReadRtr.size()), kReadRtr);
  AskingClient write(kBitA | 4, kRtrWrite | 4);
  EXPECT_EQ(write.peer.recv(kWriteRtr.size()), kWriteRtr);
  AskingClient both(kBitA | 4, kRtrWrite | kRtrRead | 4);
  EXPECT_EQ(both.peer.recv(kReadRtr.size()), kReadRtr);
  AskingClient all(kBitA | kBitB | 4, kRtrWrite | 4);
  EXPECT_EQ(all.peer.recv(kWriteRtr.size()), kWriteRtr);
}

// Linux siw can miss what comes directly behind its Reply, until something else comes.
TEST(Rfc6581_9_2, InitiatorSendsAnEmptyWriteWhenNothingComesBack) {
  constexpr int kNothing = 0;
  for (const int first : {int{kRtrRead}, int{kRtrWrite}, kNothing}) {
    SCOPED_TRACE(first);
    Config config = plain_config();
    config.nudge_wait = milliseconds(20);
    const bool peer_to_peer = first != kNothing;
    AskingClient c(peer_to_peer ? kBitA | 4 : 4, first | 4, {}, 4, peer_to_peer, config);
    Bytes expected = first == kRtrRead ? kReadRtr : first == kRtrWrite ? kWriteRtr : Bytes{};
    expected += kWriteRtr;
    EXPECT_EQ(c.peer.recv(expected.size()), expected);
    take_event(*c.client.weft.events, Type::kEstablished);
    EXPECT_TRUE(c.peer.quiet());  // once
    if (first == kRtrRead) c.peer.send(kReadRtrAnswer);
    post(*c.client.weft.qp, wr_immediate(5, 1));
    EXPECT_EQ(c.peer.recv_segment(raw::kImmediate).msn, 1U);
    take_success(*c.client.weft.send_cq, 5);
  }
}

TEST(Rfc6581_5, RtrComesBeforeEveryOtherFpduAndMakesNoCompletion) {
  AskingClient c(kBitA | 4, kRtrWrite | 4);
  take_event(*c.client.weft.events, Type::kEstablished);
  post(*c.client.weft.qp, wr_immediate(5, 1));
  EXPECT_EQ(c.peer.recv(kWriteRtr.size()), kWriteRtr);
  raw::Peer& peer = c.peer;
  EXPECT_EQ(peer.recv_segment(raw::kImmediate).msn, 1U);
  take_success(*c.client.weft.send_cq, 5);
  EXPECT_TRUE(quiet(*c.client.weft.send_cq, milliseconds(10)));
}

TEST(Rfc6581_9_2, ReadRtrHoldsAReadSlotUntilItIsAnswered) {
  AskingClient c(kBitA | 1, kRtrRead | 4, {}, 1);
  EXPECT_EQ(c.peer.recv(kReadRtr.size()), kReadRtr);
  take_event(*c.client.weft.events, Type::kEstablished);
  Memory sink(c.client.host, 8);
  post(*c.client.weft.qp, wr_read(9, 0x77, 0), {sink.sge()});
  EXPECT_TRUE(c.peer.quiet());
  c.peer.send(kReadRtrAnswer);
  const raw::Segment request = c.peer.recv_segment(raw::kReadRequest);
  EXPECT_EQ(request.msn, 2U);
  const raw::ReadFields f = raw::parse_read(request);
  // The answer above was sent behind the back of the framing helper, which counts only markers.
  c.peer.send_fpdu(raw::read_response(f.sink_stag, f.sink_to, raw::pattern(8)));
  take_success(*c.client.weft.send_cq, 9);
  EXPECT_EQ(sink.copy(0, 8), raw::pattern(8));
  EXPECT_TRUE(quiet(*c.client.weft.send_cq, milliseconds(10)));
}

//= RFC 6581 section 9.2
//# If the initiator is not able to generate any of the responder-supported RTR indications, then
//# it MUST send a TERM message to the responder indicating failure to negotiate a mutually
//# compatible connection model or RTR option, and terminate the connection.
//= RFC 6581 section 9.2
//# Thus, the TERM message MUST contain Layer 2, Error Type 0, Error Code 7.
TEST(Rfc6581_9_2, InitiatorWithoutACommonKindTerminates) {
  struct Case {
    int ird_word, ord_word;
    std::optional<RtrKind> rtr;
  };
  const Case cases[] = {{kBitA | kBitB | 4, 4, {}},
                        {kBitA | 4, 4, {}},
                        {kBitA | 4, kRtrWrite | 4, RtrKind::kRead},
                        {kBitA | 4, kRtrRead | 4, RtrKind::kWrite}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::to_string(c.ird_word) + " " + std::to_string(c.ord_word));
    AskingClient client(c.ird_word, c.ord_word, c.rtr);
    client.peer.expect_terminate({2, 0, 7});
    client.peer.expect_fin();
    take_event(*client.client.weft.events, Type::kConnectError);
  }
}

TEST(MpaLoss, ResetInsteadOfTheRtrEndsTheConnection) {
  WaitingServer w(kRtrRead | kRtrWrite);
  w.peer.reset();
  const auto event = next_event(*w.server.weft.events);
  ASSERT_TRUE(event.has_value());
  EXPECT_TRUE(event->type == Type::kConnectError || event->type == Type::kDisconnected);
  for (const WorkCompletion& wc : take_n(*w.server.weft.recv_cq, 4)) {
    EXPECT_EQ(wc.status, WcStatus::kFlushed);
  }
}

// A first FPDU that is broken is no RTR; what goes back, if anything, is not an FPDU of a responder
// that has validated none.
TEST(MpaLoss, BrokenFirstFpduEndsTheConnection) {
  WaitingServer w(kRtrWrite);
  w.peer.send_fpdu(raw::write(1, 0, {}), {.crc_xor = 0x100});
  w.peer.shutdown_write();
  (void)w.peer.drain();
  EXPECT_EQ(take(*w.server.weft.recv_cq).status, WcStatus::kFlushed);
  EXPECT_EQ(w.server.host.device->counters().crc_errors, 1U);
}

}  // namespace
}  // namespace weft::test
