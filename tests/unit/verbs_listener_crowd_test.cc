// The limits of what peers can take of a listener before the program knows them.
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/limits.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <list>

#include "support/descriptor_limit.h"
#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

std::atomic<int> g_accept_error = 0;  // 0: accept4() works
std::atomic<int> g_failed_accepts = 0;

// While it lives, accept4() fails with this error.
class AcceptFails {
 public:
  explicit AcceptFails(int error) {
    g_failed_accepts = 0;
    g_accept_error = error;
  }
  ~AcceptFails() { g_accept_error = 0; }
  AcceptFails(const AcceptFails&) = delete;
  AcceptFails& operator=(const AcceptFails&) = delete;
};

}  // namespace
}  // namespace weft::verbs::test

// In place of the C library's.
extern "C" int accept4(int fd, sockaddr* peer, socklen_t* size, int flags) {
  using weft::verbs::test::g_accept_error;
  using weft::verbs::test::g_failed_accepts;
  if (const int error = g_accept_error; error != 0) {
    ++g_failed_accepts;
    errno = error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_accept4, fd, peer, size, flags));
}

namespace weft::verbs::test {
namespace {

// Connects, asks and leaves. False: the listener's queue in the kernel is full.
bool ask_and_leave(const SocketAddress& peer) {
  const RawSocket client(
      os::Fd(socket(peer.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  static_cast<void>(::connect(client.fd(), peer.get(), peer.size()));
  constexpr int kPatienceMs = 10;
  pollfd p{client.fd(), POLLOUT, 0};
  if (poll(&p, 1, kPatienceMs) != 1 || (p.revents & POLLERR) != 0) return false;
  client.send(request());
  return true;
}

class CrowdedListenerTest : public ::testing::Test {
 protected:
  Host host;
};

TEST_F(CrowdedListenerTest, AcceptsNoMoreThanItsBacklogUntilRequestsAreTaken) {
  const auto channel = new_channel();
  const auto listener = *host.device->create_listener(channel);
  ASSERT_TRUE(listener->bind(*SocketAddress::parse("127.0.0.1:0")));
  // The kernel holds connections, with their Requests, from here on.
  std::list<RawSocket> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(RawSocket::connect(listener->local_address()));
    clients.back().send(request());
  }
  ASSERT_TRUE(listener->listen(2));
  EXPECT_TRUE(eventually([&] { return host.device->count(ObjectKind::kConnection) == 2; }));
  usleep(20000);
  EXPECT_EQ(host.device->count(ObjectKind::kConnection), 2U);
  std::list<std::shared_ptr<Connection>> taken;
  for (int i = 0; i < 4; ++i) {
    taken.push_back(expect_event(*channel, EventType::kConnectRequest).connection);
  }
  EXPECT_EQ(host.device->count(ObjectKind::kConnection), 4U);
}

// The server does not read its channel meanwhile.
TEST_F(CrowdedListenerTest, RequestsWhosePeersHaveLeftCountUntilTheyAreTaken) {
  constexpr int kBacklog = 4;
  const Passive passive(host, kBacklog);
  int in_vain = 0;
  for (int i = 0; i < 4000 && in_vain < 50; ++i) {
    in_vain = ask_and_leave(passive.address()) ? 0 : in_vain + 1;
  }
  EXPECT_LE(host.device->count(ObjectKind::kConnection), kBacklog + limits::kHalfOpenConnections);

  const Bytes mark{42};
  auto honest = std::async(std::launch::async, [&] {
    RawSocket client = RawSocket::connect(passive.address());
    client.send(request(1, mark));
    return client;
  });
  QpSet set(host);
  ConnectionEvent event = expect_event(*passive.channel, EventType::kConnectRequest);
  while (event.connection != nullptr && event.private_data != mark) {
    static_cast<void>(event.connection->reject({}));  // nobody hears it
    event = expect_event(*passive.channel, EventType::kConnectRequest);
  }
  ASSERT_NE(event.connection, nullptr);
  EXPECT_TRUE(event.connection->accept(set.qp, plain_params()));
  EXPECT_EQ(honest.get().receive(reply().size()).size(), reply().size());
}

TEST_F(CrowdedListenerTest, SilentConnectionsAreNoPartOfTheBacklog) {
  constexpr std::size_t kSilent = 50;
  Host patient(patient_config());
  const Passive passive(patient, 1);
  std::list<RawSocket> silent;
  while (silent.size() < kSilent) silent.push_back(RawSocket::connect(passive.address()));
  const RawSocket honest = RawSocket::connect(passive.address());
  honest.send(request());
  expect_event(*passive.channel, EventType::kConnectRequest);
  for (const RawSocket& socket : silent) EXPECT_TRUE(socket.is_open());
}

TEST_F(CrowdedListenerTest, TheOldestSilentConnectionMakesRoomForANewcomer) {
  constexpr std::size_t kSilent = limits::kHalfOpenConnections + 500;
  if (!raise_descriptor_limit(3 * kSilent)) GTEST_SKIP() << "too few descriptors";
  Host patient(patient_config());
  const Passive passive(patient);
  std::list<RawSocket> silent;
  while (silent.size() < kSilent) silent.push_back(RawSocket::connect(passive.address()));
  const RawSocket honest = RawSocket::connect(passive.address());
  honest.send(request());
  expect_event(*passive.channel, EventType::kConnectRequest);
  EXPECT_TRUE(silent.front().closed());
  EXPECT_TRUE(silent.back().is_open());
  EXPECT_LE(patient.device->count(ObjectKind::kConnection), limits::kHalfOpenConnections + 1U);
}

TEST_F(CrowdedListenerTest, NobodyIsResetWhileThereIsRoom) {
  if (!raise_descriptor_limit(4 * limits::kHalfOpenConnections)) {
    GTEST_SKIP() << "too few descriptors";
  }
  Host patient(patient_config());
  const Passive passive(patient);
  std::list<RawSocket> silent;
  while (silent.size() < limits::kHalfOpenConnections) {
    silent.push_back(RawSocket::connect(passive.address()));
  }
  EXPECT_TRUE(eventually([&] {
    return patient.device->count(ObjectKind::kConnection) == limits::kHalfOpenConnections;
  }));
  for (const RawSocket& socket : silent) EXPECT_TRUE(socket.is_open());
  // The listener goes while they are silent.
  passive.listener->close();
  for (const RawSocket& socket : silent) EXPECT_TRUE(socket.closed());
}

TEST_F(CrowdedListenerTest, SilentConnectionsDoNotKeepTheLastDescriptors) {
  constexpr std::size_t kSilent = 40;
  constexpr std::size_t kHonest = 400;
  constexpr rlim_t kDescriptors = 20;
  Host patient(patient_config());
  const Passive passive(patient);
  std::vector<RawSocket> clients;
  while (clients.size() < kSilent + kHonest) {
    clients.emplace_back(os::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  }
  const auto few = weft::test::DescriptorLimit::beyond(kDescriptors);
  const SocketAddress peer = passive.address();
  const auto call = [&](const RawSocket& client) {
    return ::connect(client.fd(), peer.get(), peer.size()) == 0;
  };
  for (std::size_t i = 0; i < kSilent; ++i) EXPECT_TRUE(call(clients[i]));
  // Who comes while all the others have just come is refused, and calls again.
  bool served = false;
  for (std::size_t i = kSilent; i < clients.size() && !served; ++i) {
    const Bytes bytes = request();
    if (call(clients[i])) ::send(clients[i].fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    served = passive.channel->next(kGlance).has_value();
  }
  EXPECT_TRUE(served);
}

TEST_F(CrowdedListenerTest, SilentConnectionsLeaveDescriptorsToTheProgramAndToOtherListeners) {
  constexpr std::size_t kSilent = 400;
  constexpr rlim_t kDescriptors = 256;
  Host patient(patient_config());
  const Passive first(patient, 10);
  const Passive second(patient, 10);
  std::vector<RawSocket> clients;
  while (clients.size() < kSilent + 2) {
    clients.emplace_back(os::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  }
  const auto few = weft::test::DescriptorLimit::beyond(kDescriptors);
  const auto call = [&](const RawSocket& client, const Passive& server) {
    const SocketAddress peer = server.address();
    EXPECT_EQ(::connect(client.fd(), peer.get(), peer.size()), 0);
  };
  for (std::size_t i = 0; i < kSilent; ++i) call(clients[i], first);
  const Passive* servers[] = {&first, &second};
  for (std::size_t i = 0; i < 2; ++i) {
    const RawSocket& honest = clients[kSilent + i];
    call(honest, *servers[i]);
    honest.send(request());
    const ConnectionEvent event = expect_event(*servers[i]->channel, EventType::kConnectRequest);
    ASSERT_NE(event.connection, nullptr);
    EXPECT_TRUE(os::Fd(dup(STDERR_FILENO)));
    EXPECT_TRUE(patient.device->create_channel());
    QpSet set(patient);
    EXPECT_TRUE(event.connection->accept(set.qp, plain_params()));
    EXPECT_EQ(honest.receive(reply().size()).size(), reply().size());
  }
}

// Some silent connections that have waited for so long that a newcomer may take their place.
class OldSilentConnections : public CrowdedListenerTest {
 protected:
  static constexpr std::size_t kSilent = 20;
  OldSilentConnections() {
    while (silent.size() < kSilent) silent.push_back(RawSocket::connect(passive.address()));
    EXPECT_TRUE(eventually([&] { return connections() == kSilent; }));
    constexpr timespec kTheirTime{0, 300'000'000};
    nanosleep(&kTheirTime, nullptr);
  }
  std::size_t connections() const { return patient.device->count(ObjectKind::kConnection); }

  Host patient{patient_config()};
  const Passive passive{patient};
  std::list<RawSocket> silent;
};

TEST_F(OldSilentConnections, AreNotResetWhenTheMachineLacksSomething) {
  for (const int error : {ENFILE, ENOBUFS, ENOMEM}) {
    const std::size_t before = connections();
    const auto fails = std::make_unique<AcceptFails>(error);
    silent.push_back(RawSocket::connect(passive.address()));
    EXPECT_TRUE(eventually([] { return g_failed_accepts >= 2; }));
    EXPECT_EQ(connections(), before);
  }
  EXPECT_TRUE(eventually([&] { return connections() == silent.size(); }));
  for (const RawSocket& socket : silent) EXPECT_TRUE(socket.is_open());
}

// Another thread of the program may be quicker to take the descriptor.
TEST_F(OldSilentConnections, AreResetOneByOneForADescriptor) {
  std::size_t reset_at_once = 0;
  {
    const AcceptFails fails(EMFILE);
    silent.push_back(RawSocket::connect(passive.address()));
    EXPECT_TRUE(eventually([] { return g_failed_accepts >= 2; }));
    reset_at_once = kSilent - connections();
  }
  EXPECT_GE(reset_at_once, 1U);
  EXPECT_LE(reset_at_once, kSilent / 2);
  EXPECT_TRUE(silent.front().closed());
}

// It is slow to speak, and a crowd from another host comes meanwhile.
TEST_F(CrowdedListenerTest, TheHostWithTheMostMakesRoom) {
  constexpr std::size_t kCrowd = 100;
  constexpr rlim_t kDescriptors = 60;  // the limit is a quarter of what it makes
  Host patient(patient_config());
  const Passive passive(patient);
  const SocketAddress peer = passive.address();
  std::vector<RawSocket> crowd;
  while (crowd.size() < kCrowd) {
    crowd.emplace_back(os::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  }
  const RawSocket honest(os::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  const SocketAddress other_host = *SocketAddress::parse("127.0.0.2:0");
  ASSERT_EQ(bind(honest.fd(), other_host.get(), other_host.size()), 0);
  const auto few = weft::test::DescriptorLimit::beyond(kDescriptors);
  ASSERT_LT(half_open_limit(), kCrowd);
  ASSERT_EQ(::connect(honest.fd(), peer.get(), peer.size()), 0);
  ASSERT_TRUE(eventually([&] { return patient.device->count(ObjectKind::kConnection) == 1; }));
  for (const RawSocket& one : crowd) ASSERT_EQ(::connect(one.fd(), peer.get(), peer.size()), 0);
  EXPECT_TRUE(crowd.front().closed());
  EXPECT_TRUE(eventually([&] { return !crowd[kCrowd - half_open_limit() - 1].is_open(); }));
  EXPECT_TRUE(honest.is_open());
  honest.send(request());
  EXPECT_NE(expect_event(*passive.channel, EventType::kConnectRequest).connection, nullptr);
}

}  // namespace
}  // namespace weft::verbs::test
