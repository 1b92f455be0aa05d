#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include <list>

#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

class ListenerTest : public ::testing::Test {
 protected:
  std::uint64_t refused() const { return host.device->counters().connections_refused; }
  Host host;
};

TEST_F(ListenerTest, MisuseIsRefusedAndChangesNothing) {
  const auto listener = *host.device->create_listener(new_channel());
  EXPECT_EQ(listener->listen(1).error(), Error::kBadState);
  EXPECT_EQ(listener->bind(SocketAddress()).error(), Error::kInvalidArgument);
  EXPECT_EQ(listener->bind(*SocketAddress::parse("192.0.2.1:0")).error(), Error::kInvalidArgument);
  ASSERT_TRUE(listener->bind(*SocketAddress::parse("127.0.0.1:0")));
  EXPECT_EQ(listener->bind(*SocketAddress::parse("127.0.0.1:0")).error(), Error::kBadState);
  ASSERT_TRUE(listener->listen(1));
  EXPECT_EQ(listener->listen(1).error(), Error::kBadState);
}

TEST_F(ListenerTest, PortInUseIsTold) {
  const Passive first(host);
  const auto second = *host.device->create_listener(new_channel());
  EXPECT_EQ(second->bind(first.address()).error(), Error::kAddressInUse);
}

// A server that has closed its connections first, and is started again. Another program may have
// got its port meanwhile, but not each time.
TEST_F(ListenerTest, LingeringConnectionsDoNotHoldThePort) {
  Status again = fail(Error::kAddressInUse);
  for (int attempt = 0; attempt < 5 && !again; ++attempt) {
    auto first = std::make_unique<Passive>(host);
    const SocketAddress address = first->address();
    const RawSocket client = RawSocket::connect(address);
    client.send(request());
    ConnectionEvent event = expect_event(*first->channel, EventType::kConnectRequest);
    ASSERT_NE(event.connection, nullptr);
    ASSERT_TRUE(event.connection->reject({}));  // closes, so TIME_WAIT is on this side
    event = {};
    first->listener->close();
    first.reset();
    const auto second = *host.device->create_listener(new_channel());
    again = second->bind(address);
  }
  EXPECT_TRUE(again);
}

