// Weft as MPA initiator: the Request it sends, and what it takes for a Reply.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Bytes;
using raw::hex;
using Type = ConnectionEvent::Type;

const Bytes kPlainWords = raw::enhanced(16, 16);

// The peer answers with `reply`; Weft closes without a word and reports a failed connect.
void expect_connect_error(const Bytes& reply, const ConnectionParams& params = plain_params(),
                          int line = __builtin_LINE()) {
  Client client;
  raw::Peer peer = client.connect(params);
  (void)peer.recv_mpa(line);
  peer.send(reply);
  peer.expect_closed(line);
  const ConnectionEvent event = take_event(*client.weft.events, Type::kConnectError, line);
  EXPECT_TRUE(event.error.has_value()) << "line " << line;
  EXPECT_FALSE(next_event(*client.weft.events, milliseconds(10)).has_value()) << "line " << line;
}

//= RFC 5044 section 7.1.1
//# Initiator mode senders MUST set this field to the fixed value "MPA ID Req Frame" or (in byte
//# order) 4D 50 41 20 49 44 20 52 65 71 20 46 72 61 6D 65 (in hexadecimal).
TEST(Rfc5044_7_1_1, Revision1RequestIsByteExact) {
  Client client;
  raw::Peer peer = client.connect(plain_params(1));
  EXPECT_EQ(peer.recv(20), hex("4d504120494420526571204672616d65 40 01 0000"));
}

TEST(Rfc5044_7_1_1, EnhancedRequestIsByteExact) {
  Client client;
  ConnectionParams params;
  params.private_data = raw::text("ping");
  params.ird = 16;
  params.ord = 16;
  raw::Peer peer = client.connect(params);
  EXPECT_EQ(peer.recv(28), hex("4d504120494420526571204672616d65 50 02 0008 8010 c010 70696e67"));
}

//= RFC 5044 section 4.4
//# The default configuration for a connection MUST be to use CRCs.
TEST(Rfc5044_4_4, RequestAsksForCrcByDefault) {
  Host host;
  EXPECT_TRUE(Config().crc);
  Client client;
  raw::Peer peer = client.connect();
  EXPECT_TRUE(peer.recv_mpa().has(raw::kC));
}

//= RFC 5044 section 7.1.1
//# For this version of the specification, senders MUST set this field to one.
TEST(Rfc5044_7_1_1, Revision1IsSentWhereAskedFor) {
  Client client;
  raw::Peer peer = client.connect(plain_params(1));
  const raw::MpaFrame request = peer.recv_mpa();
  EXPECT_EQ(request.revision, 1);
  EXPECT_FALSE(request.has(raw::kS));
}

//= RFC 6581 section 6
//# To use any enhanced connection establishment feature, this MUST be set to two or higher.
TEST(Rfc6581_6, EnhancedRequestHasRevision2AndReservedBitsZero) {
  Client client;
  raw::Peer peer = client.connect();
  const raw::MpaFrame request = peer.recv_mpa();
  EXPECT_EQ(request.revision, 2);
  EXPECT_EQ(request.flags, raw::kC | raw::kS);
  EXPECT_EQ(request.pd.size(), 4U);
}

//= RFC 5044 section 7.1.1
//# This field MUST contain the length in octets of the Private Data field.
TEST(Rfc5044_7_1_1, RequestCarriesAllPrivateDataItMay) {
  for (const std::size_t size : {0U, 1U, 251U, 508U}) {
    SCOPED_TRACE(size);
    Client client;
    ConnectionParams params = plain_params();
    params.private_data = raw::pattern(size);
    raw::Peer peer = client.connect(params);
    const raw::MpaFrame request = peer.recv_mpa();
    EXPECT_EQ(request.pd.size(), size + 4);
    EXPECT_EQ(request.user_data(), params.private_data);
  }
}

