// Connections from set-up to their end, over IPv4 and IPv6, in one and in two devices.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/quiet_port.h"
#include "support/weft_side.h"

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

TEST(Lifecycle, DisconnectIsSeenOnBothSidesAfterAllDataBeforeIt) {
  for (const bool active_ends : {true, false}) {
    SCOPED_TRACE(active_ends);
    Pair pair;
    Endpoint& ending = active_ends ? pair.a : pair.b;
    Endpoint& other = active_ends ? pair.b : pair.a;
    Memory from(pair.host, 100000);
    Memory into(pair.host, 100000);
    from.fill_pattern(1);
    post_recv(*other.qp, 1, {into.sge()});
    post_recv(*other.qp, 2);
    post_recv(*ending.qp, 3);
    post(*ending.qp, wr_send(1), {from.sge()});
    take_success(*ending.send_cq, 1);
    must(ending.connection->disconnect(), "disconnect");
    EXPECT_EQ(take_success(*other.recv_cq, 1).byte_len, 100000U);
    EXPECT_EQ(into.copy(0, 100000), from.copy(0, 100000));
    EXPECT_EQ(take(*other.recv_cq).status, WcStatus::kFlushed);
    EXPECT_EQ(take(*ending.recv_cq).status, WcStatus::kFlushed);
    EXPECT_FALSE(take_event(*ending.events, Type::kDisconnected).error.has_value());
    EXPECT_FALSE(take_event(*other.events, Type::kDisconnected).error.has_value());
    EXPECT_FALSE(next_event(*other.events, milliseconds(5)).has_value());
  }
}

// The kernel reports the end once, while a Send that waits for its receive keeps what lies before
// the end unread.
TEST(Lifecycle, EndThatCameBehindAHeldSendIsSeenWhenItsReceiveIsPosted) {
  Config config = plain_config();
  config.recv_wait = std::chrono::seconds(60);
  config.close_timeout = std::chrono::seconds(60);
  Pair pair(config);
  Memory from(pair.host, 100);
  Memory into(pair.host, 100);
  from.fill_pattern(1);
  // The pauses let the background read what has come: each step is to find the one before done. If
  // it is not, this test shows less, and passes.
  const auto pause = [] { std::this_thread::sleep_for(milliseconds(50)); };
  post(*pair.a.qp, wr_send(1));
  take_success(*pair.a.send_cq, 1);
  pause();
  post(*pair.a.qp, wr_write(2, into.rkey(), into.to()), {from.sge()});
  take_success(*pair.a.send_cq, 2);
  pause();
  must(pair.a.connection->disconnect(), "disconnect");
  pause();
  post_recv(*pair.b.qp, 1);
  EXPECT_FALSE(take_event(*pair.b.events, Type::kDisconnected).error.has_value());
  take_success(*pair.b.recv_cq, 1);
  EXPECT_EQ(into.copy(0, 100), from.copy(0, 100));
}

TEST(Lifecycle, BothSidesMayDisconnectAtOnce) {
  for (int i = 0; i < 20; ++i) {
    Pair pair;
    must(pair.a.connection->disconnect(), "disconnect");
    (void)pair.b.connection->disconnect();
    take_event(*pair.a.events, Type::kDisconnected);
    take_event(*pair.b.events, Type::kDisconnected);
  }
}

TEST(Lifecycle, AbortFlushesHereAtOnceAndThereWithAnError) {
  Pair pair;
  Memory memory(pair.host, 8);
  post_empty_recvs(*pair.a.qp, 1, 2);
  post_empty_recvs(*pair.b.qp, 1, 2);
  pair.a.connection->abort();
  std::array<WorkCompletion, 4> done;
  EXPECT_EQ(pair.a.recv_cq->poll(done), 2U);
  EXPECT_EQ(done[1].status, WcStatus::kFlushed);
  EXPECT_TRUE(take_event(*pair.b.events, Type::kDisconnected).error.has_value());
  for (const WorkCompletion& wc : take_n(*pair.b.recv_cq, 2)) {
    EXPECT_EQ(wc.status, WcStatus::kFlushed);
  }
}

