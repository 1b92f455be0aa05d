#include "verbs/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

class ConnectionTest : public ::testing::Test {
 protected:
  // An active connection that has begun to connect to `peer`.
  std::shared_ptr<Connection> connect(const SocketAddress& peer,
                                      const ConnectionParams& params = plain_params()) {
    auto connection = *host.device->create_connection(channel);
    EXPECT_TRUE(connection->connect(set.qp, peer, params));
    return connection;
  }
  // A request taken by the application, and the client that made it.
  struct Requested {
    RawSocket client;
    std::shared_ptr<Connection> connection;
  };
  Requested requested() {
    RawSocket client = RawSocket::connect(passive.address());
    client.send(request());
    auto connection = expect_event(*passive.channel, EventType::kConnectRequest).connection;
    return {std::move(client), std::move(connection)};
  }
  static std::string code(const std::optional<Error>& error) {
    return std::string(error ? describe(*error) : "none");
  }

  Host host;
  QpSet set{host};
  std::shared_ptr<EventChannel> channel = new_channel();
  Passive passive{host};
  RawListener raw;
};

// --- active ---

TEST_F(ConnectionTest, EstablishedWithThePeersPrivateData) {
  ConnectionParams params = plain_params();
  params.private_data = {1, 2, 3};
  const auto connection = connect(raw.address(), params);
  const RawSocket peer = raw.accept();
  const Bytes asked = peer.receive(23);
  ASSERT_EQ(asked.size(), 23U);
  EXPECT_EQ(Bytes(asked.end() - 3, asked.end()), (Bytes{1, 2, 3}));
  peer.send(reply(false, {4, 5}));
  const ConnectionEvent event = expect_event(*channel, EventType::kEstablished);
  EXPECT_EQ(event.private_data, (Bytes{4, 5}));
  EXPECT_EQ(event.connection, connection);
  EXPECT_EQ(connection->qp(), set.qp);
  EXPECT_EQ(set.qp->connection(), connection);
  EXPECT_EQ(set.qp->state(), QpState::kRts);
  EXPECT_EQ(connection->peer_address().text(), raw.address().text());
  const ConnectionInfo info = connection->info();
  EXPECT_TRUE(info.initiator);
  EXPECT_TRUE(info.crc);
  EXPECT_EQ(info.mpa_revision, 1);
  EXPECT_FALSE(info.congestion.empty());
}

TEST_F(ConnectionTest, NobodyListeningIsARejectionByTheNetwork) {
  SocketAddress nobody;
  {
    const RawListener gone;
    nobody = gone.address();
  }
  const auto connection = connect(nobody);
  const ConnectionEvent event = expect_event(*channel, EventType::kRejected);
  EXPECT_EQ(event.error, Error::kConnectionLost);
}

TEST_F(ConnectionTest, RejectionByThePeersApplicationCarriesItsData) {
  const auto connection = connect(raw.address());
  const RawSocket peer = raw.accept();
  ASSERT_EQ(peer.receive(20).size(), 20U);
  peer.send(reply(true, {7}));
  const ConnectionEvent event = expect_event(*channel, EventType::kRejected);
  EXPECT_EQ(event.error, Error::kRefused);
  EXPECT_EQ(event.private_data, (Bytes{7}));
  EXPECT_TRUE(peer.closed());
}

TEST_F(ConnectionTest, QueuePairMayBeUsedAgainAfterAFailedSetUp) {
  {
    const auto first = connect(raw.address());
    raw.accept().close();
    EXPECT_EQ(expect_event(*channel, EventType::kRejected).error, Error::kConnectionLost);
  }
  EXPECT_EQ(set.qp->state(), QpState::kInit);
  const auto second = connect(raw.address());
  const RawSocket peer = raw.accept();
  peer.send(reply());
  expect_event(*channel, EventType::kEstablished);
}

TEST_F(ConnectionTest, SilentPeerIsUnreachable) {
  Config config = quiet_config();
  config.reply_timeout = 30ms;
  Host strict(config);
  QpSet strict_set(strict);
  const auto connection = *strict.device->create_connection(channel);
  ASSERT_TRUE(connection->connect(strict_set.qp, raw.address(), plain_params()));
  const RawSocket peer = raw.accept();
  EXPECT_EQ(expect_event(*channel, EventType::kUnreachable).error, Error::kTimedOut);
}

TEST_F(ConnectionTest, ReplyThatIsNotMpaIsAConnectError) {
  const auto connection = connect(raw.address());
  const RawSocket peer = raw.accept();
  ASSERT_EQ(peer.receive(20).size(), 20U);
  peer.send(Bytes(20, 'x'));
  EXPECT_EQ(expect_event(*channel, EventType::kConnectError).error, Error::kProtocol);
  EXPECT_TRUE(peer.closed());
  EXPECT_TRUE(no_event(*channel));
}

