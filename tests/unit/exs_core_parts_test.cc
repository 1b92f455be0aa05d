// Parts of the engine of extended sockets, each by itself: its devices, rdma_cm's channel, calls
// that wait for readiness, and the operations of a socket.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "exs/core/exs_cm_channel.h"
#include "exs/core/exs_device_table.h"
#include "exs/core/exs_engine.h"
#include "exs/core/exs_operations.h"
#include "exs/core/exs_polls.h"
#include "exs_fake_verbs.h"

namespace weft::exs {
namespace {

using test::FakeVerbs;

// ---- devices

TEST(DeviceTable, HasOneDeviceForAContextHoweverOftenItIsAsked) {
  FakeVerbs verbs;
  DeviceTable table;
  EXPECT_TRUE(table.empty());
  const auto one = table.of(verbs.context(0));
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(table.of(verbs.context(0)), one);
  EXPECT_EQ(verbs.pds, 1);
  const auto other = table.of(verbs.context(1));
  EXPECT_NE(other, one);
  EXPECT_EQ(table.all(), (std::vector{one, other}));
  EXPECT_FALSE(table.empty());
}

TEST(DeviceTable, DeviceThatCannotBeMadeIsNotInItAndLeavesNothing) {
  FakeVerbs verbs;
  DeviceTable table;
  for (int FakeVerbs::*const refusal :
       {&FakeVerbs::refuse_query, &FakeVerbs::refuse_pd, &FakeVerbs::refuse_channel}) {
    verbs.*refusal = ENOMEM;
    errno = 0;
    EXPECT_EQ(table.of(verbs.context()), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_TRUE(table.empty());
    EXPECT_EQ(verbs.pds, 0);
    EXPECT_EQ(verbs.channels, 0);
    verbs.*refusal = 0;
  }
  EXPECT_NE(table.of(verbs.context()), nullptr);
}

TEST(DeviceTable, VisitsTheShardsOfEachDevice) {
  FakeVerbs verbs;
  {
    DeviceTable table;
    const auto shards = [&table] {
      std::vector<CqShard*> out;
      table.each_shard([&out](CqShard& one) { out.push_back(&one); });
      return out;
    };
    CqShard* first = table.of(verbs.context(0))->take_shard(1000);
    EXPECT_EQ(shards(), std::vector{first});
    // The rest of the first has no room for this.
    CqShard* second = table.of(verbs.context(0))->take_shard(100);
    CqShard* third = table.of(verbs.context(1))->take_shard(1);
    EXPECT_EQ(shards(), (std::vector{first, second, third}));
    EXPECT_EQ(table.of(verbs.context(0))->take_shard(24), first);
    verbs.refuse_cq = ENOMEM;
    EXPECT_EQ(table.of(verbs.context(1))->take_shard(2000), nullptr);
    EXPECT_EQ(errno, ENOMEM);
  }
  EXPECT_EQ(verbs.cqs, 0);
  EXPECT_EQ(verbs.channels, 0);
  EXPECT_EQ(verbs.pds, 0);
}

// ---- rdma_cm's channel

TEST(CmChannel, HasNoEventsWhereThereIsNoDevice) {
  FakeVerbs verbs;
  verbs.refuse_cm = ENODEV;
  CmChannel channel;
  CmEvent event;
  EXPECT_FALSE(channel.next(event));
  channel.open();
  EXPECT_EQ(channel.get(), nullptr);
  EXPECT_FALSE(channel.next(event));
}

TEST(CmChannel, EventIsCopiedAndAcknowledgedBeforeItIsDealtWith) {
  FakeVerbs verbs;
  CmChannel channel;
  channel.open();
  ASSERT_NE(channel.get(), nullptr);
  char data[] = "hello";
  rdma_cm_event came{};
  came.event = RDMA_CM_EVENT_REJECTED;
  came.status = 28;
  came.id = verbs.id();
  came.param.conn.private_data = data;
  came.param.conn.private_data_len = 5;
  came.param.conn.responder_resources = 3;
  came.param.conn.initiator_depth = 4;
  verbs.events.push_back(came);
  CmEvent event;
  ASSERT_TRUE(channel.next(event));
  EXPECT_EQ(verbs.acknowledged, 1);
  std::memset(data, 0, sizeof data);
  EXPECT_EQ(event.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event.status, 28);
  EXPECT_EQ(event.id, verbs.id());
  EXPECT_EQ(event.private_data, (std::vector<std::uint8_t>{'h', 'e', 'l', 'l', 'o'}));
  EXPECT_EQ(event.responder_resources, 3);
  EXPECT_EQ(event.initiator_depth, 4);
  EXPECT_FALSE(channel.next(event));
  EXPECT_EQ(verbs.acknowledged, 1);
}

TEST(CmChannel, EventWithoutPrivateDataHasNone) {
  FakeVerbs verbs;
  CmChannel channel;
  channel.open();
  verbs.events.push_back({});
  CmEvent event;
  event.private_data = {1, 2, 3};
  ASSERT_TRUE(channel.next(event));
  EXPECT_TRUE(event.private_data.empty());
}

TEST(CmChannel, ThatIsForgottenTellsNothing) {
  FakeVerbs verbs;
  CmChannel channel;
  channel.open();
  verbs.events.push_back({});
  channel.forget();
  CmEvent event;
  EXPECT_FALSE(channel.next(event));
  EXPECT_EQ(verbs.events.size(), 1U);
}

// ---- time limits

class Limits : public ::testing::Test {
 protected:
  void SetUp() override { set(socket_->send_limit, std::chrono::hours(1)); }
  void TearDown() override {
    socket_->finish_all(socket_->ops.sends, 0);
    socket_->finish_all(socket_->ops.receives, 0);
    for (TimeLimit* limit : {&socket_->send_limit, &socket_->receive_limit}) {
      if (limit->queue != nullptr) limit->queue->detach();
      *limit = TimeLimit{};
    }
  }
  void set(TimeLimit& limit, Clock::duration after) {
    limit.after = after;
    limit.queue = queue_;
    queue_->attach();
  }
  // Times that are scheduled for this socket.
  [[nodiscard]] std::size_t timers() const { return Engine::instance().timers() - before_; }

  const std::size_t before_ = Engine::instance().timers();
  std::shared_ptr<EventQueue> queue_ = std::make_shared<EventQueue>(16);
  std::shared_ptr<Socket> socket_ = std::make_shared<Socket>(-1, AF_INET, Kind::kStream);
};

// A provider that waits for a peer has a look each millisecond.
TEST_F(Limits, LooksAtOtherTimesScheduleNoMore) {
  socket_->add(socket_->ops.sends);
  EXPECT_EQ(timers(), 1U);
  for (int i = 0; i < 100; ++i) socket_->check_limits();
  EXPECT_EQ(timers(), 1U);
}

TEST_F(Limits, ShortTimesInFrontOfALongOneLeaveOneOfThem) {
  socket_->add(socket_->ops.sends);
  set(socket_->receive_limit, std::chrono::nanoseconds(1));
  for (int i = 0; i < 100; ++i) {
    socket_->add(socket_->ops.receives);
    socket_->finish_all(socket_->ops.receives, 0);
    socket_->check_limits();
  }
  EXPECT_LE(timers(), 2U);
}

// ---- calls of exs_poll

// A socket that says what it is told to.
struct Said : Provider {
  explicit Said(const bool& what) : readable_now(what) {}
  int bind(const Address& /*address*/) override { return 0; }
  int listen(int /*backlog*/) override { return 0; }
  int connect(const Address& /*address*/) override { return 0; }
  int local(Address& /*out*/) const override { return 0; }
  int peer(Address& /*out*/) const override { return 0; }
  void sends_posted() override {}
  void receives_posted() override {}
  void shut_down() override {}
  void close() override {}
  void cancel() override {}
  void fail(int /*error*/) override {}
  [[nodiscard]] bool readable() const override { return readable_now; }
  [[nodiscard]] bool writable() const override { return false; }
  [[nodiscard]] bool is_rdma() const override { return false; }
  const bool& readable_now;
};

class Polls : public ::testing::Test {
 protected:
  void SetUp() override {
    socket_->provider = std::make_unique<Said>(readable_);
    socket_->advance(StateEvent::kConnects);
    socket_->advance(StateEvent::kConnected);
    queue_->attach();
    wait_->vec = &entry_;
    wait_->count = 1;
    wait_->ahandle = 42;
    wait_->queue = queue_;
    wait_->sockets = {socket_};
    socket_->watchers.push_back(wait_);
  }
  void TearDown() override {
    socket_->watchers.clear();  // they hold each other
    if (queue_->busy()) queue_->detach();
  }

  bool readable_ = false;
  std::shared_ptr<Socket> socket_ = std::make_shared<Socket>(-1, AF_INET, Kind::kStream);
  std::shared_ptr<EventQueue> queue_ = std::make_shared<EventQueue>(4);
  exs_pollfd_t entry_{-1, EXS_POLLIN, 0};
  std::shared_ptr<PollWait> wait_ = std::make_shared<PollWait>();
  PollWaits polls_;
};

TEST_F(Polls, WaitThatFindsNothingReadyWaitsOn) {
  polls_.kick(wait_);
  EXPECT_TRUE(polls_.any());
  polls_.run();
  EXPECT_FALSE(polls_.any());
  EXPECT_EQ(queue_->waiting(), 0U);
  EXPECT_EQ(socket_->watchers.size(), 1U);
}

TEST_F(Polls, WaitHasItsEventOnceWhenASocketIsReady) {
  readable_ = true;
  polls_.kick(wait_);
  polls_.kick(wait_);
  polls_.run();
  polls_.kick(wait_);
  polls_.run();
  exs_event_t events[2];
  ASSERT_EQ(queue_->pop(events, 2), 1U);
  EXPECT_EQ(events[0].type, EXS_EVT_POLL);
  EXPECT_EQ(events[0].ahandle, wait_->ahandle);
  EXPECT_EQ(events[0].u.poll.ready, 1);
  EXPECT_EQ(entry_.revents, EXS_POLLIN);
  EXPECT_TRUE(socket_->watchers.empty());
  EXPECT_FALSE(queue_->busy());
}

TEST_F(Polls, WaitThatWasNotKickedIsNotEvaluated) {
  readable_ = true;
  polls_.run();
  EXPECT_EQ(queue_->waiting(), 0U);
  polls_.kick(wait_);
  polls_.run();
  EXPECT_EQ(queue_->waiting(), 1U);
}

// ---- the operations of a socket

TEST(Operations, AreInTheOrderOfPosting) {
  Operations ops;
  EXPECT_TRUE(ops.none());
  ops.add(ops.sends).ahandle = 1;
  ops.add(ops.sends).ahandle = 2;
  EXPECT_FALSE(ops.none());
  EXPECT_EQ(ops.sends.front().ahandle, 1U);
  EXPECT_EQ(ops.sends.back().ahandle, 2U);
}

TEST(Operations, PlaceOfADroppedOneServesTheNextWithNothingOfIt) {
  Operations ops;
  Operation& first = ops.add(ops.receives);
  first.total = 99;
  first.error = EIO;
  first.pieces.resize(3);
  ops.drop(ops.receives, ops.receives.begin());
  EXPECT_TRUE(ops.none());
  Operation& next = ops.add(ops.sends);
  EXPECT_EQ(&next, &first);
  EXPECT_EQ(next.total, 0U);
  EXPECT_EQ(next.error, 0);
  EXPECT_TRUE(next.pieces.empty());
}

TEST(Operations, AnyListKeepsThemFromBeingNone) {
  for (OperationList Operations::*const list :
       {&Operations::sends, &Operations::receives, &Operations::accepts, &Operations::one_sided,
        &Operations::connecting, &Operations::shutdown, &Operations::closing}) {
    Operations ops;
    ops.add(ops.*list);
    EXPECT_FALSE(ops.none());
    ops.drop(ops.*list, (ops.*list).begin());
    EXPECT_TRUE(ops.none());
  }
}

TEST(Operations, ThatThereIsOneOfAreNotTwo) {
  Operations ops;
  ops.add(ops.connecting);
  EXPECT_DEATH(ops.add(ops.connecting), "connecting");
}

}  // namespace
}  // namespace weft::exs