// Each has completion queues of its own, and so a shard of its own. The kernel refuses an epoll
// whose descriptors are in 500 others that are in an epoll themselves.
TEST(Lifecycle, SixHundredQueuePairsWithQueuesOfTheirOwnAreConnected) {
  constexpr std::size_t kPairs = 300;
  constexpr rlim_t kDescriptors = 8000;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kDescriptors));
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < kDescriptors) GTEST_SKIP() << "too few descriptors";
  Host host;
  Memory memory(host, 64);
  std::vector<std::unique_ptr<Endpoint>> ends;
  for (std::size_t i = 0; i < kPairs; ++i) {
    ends.push_back(std::make_unique<Endpoint>(host));
    ends.push_back(std::make_unique<Endpoint>(host));
    connect(host, *ends[2 * i], host, *ends[2 * i + 1]);
  }
  for (std::size_t i = 0; i < ends.size(); ++i) post_recv(*ends[i]->qp, i, {memory.sge()});
  for (std::size_t i = 0; i < ends.size(); ++i) {
    post(*ends[i]->qp, wr_send(i), {memory.sge()});
    take_success(*ends[i]->send_cq, i);
    take_success(*ends[i ^ 1U]->recv_cq, i ^ 1U);
  }
}

TEST(Lifecycle, TwoDevicesOfOneProcessTalkToEachOther) {
  Host one;
  Host two;
  Endpoint a(one);
  Endpoint b(two);
  connect(one, a, two, b);
  Memory from(one, 4096);
  Memory into(two, 4096);
  from.fill_pattern(3);
  post(*a.qp, wr_write(1, into.rkey(), into.to()), {from.sge()});
  post_recv(*b.qp, 2);
  post(*a.qp, wr_send(2));
  take_success(*b.recv_cq, 2);
  EXPECT_EQ(into.copy(0, 4096), from.copy(0, 4096));
  // Keys of one device mean nothing on the other.
  post(*b.qp, wr_read(3, into.rkey(), into.to()), {into.sge(0, 8)});
  EXPECT_EQ(take(*b.send_cq).status, WcStatus::kRemoteAccess);
}

TEST(Lifecycle, RejectedAndRefusedConnectsLeaveTheListenerServing) {
  Host host;
  const auto events = must(EventChannel::create(), "create an event channel");
  const auto listener = listen(host, events);
  for (int i = 0; i < 5; ++i) {
    Endpoint a(host);
    a.connection = must(host.device->create_connection(a.events), "create a connection");
    ConnectionParams params;
    params.private_data = {9, 8, 7};
    must(a.connection->connect(a.qp, listener->local_address(), params), "connect");
    const ConnectionEvent request = take_event(*events, Type::kConnectRequest);
    EXPECT_EQ(request.private_data, params.private_data);
    EXPECT_EQ(request.listener, listener);
    const std::uint8_t why[] = {1, 2};
    must(request.connection->reject(why), "reject");
    const ConnectionEvent rejected = take_event(*a.events, Type::kRejected);
    EXPECT_EQ(rejected.error, Error::kRefused);
    EXPECT_EQ(rejected.private_data, (std::vector<std::uint8_t>{1, 2}));
  }
}

std::string text_of(const QuietPort& port) { return "127.0.0.1:" + std::to_string(port.number()); }
SocketAddress address_of(const QuietPort& port) {
  return must(SocketAddress::parse(text_of(port)), "parse");
}

TEST(Lifecycle, ListenerThatComesLateIsFound) {
  for (const bool bound : {false, true}) {
    SCOPED_TRACE(bound);
    Config config = plain_config();
    config.refused_wait = std::chrono::seconds(30);
    Host host(config);
    Endpoint a(host);
    Endpoint b(host);
    a.connection = must(host.device->create_connection(a.events), "create a connection");
    if (bound) {
      must(a.connection->bind(must(SocketAddress::parse("127.0.0.1:0"), "parse"), false), "bind");
    }
    const SocketAddress mine = a.connection->local_address();
    auto port = std::make_optional<QuietPort>();
    must(a.connection->connect(a.qp, address_of(*port), {}), "connect");
    // Loopback has refused it by the time connect() is back.
    const std::string where = text_of(*port);
    port.reset();
    const auto listener = listen(host, b.events, where);
    b.connection = take_event(*b.events, Type::kConnectRequest).connection;
    must(b.connection->accept(b.qp, {}), "accept");
    take_event(*a.events, Type::kEstablished);
    take_event(*b.events, Type::kEstablished);
    if (bound) {
      EXPECT_EQ(b.connection->peer_address().text(), mine.text());
    }
    EXPECT_EQ(b.connection->peer_address().text(), a.connection->local_address().text());
  }
}

