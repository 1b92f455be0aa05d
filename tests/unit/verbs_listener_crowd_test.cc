// The limits of what peers can take of a listener before the program knows them.
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/limits.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <future>
#include <list>

#include "os/lock.h"
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

// No silent client is closed by a clock.
Config patient_config() {
  Config config = quiet_config();
  config.request_timeout = 10min;
  return config;
}

bool is_open(const RawSocket& socket) {
  std::uint8_t octet = 0;
  return recv(socket.fd(), &octet, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
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
  for (const RawSocket& socket : silent) EXPECT_TRUE(is_open(socket));
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
  EXPECT_TRUE(is_open(silent.back()));
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
  for (const RawSocket& socket : silent) EXPECT_TRUE(is_open(socket));
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
  for (const RawSocket& socket : silent) EXPECT_TRUE(is_open(socket));
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

// Keeps what it is given, like the channel of rdma_cm.
class KeptEvents final : public EventChannel {
 public:
  int fd() const override { return -1; }
  Result<ConnectionEvent> next(std::optional<std::chrono::nanoseconds> /*timeout*/) override {
    return fail(Error::kTimedOut);
  }
  void post(ConnectionEvent&& event) override {
    const os::MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    most_ = std::max(most_, events_.size());
  }
  std::size_t size() const {
    const os::MutexLock lock(mutex_);
    return events_.size();
  }
  std::size_t most() const {
    const os::MutexLock lock(mutex_);
    return most_;
  }
  ConnectionEvent take() {
    const os::MutexLock lock(mutex_);
    ConnectionEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  mutable os::Mutex mutex_;
  std::deque<ConnectionEvent> events_ WEFT_GUARDED_BY(mutex_);
  std::size_t most_ WEFT_GUARDED_BY(mutex_) = 0;
};

// The engine has served every descriptor that was ready, if there are no more of them than this.
void let_the_engine_serve(DeviceImpl& device, std::size_t descriptors) {
  for (std::size_t i = 0; i < descriptors; ++i) {
    std::promise<void> passed;
    ASSERT_TRUE(device.engine().post([&] { passed.set_value(); }));
    passed.get_future().wait();
  }
}

TEST_F(CrowdedListenerTest, RequestsBeyondTheBacklogWaitUntilOthersAreTaken) {
  constexpr std::size_t kBacklog = 4;
  constexpr std::size_t kClients = 200;
  if (!raise_descriptor_limit(5 * kClients)) GTEST_SKIP() << "too few descriptors";
  Host patient(patient_config());
  const auto channel = std::make_shared<KeptEvents>();
  const auto listener = *patient.device->create_listener(channel);
  ASSERT_TRUE(listener->bind(*SocketAddress::parse("127.0.0.1:0")));
  ASSERT_TRUE(listener->listen(kBacklog));
  std::list<RawSocket> clients;
  while (clients.size() < kClients) {
    clients.push_back(RawSocket::connect(listener->local_address()));
  }
  ASSERT_TRUE(
      eventually([&] { return patient.device->count(ObjectKind::kConnection) == kClients; }));
  for (const RawSocket& client : clients) client.send(request());
  let_the_engine_serve(*patient.device, kClients);
  EXPECT_EQ(channel->size(), kBacklog);

  QpSet set(patient);
  for (std::size_t i = 0; i < kClients; ++i) {
    ASSERT_TRUE(eventually([&] { return channel->size() != 0; }));
    const ConnectionEvent event = channel->take();
    ASSERT_NE(event.connection, nullptr);
    event.connection->request_taken();
    if (i + 1 < kClients) {
      EXPECT_TRUE(event.connection->reject({}));
    } else {
      EXPECT_TRUE(event.connection->accept(set.qp, plain_params()));
    }
  }
  for (const RawSocket& client : clients) {
    EXPECT_EQ(client.receive(reply().size()).size(), reply().size());
  }
  EXPECT_LE(channel->most(), kBacklog);
}

TEST_F(CrowdedListenerTest, RequestsBeyondTheBacklogMayBeGivenUpAndClosed) {
  Host patient(patient_config());
  const auto channel = std::make_shared<KeptEvents>();
  const auto listener = *patient.device->create_listener(channel);
  ASSERT_TRUE(listener->bind(*SocketAddress::parse("127.0.0.1:0")));
  ASSERT_TRUE(listener->listen(1));
  std::vector<RawSocket> clients;
  while (clients.size() < 5) clients.push_back(RawSocket::connect(listener->local_address()));
  const auto connections = [&] { return patient.device->count(ObjectKind::kConnection); };
  ASSERT_TRUE(eventually([&] { return connections() == clients.size(); }));
  clients[0].send(request());
  ASSERT_TRUE(eventually([&] { return channel->size() == 1; }));
  for (std::size_t i = 1; i < clients.size(); ++i) clients[i].send(request());
  let_the_engine_serve(*patient.device, clients.size());
  clients[1].close();
  EXPECT_TRUE(eventually([&] { return connections() == 4; }));
  channel->take().connection->request_taken();
  EXPECT_TRUE(eventually([&] { return channel->size() == 1; }));
  const ConnectionEvent next = channel->take();
  EXPECT_TRUE(next.connection->reject({}));
  EXPECT_EQ(clients[2].receive(reply().size()).size(), reply().size());
  ASSERT_TRUE(eventually([&] { return channel->size() == 1; }));
  listener->close();
  EXPECT_TRUE(clients[4].closed());
  EXPECT_EQ(channel->size(), 1U);
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
  EXPECT_TRUE(eventually([&] { return !is_open(crowd[kCrowd - half_open_limit() - 1]); }));
  EXPECT_TRUE(is_open(honest));
  honest.send(request());
  EXPECT_NE(expect_event(*passive.channel, EventType::kConnectRequest).connection, nullptr);
}

// The program is slow to take its Requests, while others go on asking.
TEST_F(CrowdedListenerTest, RequestsThatWaitForRoomInTheBacklogAreNotResetForNewcomers) {
  constexpr std::size_t kBacklog = 4;
  constexpr std::size_t kClients = 60;
  constexpr rlim_t kDescriptors = 60;  // the limit is a quarter of what it makes
  Host patient(patient_config());
  const auto channel = std::make_shared<KeptEvents>();
  const auto listener = *patient.device->create_listener(channel);
  ASSERT_TRUE(listener->bind(*SocketAddress::parse("127.0.0.1:0")));
  ASSERT_TRUE(listener->listen(kBacklog));
  const SocketAddress peer = listener->local_address();
  std::vector<RawSocket> clients;
  while (clients.size() < kClients) {
    clients.emplace_back(os::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  }
  const auto few = weft::test::DescriptorLimit::beyond(kDescriptors);
  const auto call = [&](const RawSocket& client) {
    ASSERT_EQ(::connect(client.fd(), peer.get(), peer.size()), 0);
  };
  const std::size_t limit = half_open_limit();
  ASSERT_LT(limit, kClients);
  const auto first = std::span(clients).first(limit);
  for (const RawSocket& client : first) call(client);
  ASSERT_TRUE(
      eventually([&] { return patient.device->count(ObjectKind::kConnection) == first.size(); }));
  for (const RawSocket& client : first) client.send(request());
  let_the_engine_serve(*patient.device, limit);
  for (const RawSocket& client : std::span(clients).subspan(limit)) {
    call(client);
    client.send(request());
  }
  constexpr timespec kTheirTime{0, 300'000'000};
  nanosleep(&kTheirTime, nullptr);
  EXPECT_EQ(channel->size(), kBacklog);

  for (std::size_t i = 0; i < kClients; ++i) {
    ASSERT_TRUE(eventually([&] { return channel->size() != 0; }));
    const ConnectionEvent event = channel->take();
    event.connection->request_taken();
    EXPECT_TRUE(event.connection->reject({}));
  }
  for (const RawSocket& client : clients) {
    EXPECT_EQ(client.receive(reply().size()).size(), reply().size());
  }
}

// A listener whose channel nobody reads, so that one Request fills its backlog.
struct SlowListener {
  explicit SlowListener(const Host& host) : listener(*host.device->create_listener(channel)) {
    EXPECT_TRUE(listener->bind(*SocketAddress::parse("127.0.0.1:0")));
    EXPECT_TRUE(listener->listen(1));
  }
  // The program takes the Request that waits and rejects it.
  void reject_one() const {
    ASSERT_TRUE(eventually([&] { return channel->size() != 0; }));
    const ConnectionEvent event = channel->take();
    event.connection->request_taken();
    EXPECT_TRUE(event.connection->reject({}));
  }
  const std::shared_ptr<KeptEvents> channel = std::make_shared<KeptEvents>();
  const std::shared_ptr<Listener> listener;
};

// It is about to make room for somebody when its Request is found, which has to wait in its turn.
TEST_F(CrowdedListenerTest, ARequestThatNobodyHasReadYetDoesNotMakeRoom) {
  Host patient(patient_config());
  const SlowListener slow(patient);
  const RawSocket first = RawSocket::connect(slow.listener->local_address());
  const RawSocket second = RawSocket::connect(slow.listener->local_address());
  ASSERT_TRUE(eventually([&] { return patient.device->count(ObjectKind::kConnection) == 2; }));
  first.send(request());
  ASSERT_TRUE(eventually([&] { return slow.channel->size() == 1; }));
  std::promise<void> passed;
  ASSERT_TRUE(patient.device->engine().post([&] {
    second.send(request());
    const auto gives_way = patient.device->half_open().gives_way(true, false);
    EXPECT_NE(gives_way, nullptr);
    if (gives_way != nullptr) gives_way->give_way();
    passed.set_value();
  }));
  passed.get_future().wait();
  slow.reject_one();
  slow.reject_one();
  EXPECT_EQ(second.receive(reply().size()).size(), reply().size());
}

// Also by those of its Requests that wait for room in the backlog of another listener.
TEST_F(CrowdedListenerTest, TheHostWithTheMostPlacesMakesRoom) {
  constexpr rlim_t kDescriptors = 60;  // the limit is a quarter of what it makes
  Host patient(patient_config());
  const SlowListener slow(patient);
  const Passive passive(patient);
  const auto call_from = [](const char* caller_host, const SocketAddress& peer) {
    RawSocket caller(os::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    const SocketAddress from = *SocketAddress::parse(caller_host);
    EXPECT_EQ(bind(caller.fd(), from.get(), from.size()), 0);
    EXPECT_EQ(::connect(caller.fd(), peer.get(), peer.size()), 0);
    return caller;
  };
  const auto few = weft::test::DescriptorLimit::beyond(kDescriptors);
  const std::size_t limit = half_open_limit();
  std::list<RawSocket> slow_speakers;
  while (slow_speakers.size() < 2) {
    slow_speakers.push_back(call_from("127.0.0.2:0", passive.address()));
  }
  std::list<RawSocket> crowd;
  while (crowd.size() < limit - 3) {
    crowd.push_back(call_from("127.0.0.3:0", slow.listener->local_address()));
  }
  const RawSocket silent = call_from("127.0.0.3:0", passive.address());
  const auto connections = [&] { return patient.device->count(ObjectKind::kConnection); };
  ASSERT_TRUE(eventually([&] { return connections() == limit; }));
  for (const RawSocket& one : crowd) one.send(request());
  ASSERT_TRUE(eventually([&] { return slow.channel->size() == 1; }));
  let_the_engine_serve(*patient.device, limit);
  // One Request has been told, so that there is a place.
  const RawSocket other = call_from("127.0.0.4:0", passive.address());
  ASSERT_TRUE(eventually([&] { return connections() == limit + 1; }));
  const RawSocket newcomer = call_from("127.0.0.4:0", passive.address());
  EXPECT_TRUE(silent.closed());
  for (const RawSocket& one : slow_speakers) EXPECT_TRUE(is_open(one));
}

}  // namespace
}  // namespace weft::verbs::test