TEST_F(ConnectionTest, AbortDuringSetUpIsReportedOnce) {
  const auto connection = connect(raw.address());
  const RawSocket peer = raw.accept();
  connection->abort();
  EXPECT_EQ(expect_event(*channel, EventType::kConnectError).error, Error::kAborted);
  connection->abort();
  EXPECT_TRUE(no_event(*channel));
}

TEST_F(ConnectionTest, DroppedConnectionResetsItsPeer) {
  auto connection = connect(raw.address());
  const RawSocket peer = raw.accept();
  peer.send(reply());
  expect_event(*channel, EventType::kEstablished).connection.reset();
  connection.reset();
  ASSERT_EQ(peer.receive(20).size(), 20U);
  EXPECT_TRUE(peer.closed());
  EXPECT_TRUE(eventually([&] { return set.qp->state() == QpState::kError; }));
}

TEST_F(ConnectionTest, MisuseOfAnActiveConnectionIsRefused) {
  const auto connection = *host.device->create_connection(channel);
  EXPECT_EQ(connection->disconnect().error(), Error::kBadState);
  EXPECT_EQ(connection->accept(set.qp, {}).error(), Error::kBadState);
  EXPECT_EQ(connection->reject({}).error(), Error::kBadState);
  EXPECT_EQ(connection->connect(nullptr, raw.address(), {}).error(), Error::kInvalidArgument);
  EXPECT_EQ(connection->connect(set.qp, SocketAddress(), {}).error(), Error::kInvalidArgument);
  ConnectionParams params;
  params.private_data.resize(limits::kPrivateDataBytes + 1);
  EXPECT_EQ(connection->connect(set.qp, raw.address(), params).error(), Error::kInvalidArgument);
  params = {};
  params.ird = limits::kIrd + 1;
  EXPECT_EQ(connection->connect(set.qp, raw.address(), params).error(), Error::kInvalidArgument);
  params = {};
  params.policy.mpa_revision = 3;
  EXPECT_EQ(connection->connect(set.qp, raw.address(), params).error(), Error::kInvalidArgument);
  // Nothing of that has spoilt it.
  ASSERT_TRUE(connection->connect(set.qp, raw.address(), plain_params()));
  EXPECT_EQ(connection->connect(set.qp, raw.address(), plain_params()).error(), Error::kBadState);
  EXPECT_EQ(connection->bind(raw.address()).error(), Error::kBadState);
}

TEST_F(ConnectionTest, QueuePairOfAnotherConnectionIsRefused) {
  const auto first = connect(raw.address());
  const auto second = *host.device->create_connection(channel);
  EXPECT_EQ(second->connect(set.qp, raw.address(), {}).error(), Error::kBadState);
  auto taken = requested();
  EXPECT_EQ(taken.connection->accept(set.qp, {}).error(), Error::kBadState);
}

TEST_F(ConnectionTest, BoundAddressIsTheOneItConnectsFrom) {
  const auto connection = *host.device->create_connection(channel);
  ASSERT_TRUE(connection->bind(*SocketAddress::parse("127.0.0.9:0")));
  EXPECT_EQ(connection->bind(*SocketAddress::parse("127.0.0.9:0")).error(), Error::kBadState);
  const SocketAddress local = connection->local_address();
  EXPECT_NE(local.port(), 0);
  ASSERT_TRUE(connection->connect(set.qp, raw.address(), plain_params()));
  const RawSocket peer = raw.accept();
  peer.send(reply());
  expect_event(*channel, EventType::kEstablished);
  EXPECT_EQ(connection->local_address().text(), local.text());
}

// --- passive ---

TEST_F(ConnectionTest, AcceptMayComeAtAnyTimeLater) {
  const auto r = requested();
  usleep(30000);
  ConnectionParams params;
  params.private_data = {6};
  ASSERT_TRUE(r.connection->accept(set.qp, params));
  const ConnectionEvent event = expect_event(*passive.channel, EventType::kEstablished);
  EXPECT_EQ(event.connection, r.connection);
  EXPECT_TRUE(event.private_data.empty());
  const Bytes answer = r.client.receive(21);
  ASSERT_EQ(answer.size(), 21U);
  EXPECT_EQ(answer.back(), 6);
  EXPECT_EQ(r.connection->accept(set.qp, params).error(), Error::kBadState);
}

TEST_F(ConnectionTest, RejectSendsItsDataAndCloses) {
  const auto r = requested();
  EXPECT_EQ(r.connection->reject(Bytes(513)).error(), Error::kInvalidArgument);
  ASSERT_TRUE(r.connection->reject(Bytes{3, 4}));
  const Bytes answer = r.client.receive(22);
  ASSERT_EQ(answer.size(), 22U);
  EXPECT_EQ(answer[16] & 0x20, 0x20);
  EXPECT_EQ(Bytes(answer.end() - 2, answer.end()), (Bytes{3, 4}));
  EXPECT_TRUE(r.client.closed());
  EXPECT_EQ(r.connection->reject({}).error(), Error::kBadState);
  EXPECT_TRUE(no_event(*passive.channel));
}