class Callers {
 public:
  explicit Callers(Host& host) : host_(host) {}
  void call(const SocketAddress& where) {
    Endpoint& end = *ends_.emplace_back(std::make_unique<Endpoint>(host_));
    end.connection = must(host_.device->create_connection(end.events), "create a connection");
    ConnectionParams params;
    params.private_data = {static_cast<std::uint8_t>(ends_.size() - 1)};
    must(end.connection->connect(end.qp, where, params), "connect");
  }
  Endpoint& end(std::size_t i) { return *ends_.at(i); }

 private:
  Host& host_;
  std::vector<std::unique_ptr<Endpoint>> ends_;
};

TEST(Lifecycle, ThoseThatWereRefusedComeBeforeThoseThatWereNot) {
  Config config = plain_config();
  config.refused_wait = std::chrono::seconds(30);
  Host host(config);
  Host server(config);
  const auto events = must(EventChannel::create(), "create an event channel");
  auto port = std::make_optional<QuietPort>();
  const SocketAddress where = address_of(*port);
  Callers callers(host);
  for (int i = 0; i < 3; ++i) callers.call(where);
  // The first of them goes: the others are not left behind.
  callers.end(0).connection->abort();
  EXPECT_EQ(take_event(*callers.end(0).events, Type::kConnectError).error, Error::kAborted);
  const std::string text = text_of(*port);
  port.reset();
  const auto listener = listen(server, events, text);
  for (int i = 3; i < 8; ++i) callers.call(where);
  for (std::uint8_t i = 1; i < 8; ++i) {
    EXPECT_EQ(take_event(*events, Type::kConnectRequest).private_data,
              std::vector<std::uint8_t>{i});
  }
}

TEST(Lifecycle, RequestsArriveInTheOrderOfTheirConnects) {
  Host host;
  Host server;
  const auto events = must(EventChannel::create(), "create an event channel");
  const auto listener = listen(server, events);
  for (int round = 0; round < 20; ++round) {
    Callers callers(host);
    for (int i = 0; i < 16; ++i) callers.call(listener->local_address());
    for (std::uint8_t i = 0; i < 16; ++i) {
      EXPECT_EQ(take_event(*events, Type::kConnectRequest).private_data,
                std::vector<std::uint8_t>{i});
    }
  }
}

TEST(Lifecycle, NobodyListensIsRejectedInTheEnd) {
  const QuietPort port;
  for (const auto patience : {milliseconds(0), milliseconds(20)}) {
    SCOPED_TRACE(patience.count());
    Config config = plain_config();
    config.refused_wait = patience;
    Host host(config);
    Endpoint a(host);
    a.connection = must(host.device->create_connection(a.events), "create a connection");
    must(a.connection->connect(a.qp, address_of(port), {}), "connect");
    EXPECT_EQ(take_event(*a.events, Type::kRejected).error, Error::kConnectionLost);
    EXPECT_FALSE(next_event(*a.events, milliseconds(5)).has_value());
  }
}

TEST(Lifecycle, ConnectThatIsTriedAgainCanBeAbortedAndDestroyed) {
  const QuietPort port;
  Config config = plain_config();
  config.refused_wait = std::chrono::seconds(30);
  Host host(config);
  for (const bool abort : {true, false}) {
    SCOPED_TRACE(abort);
    Endpoint a(host);
    a.connection = must(host.device->create_connection(a.events), "create a connection");
    must(a.connection->connect(a.qp, address_of(port), {}), "connect");
    if (!abort) continue;
    a.connection->abort();
    EXPECT_EQ(take_event(*a.events, Type::kConnectError).error, Error::kAborted);
  }
}

TEST(Lifecycle, PrivateDataTravelsBothWays) {
  ConnectOptions how;
  how.active.private_data.assign(limits::kPrivateDataBytes, 0x42);
  how.passive.private_data.assign(limits::kPrivateDataBytes, 0x43);
  Host host;
  Endpoint a(host);
  Endpoint b(host);
  const auto listener = listen(host, b.events);
  a.connection = must(host.device->create_connection(a.events), "create a connection");
  must(a.connection->connect(a.qp, listener->local_address(), how.active), "connect");
  const ConnectionEvent request = take_event(*b.events, Type::kConnectRequest);
  EXPECT_EQ(request.private_data, how.active.private_data);
  must(request.connection->accept(b.qp, how.passive), "accept");
  EXPECT_EQ(take_event(*a.events, Type::kEstablished).private_data, how.passive.private_data);
}

