#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "verbs/random.h"
#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

TEST(Device, BadConfigurationIsRefused) {
  for (void (*spoil)(Config&) : std::initializer_list<void (*)(Config&)>{
           [](Config& c) { c.mpa_revision = 0; }, [](Config& c) { c.mpa_revision = 3; },
           [](Config& c) { c.ird = limits::kIrd + 1; }, [](Config& c) { c.ord = 0xffff; },
           [](Config& c) { c.reply_timeout = 0s; }, [](Config& c) { c.spin = -1s; }}) {
    Config config = quiet_config();
    spoil(config);
    const auto device = Device::open(config);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error(), Error::kInvalidArgument);
  }
}

TEST(Device, SaysWhatItIs) {
  const auto device = *Device::open(quiet_config());
  EXPECT_EQ(device->name(), "weft0");
  EXPECT_FALSE(version().empty());
  EXPECT_EQ(device->config().ird, limits::kIrd);
}

TEST(Device, CountsWhoUsesIt) {
  Host host;
  EXPECT_EQ(host.device->users(), 1U);
  {
    QpSet set(host);
    const auto channel = *host.device->create_channel();
    const auto connection = *host.device->create_connection(new_channel());
    const auto listener = *host.device->create_listener(new_channel());
    EXPECT_EQ(host.device->users(), 6U);
    EXPECT_EQ(host.pd->users(), 1U);
  }
  EXPECT_EQ(host.device->users(), 1U);
  EXPECT_EQ(host.pd->users(), 0U);
}

TEST(Device, NullChannelIsRefused) {
  Host host;
  EXPECT_EQ(host.device->create_connection(nullptr).error(), Error::kInvalidArgument);
  EXPECT_EQ(host.device->create_listener(nullptr).error(), Error::kInvalidArgument);
}

TEST(Device, NumbersAreUniqueAndNeverZero) {
  Host host;
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t number = host.device->take_number();
    EXPECT_NE(number, 0U);
    EXPECT_TRUE(seen.insert(number).second);
  }
  const std::uint32_t last = *seen.rbegin();
  host.device->free_number(last);
  EXPECT_NE(host.device->take_number(), last);
}

TEST(Device, CountersOfObjectsThatAreGoneStayInTheSum) {
  struct Source final : CounterSource {
    void add_counters(Counters& sum) const override { sum.tx_bytes += 5; }
  };
  Host host;
  const std::uint64_t before = host.device->counters().tx_bytes;
  Source source;
  host.device->add_source(&source);
  EXPECT_EQ(host.device->counters().tx_bytes, before + 5);
  host.device->remove_source(&source);
  EXPECT_EQ(host.device->counters().tx_bytes, before + 5);
  host.device->remove_source(&source);
  EXPECT_EQ(host.device->counters().tx_bytes, before + 5);
}

AsyncEvent event_of(AsyncEventType type) {
  AsyncEvent event;
  event.type = type;
  return event;
}

TEST(AsyncEvents, ComeInOrderAndWakeTheirDescriptor) {
  Host host;
  host.device->raise(event_of(AsyncEventType::kCqError));
  host.device->raise(event_of(AsyncEventType::kQpFatal));
  EXPECT_EQ(host.device->next_async_event(0ns)->type, AsyncEventType::kCqError);
  EXPECT_EQ(host.device->next_async_event(0ns)->type, AsyncEventType::kQpFatal);
  EXPECT_EQ(host.device->next_async_event(0ns).error(), Error::kTimedOut);
}

TEST(AsyncEvents, QueueIsBoundedAndTheOldestStay) {
  Host host;
  host.device->raise(event_of(AsyncEventType::kCqError));
  for (std::uint32_t i = 0; i < limits::kAsyncEvents + 10; ++i) {
    host.device->raise(event_of(AsyncEventType::kSqDrained));
  }
  EXPECT_EQ(host.device->next_async_event(0ns)->type, AsyncEventType::kCqError);
  std::uint32_t count = 1;
  while (host.device->next_async_event(0ns)) ++count;
  EXPECT_EQ(count, limits::kAsyncEvents);
}

TEST(AsyncEvents, SinkGetsThoseQueuedFirst) {
  Host host;
  host.device->raise(event_of(AsyncEventType::kCqError));
  std::vector<AsyncEventType> seen;
  host.device->set_async_sink([&](const AsyncEvent& e) { seen.push_back(e.type); });
  host.device->raise(event_of(AsyncEventType::kQpFatal));
  EXPECT_EQ(seen,
            (std::vector<AsyncEventType>{AsyncEventType::kCqError, AsyncEventType::kQpFatal}));
  host.device->set_async_sink(nullptr);
  host.device->raise(event_of(AsyncEventType::kSqDrained));
  EXPECT_EQ(host.device->next_async_event(0ns)->type, AsyncEventType::kSqDrained);
}