//= RFC 6581 section 7
//# Private Data length MUST NOT exceed 512 bytes in any message, including enhanced RDMA
//# connection establishment data.
TEST(Rfc6581_7, TooMuchPrivateDataIsRefusedAtTheCall) {
  Client client;
  raw::Listener listener;
  auto connection = must(client.host.device->create_connection(client.weft.events), "create");
  ConnectionParams params = plain_params();
  params.private_data = raw::pattern(limits::kPrivateDataBytes + 1);
  const Status status = connection->connect(client.weft.qp, address_of(listener), params);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error(), Error::kInvalidArgument);
}

TEST(Rfc5044_7_1_2, InitiatorSendsOneFrameAndNothingBehindIt) {
  Client client;
  raw::Peer peer = client.connect();
  (void)peer.recv_mpa();
  EXPECT_TRUE(peer.quiet());
  EXPECT_FALSE(next_event(*client.weft.events, milliseconds(1)).has_value());
}

//= RFC 5044 section 7.1.2
//# MPA Initiator mode implementations MUST receive and validate an MPA Reply Frame.
TEST(Rfc5044_7_1_2, ReplyMayArriveInAnySplitDownToOneOctet) {
  const Bytes data = raw::pattern(33);
  const Bytes whole = raw::mpa_reply(raw::kC | raw::kS, 2, kPlainWords + data);
  for (const std::size_t piece : {1U, 2U, 7U, 16U, 19U, 20U, 21U, 24U, 56U}) {
    SCOPED_TRACE(piece);
    Client client;
    raw::Peer peer = client.connect(plain_params());
    (void)peer.recv_mpa();
    peer.send_in_pieces(whole, piece);
    EXPECT_EQ(take_event(*client.weft.events, Type::kEstablished).private_data, data);
  }
}

TEST(Rfc5044_7_1_2, PrivateDataOfAnyLegalLengthReachesTheApplicationExactly) {
  for (const std::size_t size : {0U, 1U, 251U, 255U, 508U}) {
    SCOPED_TRACE(size);
    Client client;
    raw::Peer peer = client.connect(plain_params());
    (void)peer.recv_mpa();
    peer.send(raw::mpa_reply(raw::kC | raw::kS, 2, kPlainWords + raw::pattern(size, 9)));
    EXPECT_EQ(take_event(*client.weft.events, Type::kEstablished).private_data,
              raw::pattern(size, 9));
  }
  Client client;
  raw::Peer peer = client.connect(plain_params(1));
  (void)peer.recv_mpa();
  peer.send(raw::mpa_reply(raw::kC, 1, raw::pattern(512, 9)));
  EXPECT_EQ(take_event(*client.weft.events, Type::kEstablished).private_data, raw::pattern(512, 9));
}

//= RFC 5044 section 7.1.1
//# Initiator mode receivers MUST check this field for the same value, and close the connection and
//# report an error locally if any other value is detected.
TEST(Rfc5044_7_1_1, ReplyWithAnyOctetOfTheKeyWrongIsClosed) {
  for (std::size_t i = 0; i < 16; ++i) {
    SCOPED_TRACE(i);
    Bytes bad = raw::mpa_reply(raw::kC | raw::kS, 2, kPlainWords);
    bad[i] ^= 0x20;
    expect_connect_error(bad);
  }
}

//= RFC 5044 section 7.1.2
//# MPA implementations MUST use the difference between the MPA Request Frame and the MPA Reply
//# Frame to check for incorrect "Initiator/Initiator" startups.
TEST(Rfc5044_7_1_2, TwoInitiatorsFindEachOtherOut) {
  expect_connect_error(raw::mpa_request(raw::kC | raw::kS, 2, kPlainWords));
}

//= RFC 5044 section 7.1.2
//# If the MPA Reply Frame is improperly formatted, the implementation MUST close the TCP
//# connection and exit MPA.
TEST(Rfc5044_7_1_2, ReplyWithTooMuchPrivateDataIsClosed) {
  expect_connect_error(raw::mpa_reply(raw::kC | raw::kS, 2, {}, 513));
  expect_connect_error(raw::mpa_reply(raw::kC | raw::kS, 2, {}, 0xffff));
  expect_connect_error(raw::mpa_reply(raw::kC, 1, {}, 513), plain_params(1));
}