TEST_F(ConnectionTest, PeerThatLeftWhileTheApplicationThoughtIsToldAtTheAnswer) {
  auto r = requested();
  const std::uint64_t before = host.device->counters().connections_refused;
  r.client.close();
  ASSERT_TRUE(eventually([&] { return host.device->counters().connections_refused > before; }));
  EXPECT_EQ(r.connection->accept(set.qp, {}).error(), Error::kConnectionLost);
  EXPECT_EQ(r.connection->reject({}).error(), Error::kConnectionLost);
  EXPECT_EQ(set.qp->state(), QpState::kInit);
  EXPECT_TRUE(no_event(*passive.channel));
}

TEST_F(ConnectionTest, RequestThatIsDroppedUnansweredIsClosed) {
  auto r = requested();
  r.connection.reset();
  EXPECT_TRUE(r.client.closed());
}

TEST_F(ConnectionTest, DisconnectedComesOnceOnBothSidesOfAnOrderlyClose) {
  QpSet other(host);
  const auto active = connect(passive.address(), {});
  auto server = expect_event(*passive.channel, EventType::kConnectRequest).connection;
  ASSERT_TRUE(server->accept(other.qp, {}));
  expect_event(*channel, EventType::kEstablished);
  expect_event(*passive.channel, EventType::kEstablished);
  ASSERT_TRUE(active->disconnect());
  EXPECT_EQ(code(expect_event(*channel, EventType::kDisconnected).error), "none");
  EXPECT_EQ(code(expect_event(*passive.channel, EventType::kDisconnected).error), "none");
  EXPECT_TRUE(active->disconnect());
  EXPECT_TRUE(server->disconnect());
  EXPECT_TRUE(no_event(*channel));
  EXPECT_TRUE(no_event(*passive.channel));
}

TEST_F(ConnectionTest, PeerToPeerIsEstablishedByTheFirstFpduOrNotAtAll) {
  Config config = quiet_config();
  config.rtr_timeout = 30ms;
  Host strict(config);
  QpSet strict_set(strict);
  const Passive p(strict);
  const RawSocket client = RawSocket::connect(p.address());
  // Revision 2, enhanced, A and D: a Read RTR is due behind the Reply.
  Bytes asking = request(2, {0x80, 0x01, 0x40, 0x01});
  asking[16] |= 0x10;
  client.send(asking);
  const auto connection = expect_event(*p.channel, EventType::kConnectRequest).connection;
  ASSERT_TRUE(connection->accept(strict_set.qp, {}));
  EXPECT_EQ(client.receive(24).size(), 24U);
  EXPECT_EQ(expect_event(*p.channel, EventType::kConnectError).error, Error::kTimedOut);
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(no_event(*p.channel));
}

TEST_F(ConnectionTest, FpduSizeFollowsThePolicy) {
  const auto ulpdu = [&](FpduPolicy policy, bool crc) {
    QpSet a(host);
    QpSet b(host);
    ConnectionParams params;
    params.policy.fpdu = policy;
    params.policy.crc = crc;
    const auto c = *host.device->create_connection(channel);
    EXPECT_TRUE(c->connect(a.qp, passive.address(), params));
    const auto s = expect_event(*passive.channel, EventType::kConnectRequest).connection;
    EXPECT_TRUE(s->accept(b.qp, params));
    expect_event(*channel, EventType::kEstablished);
    expect_event(*passive.channel, EventType::kEstablished);
    return c->info().max_ulpdu;
  };
  EXPECT_EQ(ulpdu(FpduPolicy::kCapped, true), 16378U);
  EXPECT_EQ(ulpdu(FpduPolicy::kLarge, true), 64768U);
  EXPECT_EQ(ulpdu(FpduPolicy::kAuto, false), 64768U);
  EXPECT_EQ(ulpdu(FpduPolicy::kAuto, true), 16384U + 14U);
  EXPECT_LE(ulpdu(FpduPolicy::kMss, true), 64768U);
}

TEST_F(ConnectionTest, HundredsOfSetUpsInARowLeaveNothingBehind) {
  for (int i = 0; i < 300; ++i) {
    QpSet a(host);
    QpSet b(host);
    auto c = *host.device->create_connection(channel);
    ASSERT_TRUE(c->connect(a.qp, passive.address(), {}));
    auto s = expect_event(*passive.channel, EventType::kConnectRequest).connection;
    ASSERT_TRUE(s->accept(b.qp, {}));
    expect_event(*channel, EventType::kEstablished);
    if (i % 3 == 0) c->abort();
    if (i % 3 == 1) {
      ASSERT_TRUE(c->disconnect());
    }
    c.reset();
    s.reset();
    while (passive.channel->next(0ns)) {
    }
    while (channel->next(0ns)) {
    }
  }
  EXPECT_TRUE(eventually([&] { return host.device->count(ObjectKind::kConnection) == 0; }));
  EXPECT_TRUE(eventually([&] { return host.device->count(ObjectKind::kQp) == 1; }));
}

}  // namespace
}  // namespace weft::verbs::test