TEST(Names, EveryEnumeratorHasItsOwn) {
  std::set<std::string_view> names;
  std::size_t count = 0;
  const auto note = [&](std::string_view name) {
    EXPECT_EQ(name.find("unknown"), std::string_view::npos) << name;
    names.insert(name);
    ++count;
  };
  for (int i = 0; i <= static_cast<int>(WcStatus::kGeneral); ++i) {
    note(describe(static_cast<WcStatus>(i)));
  }
  for (int i = 0; i <= static_cast<int>(WcOp::kRecvWithImm); ++i) {
    note(describe(static_cast<WcOp>(i)));
  }
  for (int i = 0; i <= static_cast<int>(QpState::kError); ++i) {
    note(describe(static_cast<QpState>(i)));
  }
  for (int i = 0; i <= static_cast<int>(AsyncEventType::kDeviceFatal); ++i) {
    note(describe(static_cast<AsyncEventType>(i)));
  }
  for (int i = 0; i <= static_cast<int>(EventType::kDisconnected); ++i) {
    note(describe(static_cast<EventType>(i)));
  }
  EXPECT_EQ(names.size(), count);
}

TEST(Pools, GiveBackTheLastBatchFirstAndCleared) {
  BatchPool pool(1U << 20U);
  proto::TxBatch* a = pool.acquire();
  ASSERT_NE(a, nullptr);
  a->bytes = 5;
  pool.release(a);
  proto::TxBatch* b = pool.acquire();
  EXPECT_EQ(b, a);
  EXPECT_EQ(b->bytes, 0U);
  pool.release(b);
}

TEST(Pools, GiveNoMoreBatchesThanThereMayBe) {
  BatchPool pool(3 * sizeof(proto::TxBatch) + 1);
  ASSERT_EQ(pool.limit(), 3U);
  for (int round = 0; round < 2; ++round) {
    proto::TxBatch* batches[3];
    for (auto& batch : batches) ASSERT_NE(batch = pool.acquire(), nullptr);
    EXPECT_EQ(pool.acquire(), nullptr);
    for (auto* batch : batches) pool.release(batch);
  }
}

TEST(Pools, CarriesHoldWhatWasAskedFor) {
  CarryBuffers pool;
  for (const std::size_t size : {std::size_t{1}, std::size_t{2048}, std::size_t{2049},
                                 std::size_t{20000}, proto::kCarryBytesMax}) {
    std::uint8_t* carry = pool.acquire(size);
    ASSERT_NE(carry, nullptr);
    std::memset(carry, 0x5a, size);
    pool.release(carry, size);
  }
}

TEST(Random, ChildOfForkDoesNotRepeatItsParent) {
  static_cast<void>(random_u32());
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::uint64_t number = random_u64();
    _exit(write(fds[1], &number, sizeof number) == sizeof number ? 0 : 1);
  }
  std::uint64_t theirs = 0;
  ASSERT_EQ(read(fds[0], &theirs, sizeof theirs), static_cast<ssize_t>(sizeof theirs));
  EXPECT_NE(theirs, random_u64());
  waitpid(child, nullptr, 0);
  close(fds[0]);
  close(fds[1]);
}

// Another thread of the parent may have had a lock of the device at that moment.
TEST(Fork, ChildThatSaysItSleepsWaitsForNobody) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no threads in a child";
#endif
  constexpr int kChildren = 20;
  constexpr unsigned kPatienceS = 10;
  Host host;
  const QpSet set(host);
  std::atomic<bool> over = false;
  std::thread other([&] {
    while (!over) host.device->caller_sleeps();
  });
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kPatienceS);
      host.device->caller_sleeps();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    if (status != 0) break;
  }
  over = true;
  other.join();
}

// Every call on the parent's objects is refused in the child, where a new device works.
TEST(Fork, ChildIsRefusedByTheParentsObjectsAndMayOpenItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no threads in a child";
#endif
  auto host = std::make_unique<Host>();
  Bytes memory(100);
  auto mr = *host->pd->register_memory(memory.data(), memory.size(), Access::kLocalWrite);
  auto channel = new_channel();
  auto connection = *host->device->create_connection(channel);
  auto passive = std::make_unique<Passive>(*host);
  auto set = std::make_unique<QpSet>(*host);
  const SocketAddress address = passive->address();

  const pid_t child = fork();
  if (child == 0) {
    const auto refused = [](const auto& result) {
      return !result && result.error() == Error::kBadState;
    };
    bool ok = refused(host->device->create_pd()) && refused(host->device->create_cq({})) &&
              refused(host->device->create_channel()) &&
              refused(host->device->create_connection(channel)) &&
              refused(host->pd->register_memory(memory.data(), 1, Access::kNone)) &&
              refused(mr->deregister()) && refused(channel->next(0ns)) &&
              refused(connection->connect(set->qp, address, {})) &&
              refused(passive->listener->listen(1)) && refused(host->device->next_async_event(0ns));
    connection.reset();
    passive.reset();
    set.reset();
    mr.reset();
    channel.reset();
    host.reset();
    Host mine;
    Passive here(mine);
    const RawSocket client = RawSocket::connect(here.address());
    client.send(request());
    ok = ok && here.channel->next(kPatience).has_value();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);

  // The parent has lost nothing.
  const RawSocket client = RawSocket::connect(address);
  client.send(request());
  expect_event(*passive->channel, EventType::kConnectRequest);
  EXPECT_TRUE(mr->deregister());
}

}  // namespace
}  // namespace weft::verbs::test