//= RFC 5044 section 7.1.1
//# If the MPA receiver cannot interoperate with the received version, then it MUST close the
//# connection and report an error locally.
TEST(Rfc5044_7_1_1, ReplyOfUnknownRevisionIsClosed) {
  for (const std::uint8_t revision : {std::uint8_t{0}, std::uint8_t{3}, std::uint8_t{255}}) {
    SCOPED_TRACE(int{revision});
    expect_connect_error(raw::mpa_reply(raw::kC | raw::kS, revision, kPlainWords));
    expect_connect_error(raw::mpa_reply(raw::kC, revision), plain_params(1));
  }
}

// A responder that got S must answer with S; one that got none must not add it.
TEST(Rfc6581_10, ReplyWithoutTheEnhancedWordsAskedForIsClosed) {
  expect_connect_error(raw::mpa_reply(raw::kC, 2));
}

// Linux siw reads these through a null or a short buffer.
TEST(Rfc6581_6, EnhancedReplyTooShortForItsWordsIsClosed) {
  for (std::size_t size = 0; size < 4; ++size) {
    SCOPED_TRACE(size);
    expect_connect_error(raw::mpa_reply(raw::kC | raw::kS, 2, raw::zeros(size)));
  }
}

TEST(Rfc5044_7_1_1, ReservedBitsOfAReplyAreIgnored) {
  Client client;
  raw::Peer peer = client.connect(plain_params());
  (void)peer.recv_mpa();
  peer.send(raw::mpa_reply(raw::kC | raw::kS | 0x0f, 2, kPlainWords));
  take_event(*client.weft.events, Type::kEstablished);
}

//= RFC 5044 section 7.1.2
//# If the MPA Reply Frame is properly formatted but is the Private Data is not acceptable, or if
//# the Rejected Connection bit is set to '1', the implementation MUST exit MPA, leaving the TCP
//# connection open.
TEST(Rfc5044_7_1_2, RejectReachesTheApplicationWithItsPrivateData) {
  for (const std::size_t size : {0U, 5U, 508U}) {
    SCOPED_TRACE(size);
    Client client;
    raw::Peer peer = client.connect();
    (void)peer.recv_mpa();
    peer.send(raw::mpa_reply(raw::kR | raw::kS, 2, raw::enhanced(0, 0) + raw::pattern(size)));
    const ConnectionEvent event = take_event(*client.weft.events, Type::kRejected);
    EXPECT_EQ(event.error, Error::kRefused);
    EXPECT_EQ(event.private_data, raw::pattern(size));
    peer.expect_closed();  // the RFC would allow to keep TCP; nobody could use it
  }
  Client client;
  raw::Peer peer = client.connect(plain_params(1));
  (void)peer.recv_mpa();
  peer.send(raw::mpa_reply(raw::kC | raw::kR, 1, raw::text("no")));
  const ConnectionEvent event = take_event(*client.weft.events, Type::kRejected);
  EXPECT_EQ(event.error, Error::kRefused);
  EXPECT_EQ(event.private_data, raw::text("no"));
}

// Linux siw rejects with S set and no words behind it.
TEST(Rfc5044_7_1_2, RejectWithoutTheEnhancedWordsIsStillAFailedConnect) {
  Client client;
  raw::Peer peer = client.connect();
  (void)peer.recv_mpa();
  peer.send(raw::mpa_reply(raw::kR | raw::kS, 2));
  const auto event = next_event(*client.weft.events);
  ASSERT_TRUE(event.has_value());
  EXPECT_TRUE(event->type == Type::kRejected || event->type == Type::kConnectError);
  peer.expect_closed();
}

