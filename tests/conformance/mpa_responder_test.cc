// Weft as MPA responder: what it takes for a Request, and what it answers.
#include <gtest/gtest.h>

#include <thread>

#include "session.h"

namespace weft::test {
namespace {

using raw::Bytes;
using raw::hex;
using Type = ConnectionEvent::Type;

const Bytes kRevision1 = hex("4d504120494420526571204672616d65 40 01 0000");

// The peer's start-up bytes end in a close without a word, and the application hears nothing.
void expect_refused(Server& server, const Bytes& bytes, int line = __builtin_LINE()) {
  const auto before = server.host.device->counters().connections_refused;
  raw::Peer peer = server.dial();
  peer.send(bytes);
  peer.expect_closed(line);
  EXPECT_TRUE(server.no_request()) << "line " << line;
  EXPECT_TRUE(eventually([&] {
    return server.host.device->counters().connections_refused > before;
  })) << "line "
      << line << ": the refusal is not counted";
}

//= RFC 5044 section 7.1.2
//# When MPA is started in the Responder mode, the MPA implementation MUST wait until an MPA
//# Request Frame is received and validated before entering Full MPA/DDP Operation.
TEST(Rfc5044_7_1_2, ResponderSaysNothingBeforeAWholeRequest) {
  Server server;
  raw::Peer peer = server.dial();
  EXPECT_TRUE(peer.quiet());
  peer.send(raw::View(kRevision1).first(19));
  EXPECT_TRUE(peer.quiet());
  EXPECT_TRUE(server.no_request());
  peer.send(raw::View(kRevision1).last(1));
  server.accept();
  EXPECT_EQ(peer.recv(20), hex("4d504120494420526570204672616d65 40 01 0000"));
}

//= RFC 5044 section 7.1.1
//# Responder mode senders MUST set this field to the fixed value "MPA ID Rep Frame" or (in byte
//# order) 4D 50 41 20 49 44 20 52 65 70 20 46 72 61 6D 65 (in hexadecimal).
TEST(Rfc5044_7_1_1, ReplyToTheWorkedEnhancedRequestIsByteExact) {
  Server server;
  raw::Peer peer = server.dial();
  peer.send(hex("4d504120494420526571204672616d65 50 02 0008 8010 c010 70696e67"));
  ConnectionParams params;
  params.private_data = raw::text("pong");
  params.ird = 16;
  params.ord = 8;
  const ConnectionEvent request = server.accept(params);
  EXPECT_EQ(request.private_data, raw::text("ping"));
  EXPECT_EQ(request.ird, 16);
  EXPECT_EQ(request.ord, 16);
  EXPECT_EQ(peer.recv(28), hex("4d504120494420526570204672616d65 50 02 0008 8010 4008 706f6e67"));
}

TEST(Rfc5044_7_1_1, SiwDefaultRequestIsAcceptedAndAnsweredInKind) {
  Config config = plain_config();
  config.crc = false;
  Server server(config);
  raw::Peer peer = server.dial();
  peer.send(hex("4d504120494420526571204672616d65 10 02 0004 0080 0080"));
  const ConnectionEvent request = server.accept();
  EXPECT_TRUE(request.private_data.empty());
  EXPECT_EQ(request.ird, 128);
  EXPECT_EQ(request.ord, 128);
  EXPECT_EQ(peer.recv(24), hex("4d504120494420526570204672616d65 10 02 0004 0080 0080"));
}

//= RFC 5044 section 7.1.1
//# Responder mode receivers MUST check this field for the same value, and close the connection and
//# report an error locally if any other value is detected.
TEST(Rfc5044_7_1_1, RequestWithAnyOctetOfTheKeyWrongIsClosed) {
  Server server;
  for (std::size_t i = 0; i < 16; ++i) {
    SCOPED_TRACE(i);
    Bytes bad = kRevision1;
    bad[i] ^= 0x20;
    expect_refused(server, bad);
  }
  server.expect_still_serving();
}

//= RFC 5044 section 7.1.2
//# MPA implementations MUST use the difference between the MPA Request Frame and the MPA Reply
//# Frame to check for incorrect "Initiator/Initiator" startups.
TEST(Rfc5044_7_1_2, ReplyFrameSentToAResponderIsClosed) {
  Server server;
  expect_refused(server, raw::mpa_reply(raw::kC, 1));
}

//= RFC 5044 section 7.1.1
//# MPA receivers compliant with this version of the specification MUST check this field.
TEST(Rfc5044_7_1_1, RequestOfUnknownRevisionIsClosed) {
  Server server;
  for (const int revision : {3, 4, 128, 255}) {
    SCOPED_TRACE(revision);
    expect_refused(server, raw::mpa_request(raw::kC, static_cast<std::uint8_t>(revision)));
  }
}

// RFC 5044 appendix C: an RDMA Consortium peer is told which revision would do.
TEST(Rfc5044_C, RequestOfRevision0IsRejectedWithRevision1) {
  Server server;
  raw::Peer peer = server.dial();
  peer.send(raw::mpa_request(raw::kC | raw::kM, 0));
  const raw::MpaFrame reply = peer.recv_mpa();
  EXPECT_EQ(reply.key, raw::reply_key());
  EXPECT_TRUE(reply.has(raw::kR));
  EXPECT_EQ(reply.revision, 1);
  peer.expect_closed();
  EXPECT_TRUE(server.no_request());
}

//= RFC 5044 section 7.1.1
//# The Private Data field MUST be between 0 and 512 octets in length.
TEST(Rfc5044_7_1_1, PrivateDataOf0To512OctetsReachesTheApplicationExactly) {
  Server server;
  for (const std::size_t size : {0U, 1U, 3U, 4U, 251U, 255U, 256U, 508U, 511U, 512U}) {
    SCOPED_TRACE(size);
    raw::Peer peer = server.dial();
    const Bytes data = raw::pattern(size, 7);
    peer.send(raw::mpa_request(raw::kC, 1, data));
    const ConnectionEvent event = take_event(*server.weft.events, Type::kConnectRequest);
    EXPECT_EQ(event.private_data, data);
    must(event.connection->reject({}), "reject");
  }
}

//= RFC 5044 section 7.1.1
//# If the receiver detects that the PD_Length field does not match the length of the Private Data
//# field, or if the length of the Private Data field exceeds 512 octets, the receiver MUST close
//# the connection and report an error locally.
TEST(Rfc5044_7_1_1, RequestWithMoreThan512OctetsOfPrivateDataIsClosed) {
  Server server;
  for (const unsigned length : {513U, 514U, 0x2000U, 0xffffU}) {
    SCOPED_TRACE(length);
    expect_refused(server, raw::mpa_request(raw::kC, 1, {}, static_cast<std::uint16_t>(length)));
  }
  expect_refused(server, raw::mpa_request(raw::kC, 1, raw::zeros(513)));
}

//= RFC 5044 section 7.1.1
//# It MUST be set to zero when sending, and not checked on reception.
TEST(Rfc5044_7_1_1, ReservedBitsOfARequestAreIgnoredAndSentAsZero) {
  Server server;
  raw::Peer peer = server.dial();
  peer.send(raw::mpa_request(raw::kC | raw::kR | 0x0f, 1, raw::text("x")));
  EXPECT_EQ(server.accept().private_data, raw::text("x"));
  const raw::MpaFrame reply = peer.recv_mpa();
  EXPECT_EQ(reply.flags, raw::kC);
  EXPECT_EQ(reply.revision, 1);
}

//= RFC 6581 section 6
//# [RFC5044] specifies that 'Res' MUST be set to zero when sending and MUST NOT be checked on
//# reception, making use of 'S' bit backwards compatibility with the original MPA Frame format.
TEST(Rfc6581_6, BitSInRevision1IsOnlyAReservedBit) {
  Server server;
  raw::Peer peer = server.dial();
  const Bytes data = raw::text("plain private data");
  peer.send(raw::mpa_request(raw::kC | raw::kS, 1, data));
  EXPECT_EQ(server.accept().private_data, data);
  const raw::MpaFrame reply = peer.recv_mpa();
  EXPECT_EQ(reply.flags, raw::kC);
  EXPECT_EQ(reply.revision, 1);
  EXPECT_TRUE(reply.pd.empty());
}

//= RFC 6581 section 6
//# A host accepting MPA connections MUST continue to accept MPA Requests with version one, even if
//# it supports version two.
TEST(Rfc6581_6, Revision1RequestIsAnsweredInRevision1) {
  Server server;
  raw::Peer peer = server.dial();
  peer.send(kRevision1);
  server.accept();
  EXPECT_EQ(peer.recv(20), hex("4d504120494420526570204672616d65 40 01 0000"));
}

//= RFC 6581 section 10
//# If the responder receives an unenhanced MPA message ('S' is set to 0), it MUST respond with an
//# unenhanced MPA message.
TEST(Rfc6581_10, Revision2WithoutSIsAPlainSetUp) {
  Server server;
  raw::Peer peer = server.dial();
  peer.send(raw::mpa_request(raw::kC, 2, raw::text("abc")));
  EXPECT_EQ(server.accept().private_data, raw::text("abc"));
  const raw::MpaFrame reply = peer.recv_mpa();
  EXPECT_EQ(reply.flags, raw::kC);
  EXPECT_EQ(reply.revision, 2);
  EXPECT_TRUE(reply.pd.empty());
}

//= RFC 6581 section 10
//# If the responder receives an enhanced MPA message, it MUST respond with an enhanced MPA
//# message.
TEST(Rfc6581_10, EnhancedRequestGetsAnEnhancedReply) {
  Server server;
  raw::Peer peer = server.dial();
  peer.send(raw::mpa_request(raw::kC | raw::kS, 2, raw::enhanced(4, 4)));
  server.accept();
  const raw::MpaFrame reply = peer.recv_mpa();
  EXPECT_TRUE(reply.has(raw::kS));
  EXPECT_EQ(reply.revision, 2);
  EXPECT_EQ(reply.pd.size(), 4U);
}

//= RFC 6581 section 6
//# However, if the 'S' flag is set, Private Data MUST begin with enhanced RDMA connection
//# establishment data (see Section 9).
TEST(Rfc6581_6, EnhancedRequestTooShortForItsWordsIsClosed) {
  Server server;
  for (std::size_t size = 0; size < 4; ++size) {
    SCOPED_TRACE(size);
    expect_refused(server, raw::mpa_request(raw::kC | raw::kS, 2, raw::zeros(size)));
  }
  server.expect_still_serving();
}

//= RFC 6581 section 7
//# Private Data length MUST NOT exceed 512 bytes in any message, including enhanced RDMA
//# connection establishment data.
TEST(Rfc6581_7, EnhancedWordsCountAsPrivateData) {
  Server server;
  raw::Peer peer = server.dial();
  const Bytes data = raw::pattern(508);
  peer.send(raw::mpa_request(raw::kC | raw::kS, 2, raw::enhanced(1, 1) + data));
  ConnectionParams params;
  params.private_data = raw::pattern(508, 3);
  EXPECT_EQ(server.accept(params).private_data, data);
  const raw::MpaFrame reply = peer.recv_mpa();
  EXPECT_EQ(reply.pd.size(), 512U);
  EXPECT_EQ(reply.user_data(), params.private_data);

  expect_refused(server,
                 raw::mpa_request(raw::kC | raw::kS, 2, raw::enhanced(1, 1) + raw::zeros(509)));
}

TEST(Rfc5044_7_1_2, RequestMayArriveInAnySplitDownToOneOctet) {
  const Bytes whole =
      raw::mpa_request(raw::kC | raw::kS, 2, raw::enhanced(2, 2) + raw::pattern(37));
  Server server;
  for (const std::size_t piece : {1U, 2U, 3U, 5U, 16U, 17U, 19U, 20U, 21U, 24U, 60U}) {
    SCOPED_TRACE(piece);
    raw::Peer peer = server.dial();
    peer.send_in_pieces(whole, piece);
    const ConnectionEvent event = take_event(*server.weft.events, Type::kConnectRequest);
    EXPECT_EQ(event.private_data, raw::pattern(37));
    must(event.connection->reject({}), "reject");
    EXPECT_TRUE(peer.recv_mpa().has(raw::kR));
  }
}

// The initiator must wait for the Reply; octets behind its Request are not an FPDU of anybody.
TEST(Rfc5044_7_1_2, OctetsBehindTheRequestCloseTheConnection) {
  for (const std::size_t surplus : {1U, 4U, 20U}) {
    SCOPED_TRACE(surplus);
    Server server;
    raw::Peer peer = server.dial();
    peer.send(kRevision1 + raw::zeros(surplus));
    if (const auto event = next_event(*server.weft.events, kGlance)) {
      (void)event->connection->accept(server.weft.qp, {});
    }
    peer.expect_closed();
  }
}

//= RFC 5044 section 7.1.2
//# MPA Responder mode implementations MUST receive and validate at least one FPDU before sending
//# any FPDUs or Markers.
TEST(Rfc5044_7_1_2, ResponderSendsNothingBeforeTheFirstFpdu) {
  Config config = plain_config();
  config.first_fpdu_wait = milliseconds(0);  // forever, as the RFC has it
  for (const bool markers : {false, true}) {
    Server server(config);
    raw::Peer peer = server.dial();
    peer.send(raw::mpa_request(markers ? raw::kC | raw::kM : raw::kC, 1));
    server.accept();
    (void)peer.recv_mpa();
    peer.framing.markers_in = markers;
    Memory memory(server.host, 16);
    post(*server.weft.qp, wr_send(1), {memory.sge()});
    EXPECT_TRUE(peer.quiet(milliseconds(200)));
    peer.send_fpdu(raw::write(0, 0, {}));
    EXPECT_EQ(peer.recv_segment(raw::kSend).payload, memory.copy(0, 16));
  }
}

// Weft departs from that rule where the initiator says nothing: see docs/wire-support.md. It does
// so for a program that polls, for one asleep on a completion channel, and for one that does
// neither.
TEST(Rfc5044_7_1_2, ResponderSpeaksToAnInitiatorThatStaysSilent) {
  enum class App { kPolls, kSleeps, kLooksAway };
  for (const int revision : {1, 2}) {
    for (const App app : {App::kPolls, App::kSleeps, App::kLooksAway}) {
      SCOPED_TRACE(testing::Message()
                   << "revision " << revision << ", application " << static_cast<int>(app));
      Server server;
      Endpoint weft(server.host, {.with_channel = true});
      Memory memory(server.host, 16);
      raw::Peer peer = server.dial();
      peer.send(revision == 1 ? raw::mpa_request(raw::kC, 1)
                              : raw::mpa_request(raw::kC | raw::kS, 2, raw::enhanced(4, 4)));
      const auto connection = take_event(*server.weft.events, Type::kConnectRequest).connection;
      connection->set_channel(weft.events);
      must(connection->accept(weft.qp, {}), "accept");
      (void)peer.recv_mpa();
      must(weft.send_cq->arm(CompletionQueue::Arm::kNext), "arm");
      post(*weft.qp, wr_send(1), {memory.sge()});
      if (app == App::kPolls) take_success(*weft.send_cq, 1);
      if (app == App::kSleeps) {
        must(weft.channel->wait(kPatience), "wait");
        weft.send_cq->ack_events(1);
      }
      EXPECT_EQ(peer.recv_segment(raw::kSend).payload, memory.copy(0, 16));
      // From here on it is a connection like any other.
      post(*weft.qp, wr_send(2), {memory.sge()});
      EXPECT_EQ(peer.recv_segment(raw::kSend).msn, 2U);
      post_empty_recvs(*weft.qp, 3, 1);
      peer.send_fpdu(raw::send(1, {}));
      take_success(*weft.recv_cq, 3);
    }
  }
}

//= RFC 5044 section 7.1.2
//# If the MPA Request Frame is properly formatted but the Private Data is not acceptable, the
//# implementation SHOULD return an MPA Reply Frame with the Rejected Connection bit set to '1';
//# the MPA Reply Frame MAY include ULP-supplied Private Data; the implementation MUST exit MPA,
//# leaving the TCP connection open.
TEST(Rfc5044_7_1_2, RejectCarriesTheApplicationsPrivateData) {
  Server server;
  raw::Peer peer = server.dial();
  peer.send(kRevision1);
  const ConnectionEvent event = take_event(*server.weft.events, Type::kConnectRequest);
  must(event.connection->reject(raw::text("go away")), "reject");
  const raw::MpaFrame reply = peer.recv_mpa();
  EXPECT_EQ(reply.key, raw::reply_key());
  EXPECT_TRUE(reply.has(raw::kR));
  EXPECT_FALSE(reply.has(raw::kS));
  EXPECT_EQ(reply.revision, 1);
  EXPECT_EQ(reply.pd, raw::text("go away"));
  peer.expect_fin();  // the RFC would allow to keep TCP; nobody could use it
}

TEST(Rfc6581_10, RejectOfAnEnhancedRequestIsEnhanced) {
  Config config = plain_config();
  config.crc = false;
  Server server(config);
  raw::Peer peer = server.dial();
  peer.send(hex("4d504120494420526571204672616d65 10 02 0004 0080 0080"));
  must(take_event(*server.weft.events, Type::kConnectRequest).connection->reject({}), "reject");
  EXPECT_EQ(peer.recv(24), hex("4d504120494420526570204672616d65 30 02 0004 0000 0000"));
  peer.expect_fin();

  raw::Peer other = server.dial();
  other.send(hex("4d504120494420526571204672616d65 10 02 0004 0080 0080"));
  must(take_event(*server.weft.events, Type::kConnectRequest)
           .connection->reject(raw::text("because")),
       "reject");
  const raw::MpaFrame reply = other.recv_mpa();
  EXPECT_EQ(reply.flags, raw::kR | raw::kS);
  EXPECT_EQ(reply.user_data(), raw::text("because"));
}

TEST(MpaDeadlines, SilentPeerIsClosed) {
  Config config = plain_config();
  config.request_timeout = milliseconds(200);
  Server server(config);
  raw::Peer silent = server.dial();
  raw::Peer half = server.dial();
  half.send(raw::View(kRevision1).first(10));
  silent.expect_closed();
  half.expect_closed();
  EXPECT_TRUE(server.no_request());
  EXPECT_TRUE(eventually([&] { return server.host.device->counters().connections_refused >= 2; }));
  server.expect_still_serving();
}

TEST(MpaDeadlines, PeerThatPromisedAnRtrAndIsSilentIsClosed) {
  Config config = plain_config();
  config.rtr_timeout = milliseconds(200);
  Server server(config);
  raw::Peer peer = server.dial();
  peer.send(raw::mpa_request(raw::kC | raw::kS, 2,
                             raw::enhanced(raw::kBitA | 4, raw::kRtrWrite | raw::kRtrRead | 4)));
  post_empty_recvs(*server.weft.qp, 1, 1);
  server.accept();
  (void)peer.recv_mpa();
  peer.expect_closed();
  EXPECT_EQ(take(*server.weft.recv_cq).status, WcStatus::kFlushed);
}

TEST(MpaLoss, PeerThatLeavesBeforeTheRequestIsForgotten) {
  Server server;
  server.dial().close();
  server.dial().reset();
  raw::Peer half = server.dial();
  half.send(raw::View(kRevision1).first(10));
  half.shutdown_write();
  half.expect_closed();
  EXPECT_TRUE(server.no_request());
  server.expect_still_serving();
}

TEST(MpaLoss, PeerThatLeavesBeforeTheReplyMakesAcceptFailAndCostsNothingElse) {
  Server server;
  for (const bool by_reset : {false, true}) {
    SCOPED_TRACE(by_reset);
    raw::Peer peer = server.dial();
    peer.send(kRevision1);
    const ConnectionEvent event = take_event(*server.weft.events, Type::kConnectRequest);
    if (by_reset) {
      peer.reset();
    } else {
      peer.close();
    }
    std::this_thread::sleep_for(milliseconds(30));
    // Either the call says so, or an event follows; the request never becomes a connection that
    // stays.
    Endpoint other(server.host);
    event.connection->set_channel(other.events);
    if (event.connection->accept(other.qp, {})) {
      bool ended = false;
      while (const auto e = next_event(*other.events, milliseconds(2000))) {
        ended = e->type == Type::kConnectError || e->type == Type::kDisconnected;
        if (ended) break;
      }
      EXPECT_TRUE(ended);
    }
  }
  server.expect_still_serving();
}

TEST(MpaLoss, PeerThatLeavesAfterTheReplyEndsTheConnection) {
  for (const bool by_reset : {false, true}) {
    SCOPED_TRACE(by_reset);
    Server server;
    raw::Peer peer = server.dial();
    peer.send(kRevision1);
    post_empty_recvs(*server.weft.qp, 1, 2);
    server.accept();
    (void)peer.recv_mpa();
    take_event(*server.weft.events, Type::kEstablished);
    if (by_reset) {
      peer.reset();
    } else {
      peer.close();
    }
    const ConnectionEvent end = take_event(*server.weft.events, Type::kDisconnected);
    EXPECT_EQ(end.error.has_value(), by_reset);
    for (const WorkCompletion& wc : take_n(*server.weft.recv_cq, 2)) {
      EXPECT_EQ(wc.status, WcStatus::kFlushed);
    }
  }
}

// Many peers that connect and say nothing do not keep a good one out.
TEST(MpaLimits, HalfOpenConnectionsDoNotBlockTheListener) {
  Server server;
  std::vector<raw::Peer> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(server.dial());
  server.expect_still_serving();
}

}  // namespace
}  // namespace weft::test
