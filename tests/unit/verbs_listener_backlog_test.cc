// Requests that wait for room in the backlog of their listener.
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <future>
#include <list>
#include <span>
#include <vector>

#include "os/lock.h"
#include "support/descriptor_limit.h"
#include "verbs/connection.h"
#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

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

TEST(ListenerBacklog, RequestsBeyondTheBacklogWaitUntilOthersAreTaken) {
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

TEST(ListenerBacklog, RequestsBeyondTheBacklogMayBeGivenUpAndClosed) {
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

// The program is slow to take its Requests, while others go on asking.
TEST(ListenerBacklog, RequestsThatWaitForRoomInTheBacklogAreNotResetForNewcomers) {
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
TEST(ListenerBacklog, ARequestThatNobodyHasReadYetDoesNotMakeRoom) {
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
TEST(ListenerBacklog, TheHostWithTheMostPlacesMakesRoom) {
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
  for (const RawSocket& one : slow_speakers) EXPECT_TRUE(one.is_open());
}

}  // namespace
}  // namespace weft::verbs::test