TEST(Rfc5044_7_1_2, FpdusGluedToTheReplyAreTaken) {
  Client client;
  Memory memory(client.host, 64);
  post_recv(*client.weft.qp, 1, {memory.sge(0, 32)});
  post_recv(*client.weft.qp, 2, {memory.sge(32, 32)});
  raw::Peer peer = client.connect(plain_params());
  (void)peer.recv_mpa();
  const Bytes reply = raw::mpa_reply(raw::kC | raw::kS, 2, kPlainWords);
  const Bytes first = peer.frame(raw::send(1, raw::text("glued")));
  const Bytes second = peer.frame(raw::send(2, raw::text("cut in two")));
  peer.send(reply + first + Bytes(second.begin(), second.begin() + 9));
  take_event(*client.weft.events, Type::kEstablished);
  EXPECT_EQ(take_success(*client.weft.recv_cq, 1).byte_len, 5U);
  peer.send(raw::View(second).subspan(9));
  EXPECT_EQ(take_success(*client.weft.recv_cq, 2).byte_len, 10U);
  EXPECT_EQ(memory.copy(0, 5), raw::text("glued"));
  EXPECT_EQ(memory.copy(32, 10), raw::text("cut in two"));
}

TEST(MpaDeadlines, SilentResponderMakesTheConnectFail) {
  Config config = plain_config();
  config.reply_timeout = milliseconds(200);
  Client silent(config);
  raw::Peer quiet_peer = silent.connect();
  (void)quiet_peer.recv_mpa();
  const ConnectionEvent event = take_event(*silent.weft.events, Type::kUnreachable);
  EXPECT_EQ(event.error, Error::kTimedOut);
  quiet_peer.expect_closed();

  Client half(config);
  raw::Peer half_peer = half.connect();
  (void)half_peer.recv_mpa();
  half_peer.send(raw::View(raw::mpa_reply(raw::kC | raw::kS, 2, kPlainWords)).first(15));
  take_event(*half.weft.events, Type::kUnreachable);
  half_peer.expect_closed();
}

TEST(MpaLoss, NobodyListeningIsARejection) {
  std::uint16_t port = 0;
  {
    raw::Listener gone;
    port = gone.port();
  }
  Client client;
  auto connection = must(client.host.device->create_connection(client.weft.events), "create");
  must(connection->connect(client.weft.qp, must(SocketAddress::parse("127.0.0.1", port), "parse"),
                           {}),
       "connect");
  const ConnectionEvent event = take_event(*client.weft.events, Type::kRejected);
  EXPECT_EQ(event.error, Error::kConnectionLost);
}

TEST(MpaLoss, ResetInsteadOfAReplyIsARejection) {
  Client client;
  raw::Peer peer = client.connect(plain_params(1));
  (void)peer.recv_mpa();
  peer.reset();
  const ConnectionEvent event = take_event(*client.weft.events, Type::kRejected);
  EXPECT_EQ(event.error, Error::kConnectionLost);
}

TEST(MpaLoss, FinInsteadOfAReplyFailsTheConnect) {
  const Bytes reply = raw::mpa_reply(raw::kC, 1, raw::text("abc"));
  for (const std::size_t cut : {0U, 1U, 16U, 19U, 20U, 22U}) {
    SCOPED_TRACE(cut);
    Client client;
    raw::Peer peer = client.connect(plain_params(1));
    (void)peer.recv_mpa();
    peer.send(raw::View(reply).first(cut));
    peer.shutdown_write();
    const auto event = next_event(*client.weft.events);
    ASSERT_TRUE(event.has_value());
    EXPECT_TRUE(event->type == Type::kRejected || event->type == Type::kConnectError);
    EXPECT_TRUE(event->error.has_value());
    peer.expect_closed();
  }
}

// After a failed connect the QP is not stuck half-way: receives posted to it come back.
TEST(MpaLoss, FailedConnectFlushesWhatWasPosted) {
  Client client;
  post_empty_recvs(*client.weft.qp, 1, 2);
  raw::Peer peer = client.connect(plain_params(1));
  (void)peer.recv_mpa();
  peer.reset();
  take_event(*client.weft.events, Type::kRejected);
  must(client.weft.qp->modify(QpState::kError), "move to the error state");
  for (const WorkCompletion& wc : take_n(*client.weft.recv_cq, 2)) {
    EXPECT_EQ(wc.status, WcStatus::kFlushed);
  }
}

}  // namespace
}  // namespace weft::test