TEST(Lifecycle, WrongUseIsRefusedAndChangesNothing) {
  Pair pair;
  ConnectionParams params;
  EXPECT_EQ(pair.a.connection
                ->connect(pair.a.qp, must(SocketAddress::parse("127.0.0.1:1"), "parse"), params)
                .error(),
            Error::kBadState);
  EXPECT_EQ(pair.b.connection->accept(pair.b.qp, params).error(), Error::kBadState);
  EXPECT_FALSE(pair.b.connection->reject({}));
  Endpoint fresh(pair.host);
  EXPECT_EQ(fresh.qp->post_send(wr_send(1)).error(), Error::kBadState);
  EXPECT_EQ(fresh.qp->state(), QpState::kInit);
  const auto connection = must(pair.host.device->create_connection(fresh.events), "create");
  EXPECT_EQ(connection->disconnect().error(), Error::kBadState);
  params.ird = limits::kIrd + 1;
  EXPECT_EQ(
      connection->connect(fresh.qp, must(SocketAddress::parse("127.0.0.1:1"), "parse"), params)
          .error(),
      Error::kInvalidArgument);
  post_recv(*pair.b.qp, 1);
  post(*pair.a.qp, wr_send(1));
  take_success(*pair.b.recv_cq, 1);
}

TEST(Lifecycle, FullQueuesRefuseAndNameTheFirstRequestNotTaken) {
  EndpointOptions small;
  small.max_recv_wr = 4;
  Pair pair(plain_config(), {}, small);
  const std::uint32_t room = pair.b.qp->caps().max_recv_wr;
  std::vector<RecvWr> wrs(room + 3);
  const Posted posted = pair.b.qp->post_recv(wrs);
  EXPECT_EQ(posted.count, room);
  EXPECT_EQ(posted.error, Error::kNoSpace);
}

TEST(Lifecycle, ErrorStateTakesAndFlushesLatePosts) {
  Pair pair;
  pair.a.connection->abort();
  post_recv(*pair.a.qp, 5);
  post(*pair.a.qp, wr_send(6));
  EXPECT_EQ(take(*pair.a.recv_cq).status, WcStatus::kFlushed);
  EXPECT_EQ(take(*pair.a.send_cq).status, WcStatus::kFlushed);
}

TEST(Lifecycle, DrainingTheSendQueueRaisesItsEvent) {
  Pair pair;
  Memory memory(pair.host, 8);
  for (std::uint64_t id = 1; id <= 10; ++id) {
    post(*pair.a.qp, wr_write(id, memory.rkey(), memory.to()), {memory.sge()});
  }
  must(pair.a.qp->modify(QpState::kSqd), "drain");
  const auto event = pair.host.async_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->type, AsyncEventType::kSqDrained);
  for (std::uint64_t id = 1; id <= 10; ++id) take_success(*pair.a.send_cq, id);
}

TEST(Lifecycle, UsersAreCountedUntilTheyAreGone) {
  Host host;
  const std::size_t before = host.pd->users();
  {
    Endpoint a(host);
    const Memory memory(host, 8);
    EXPECT_EQ(host.pd->users(), before + 2);
    EXPECT_EQ(a.send_cq->users() + a.recv_cq->users(), 2U);
  }
  EXPECT_EQ(host.pd->users(), before);
}

TEST(Lifecycle, AConnectionThatIsOverGoesThoughItsQueuePairStays) {
  Host host;
  Endpoint a(host), b(host);
  const std::size_t before = host.device->users();
  connect(host, a, host, b);
  must(a.connection->disconnect(), "disconnect");
  take_event(*a.events, Type::kDisconnected);
  take_event(*b.events, Type::kDisconnected);
  a.connection.reset();
  b.connection.reset();
  EXPECT_TRUE(eventually([&] { return host.device->users() == before; }))
      << host.device->users() << " users, not " << before;
}

TEST(Lifecycle, CountersCountBothDirections) {
  Pair pair;
  Memory memory(pair.host, 1000);
  post(*pair.a.qp, wr_write(1, memory.rkey(), memory.to()), {memory.sge()});
  post_recv(*pair.b.qp, 1);
  post(*pair.a.qp, wr_send(2));
  take_success(*pair.b.recv_cq, 1);
  const Counters c = pair.host.device->counters();
  EXPECT_GE(c.tx_bytes, 1000U);
  EXPECT_GE(c.rx_bytes, 1000U);
  EXPECT_GE(c.tx_messages[0], 1U);
  EXPECT_GE(c.rx_messages[0], 1U);
  EXPECT_EQ(c.tx_messages[3], 1U);
  EXPECT_EQ(c.rx_messages[3], 1U);
  EXPECT_EQ(c.connections_opened, 2U);
  EXPECT_EQ(c.crc_errors, 0U);
}

}  // namespace
}  // namespace weft::test