// A socket of the application that listens at 127.0.0.1.
os::Fd listening_socket() {
  os::Fd out(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(out.get(), reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
  EXPECT_EQ(::listen(out.get(), 1), 0);
  return out;
}

TEST_F(ListenerTest, AChildOfForkKeepsNoAdoptedSocket) {
  const auto listener = *host.device->create_listener(new_channel());
  ASSERT_TRUE(listener->adopt(listening_socket().release()));
  ASSERT_TRUE(listener->listen(0));
  const SocketAddress address = listener->local_address();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    (void)!::write(ready[1], "", 1);
    while (true) pause();
  }
  char octet;
  EXPECT_EQ(::read(ready[0], &octet, 1), 1);
  listener->close();
  const os::Fd late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(::connect(late.get(), address.get(), address.size()), 0);
  EXPECT_EQ(errno, ECONNREFUSED);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(ListenerTest, RequestsGoToTheChannelThatItHasWhenTheyCome) {
  const Passive passive(host);
  const RawSocket client = RawSocket::connect(passive.address());
  EXPECT_TRUE(eventually([&] { return host.device->count(ObjectKind::kConnection) == 1; }));
  const auto other = new_channel();
  passive.listener->set_channel(other);
  client.send(request());
  expect_event(*other, EventType::kConnectRequest);
  EXPECT_TRUE(no_event(*passive.channel));
}

TEST_F(ListenerTest, NothingIsHandedInToOneThatIsClosed) {
  const Passive passive(host);
  const os::Fd door = listening_socket();
  sockaddr_in at{};
  socklen_t size = sizeof at;
  ASSERT_EQ(getsockname(door.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const RawSocket client =
      RawSocket::connect(SocketAddress(reinterpret_cast<const sockaddr*>(&at), size));
  const int arrived = ::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC);
  passive.listener->close();
  EXPECT_EQ(passive.listener->hand_in(arrived).error(), Error::kBadState);
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(host.device->count(ObjectKind::kConnection), 0U);
}

TEST_F(ListenerTest, WildcardListenerTakesBothFamilies) {
  const auto channel = new_channel();
  const auto listener = *host.device->create_listener(channel);
  ASSERT_TRUE(listener->bind(*SocketAddress::parse("[::]:0")));
  ASSERT_TRUE(listener->listen(0));
  const std::uint16_t port = listener->local_address().port();
  for (const char* where : {"127.0.0.1", "[::1]"}) {
    const RawSocket client = RawSocket::connect(*SocketAddress::parse(where, port));
    client.send(request());
    const ConnectionEvent event = expect_event(*channel, EventType::kConnectRequest);
    ASSERT_NE(event.connection, nullptr);
    EXPECT_FALSE(event.connection->local_address().is_any());
    EXPECT_TRUE(event.connection->local_address().is_loopback());
  }
}

TEST_F(ListenerTest, RequestCarriesWhatThePeerSent) {
  const Passive passive(host);
  const RawSocket client = RawSocket::connect(passive.address());
  client.send(request(1, {9, 8, 7}));
  const ConnectionEvent event = expect_event(*passive.channel, EventType::kConnectRequest);
  EXPECT_EQ(event.private_data, (Bytes{9, 8, 7}));
  EXPECT_EQ(event.listener, passive.listener);
  EXPECT_EQ(event.ird, host.device->config().ird);
  ASSERT_NE(event.connection, nullptr);
  EXPECT_EQ(event.connection->local_address().text(), passive.address().text());
}

TEST_F(ListenerTest, SilentClientIsClosedWhenItsTimeIsUp) {
  Config config = quiet_config();
  config.request_timeout = 30ms;
  Host strict(config);
  const Passive passive(strict);
  const RawSocket silent = RawSocket::connect(passive.address());
  const RawSocket half = RawSocket::connect(passive.address());
  half.send({'M', 'P', 'A'});
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(half.closed());
  EXPECT_TRUE(eventually([&] { return strict.device->counters().connections_refused == 2; }));
  EXPECT_TRUE(no_event(*passive.channel));
  EXPECT_TRUE(eventually([&] { return strict.device->count(ObjectKind::kConnection) == 0; }));
}

TEST_F(ListenerTest, ClosingItClosesWhatWasNotDelivered) {
  auto passive = std::make_unique<Passive>(host);
  const RawSocket silent = RawSocket::connect(passive->address());
  const RawSocket ready = RawSocket::connect(passive->address());
  ready.send(request());
  const RawSocket taken = RawSocket::connect(passive->address());
  EXPECT_TRUE(eventually([&] { return host.device->count(ObjectKind::kConnection) == 3; }));
  taken.send(request());
  std::vector<std::shared_ptr<Connection>> mine;
  mine.push_back(expect_event(*passive->channel, EventType::kConnectRequest).connection);
  const SocketAddress address = passive->address();
  passive->listener->close();
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(no_event(*passive->channel));
  // The one the application has is still its own.
  QpSet set(host);
  EXPECT_TRUE(mine[0]->accept(set.qp, plain_params()));
  const os::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(connect(fd.get(), address.get(), address.size()), 0);
}

TEST_F(ListenerTest, RequestsMoveWithTheListenersChannel) {
  const Passive passive(host);
  const RawSocket client = RawSocket::connect(passive.address());
  client.send(request());
  EXPECT_TRUE(eventually(
      [&] { return host.device->count(ObjectKind::kConnection) == 1 && refused() == 0; }));
  usleep(20000);
  const auto other = new_channel();
  passive.listener->set_channel(other);
  expect_event(*other, EventType::kConnectRequest);
  const RawSocket second = RawSocket::connect(passive.address());
  second.send(request());
  expect_event(*other, EventType::kConnectRequest);
}

}  // namespace
}  // namespace weft::verbs::test
