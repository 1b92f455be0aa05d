// Completion queues, their channels, and shared receive queues.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "support/weft_side.h"

namespace weft::test {
namespace {

bool readable(int fd, milliseconds patience) {
  pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&p, 1, static_cast<int>(patience.count())) == 1;
}

TEST(CompletionChannel, SleeperInPollIsWokenByTheNextCompletion) {
  Pair pair(plain_config(), {}, with_channel());
  CompletionQueue& cq = *pair.b.recv_cq;
  for (std::uint64_t id = 1; id <= 5; ++id) {
    post_recv(*pair.b.qp, id);
    must(cq.arm(CompletionQueue::Arm::kNext), "arm");
    EXPECT_FALSE(readable(pair.b.channel->fd(), milliseconds(10)));
    post(*pair.a.qp, wr_send(id));
    ASSERT_TRUE(readable(pair.b.channel->fd(), kPatience));
    EXPECT_EQ(must(pair.b.channel->wait(milliseconds(0)), "take the event"), &cq);
    cq.ack_events(1);
    take_success(cq, id);
  }
  cq.wait_for_acks();
}

// Takes the completion of receive `id`, asleep until it comes.
void sleep_for(Endpoint& side, std::uint64_t id) {
  for (;;) {
    must(side.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
    WorkCompletion wc;
    if (side.recv_cq->poll(std::span(&wc, 1)) == 1) {
      if (wc.wr_id != id || wc.status != WcStatus::kSuccess) throw Failure(to_string(wc));
      return;
    }
    must(side.channel->wait(kPatience), "wait");
    side.recv_cq->ack_events(1);
  }
}

TEST(CompletionChannel, SleeperInWaitIsWokenByTheNextCompletion) {
  constexpr std::uint64_t kRounds = 50;
  Pair pair(plain_config(), with_channel(), with_channel());
  post_empty_recvs(*pair.a.qp, 1, kRounds);
  post_empty_recvs(*pair.b.qp, 1, kRounds);
  std::thread echo([&] {
    for (std::uint64_t id = 1; id <= kRounds; ++id) {
      sleep_for(pair.b, id);
      post(*pair.b.qp, wr_send(id, SendFlags::kNone));
    }
  });
  for (std::uint64_t id = 1; id <= kRounds; ++id) {
    if (id % 10 == 0) std::this_thread::sleep_for(milliseconds(5));  // let both fall asleep
    post(*pair.a.qp, wr_send(id, SendFlags::kNone));
    sleep_for(pair.a, id);
  }
  echo.join();
}

TEST(CompletionChannel, WaitTimesOutAndHonorsNonBlocking) {
  Pair pair(plain_config(), with_channel());
  EXPECT_EQ(pair.a.channel->wait(milliseconds(5)).error(), Error::kTimedOut);
  const int fd = pair.a.channel->fd();
  ASSERT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
  EXPECT_EQ(pair.a.channel->wait(std::nullopt).error(), Error::kTimedOut);
}

// Whether the descriptor blocks is not asked at each wait.
TEST(CompletionChannel, ThatIsMadeNonBlockingBehindAWaitThatSleptBlocksNobody) {
  constexpr std::uint64_t kRounds = 10;
  for (const ProgressMode mode : {ProgressMode::kAuto, ProgressMode::kThread}) {
    Config config = plain_config();
    config.progress = mode;
    Pair pair(config, {}, with_channel());
    post_empty_recvs(*pair.b.qp, 1, kRounds);
    const int fd = pair.b.channel->fd();
    const int blocking = ::fcntl(fd, F_GETFL);
    for (std::uint64_t id = 1; id <= kRounds; ++id) {
      must(pair.b.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
      std::thread peer([&] { post(*pair.a.qp, wr_send(id)); });
      EXPECT_TRUE(pair.b.channel->wait(std::nullopt));
      peer.join();
      pair.b.recv_cq->ack_events(1);
      (void)take(*pair.b.recv_cq);
      ASSERT_EQ(::fcntl(fd, F_SETFL, blocking | O_NONBLOCK), 0);
      for (int times = 0; times < 2; ++times) {
        const auto none = pair.b.channel->wait(std::nullopt);
        ASSERT_FALSE(none);
        EXPECT_EQ(none.error(), Error::kTimedOut);
      }
      ASSERT_EQ(::fcntl(fd, F_SETFL, blocking), 0);
    }
  }
}

TEST(CompletionChannel, OneArmGivesOneEvent) {
  Pair pair(plain_config(), {}, with_channel());
  post_empty_recvs(*pair.b.qp, 1, 10);
  must(pair.b.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
  for (std::uint64_t id = 1; id <= 10; ++id) post(*pair.a.qp, wr_send(id));
  ASSERT_TRUE(pair.b.channel->wait(kPatience));
  pair.b.recv_cq->ack_events(1);
  (void)take_n(*pair.b.recv_cq, 10);
  EXPECT_FALSE(pair.b.channel->wait(milliseconds(20)));
}

TEST(CompletionChannel, SolicitedArmIgnoresPlainSendsAndWakesOnFailures) {
  Pair pair(plain_config(), {}, with_channel());
  post_empty_recvs(*pair.b.qp, 1, 4);
  must(pair.b.recv_cq->arm(CompletionQueue::Arm::kSolicited), "arm");
  post(*pair.a.qp, wr_send(1));
  EXPECT_FALSE(pair.b.channel->wait(kGlance));
  post(*pair.a.qp, wr_send(2, SendFlags::kSignaled | SendFlags::kSolicited));
  ASSERT_TRUE(pair.b.channel->wait(kPatience));
  pair.b.recv_cq->ack_events(1);
  must(pair.b.recv_cq->arm(CompletionQueue::Arm::kSolicited), "arm");
  pair.a.connection->abort();
  ASSERT_TRUE(pair.b.channel->wait(kPatience));
  pair.b.recv_cq->ack_events(1);
}

// A program that has no send outstanding and watches memory for the peer's Write sleeps on its send
// CQ all the same, as perftest does when it waits for credits.
TEST(CompletionChannel, APeersWriteWakesWhoHasNothingOutstanding) {
  Pair pair(plain_config(), with_channel());
  Memory watched(pair.host, 64);
  Memory source(pair.host, 64);
  must(pair.a.send_cq->arm(CompletionQueue::Arm::kNext), "arm");
  SendWr write = wr_write(1, watched.rkey(), watched.to());
  const Sge sge = source.sge();
  write.sges = std::span(&sge, 1);
  post(*pair.b.qp, write);
  ASSERT_TRUE(pair.a.channel->wait(kPatience));
  pair.a.send_cq->ack_events(1);
  EXPECT_TRUE(quiet(*pair.a.send_cq));
}

TEST(CompletionChannel, AWriteThatCameWhileRequestsWereOutstandingWakesWhenTheyAreGone) {
  constexpr std::size_t kLarge = 16U << 20U;
  Pair pair(plain_config(), with_channel());
  Memory watched(pair.host, 64);
  Memory source(pair.host, kLarge);
  Memory sink(pair.host, kLarge);
  must(pair.a.send_cq->arm(CompletionQueue::Arm::kNext), "arm");
  SendWr large = wr_write(1, sink.rkey(), sink.to(), SendFlags::kNone);
  const Sge all = source.sge();
  large.sges = std::span(&all, 1);
  SendWr small = wr_write(2, watched.rkey(), watched.to());
  const Sge some = source.sge(0, 64);
  small.sges = std::span(&some, 1);
  post(*pair.a.qp, large);
  post(*pair.b.qp, small);
  post(*pair.a.qp, large);
  ASSERT_TRUE(pair.a.channel->wait(kPatience));
  pair.a.send_cq->ack_events(1);
  EXPECT_TRUE(quiet(*pair.a.send_cq));
}

// Many connections on one CQ: what is posted on those that no poller drives goes out all the same,
// whether the poster goes on polling, sleeps, or does neither.
TEST(CompletionQueue, DoorbellsOfManyConnectionsAreAllRung) {
  constexpr std::size_t kConnections = 24;
  constexpr std::uint64_t kRounds = 40;
  constexpr std::uint64_t kBurst = 12;
  Host host;
  EndpointOptions shared = with_channel();
  Endpoint first(host, shared);
  std::vector<std::unique_ptr<Endpoint>> active, passive;
  for (std::size_t i = 0; i < kConnections; ++i) {
    active.push_back(std::make_unique<Endpoint>(host, shared));
    QpOptions options;
    options.send_cq = first.send_cq;
    options.recv_cq = first.recv_cq;
    options.max_send_wr = 64;
    active.back()->qp = must(host.pd->create_qp(options), "create_qp");
    passive.push_back(std::make_unique<Endpoint>(host));
    connect(host, *active.back(), host, *passive.back());
  }
  Memory source(host, 64);
  Memory sink(host, 64);
  const Sge sge = source.sge();
  std::size_t outstanding = 0;
  const auto reap_once = [&] {
    std::array<WorkCompletion, 16> wcs;
    const std::size_t n = first.send_cq->poll(wcs);
    for (std::size_t k = 0; k < n; ++k) EXPECT_EQ(wcs[k].status, WcStatus::kSuccess);
    outstanding -= n;
  };
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (const auto& side : active) {
      for (std::uint64_t k = 0; k < kBurst; ++k) {
        SendWr write = wr_write(k, sink.rkey(), sink.to());
        write.sges = std::span(&sge, 1);
        post(*side->qp, write);
        ++outstanding;
      }
    }
    if (round % 8 == 7) {  // asleep until there is a completion, unless all are there already
      must(first.send_cq->arm(CompletionQueue::Arm::kNext), "arm");
      const std::size_t before = outstanding;
      reap_once();
      if (outstanding == before) {
        ASSERT_TRUE(readable(first.channel->fd(), kPatience));
        ASSERT_TRUE(first.channel->wait(kPatience));
        first.send_cq->ack_events(1);
      }
    }
    if (round % 8 == 3) {  // neither polls nor sleeps: the background thread rings
      ASSERT_TRUE(eventually([&] {
        return std::ranges::all_of(
            active, [](const auto& side) { return side->qp->query().sq_outstanding == 0; });
      }));
    }
    while (outstanding != 0) reap_once();
  }
}

TEST(CompletionQueue, ArmWithoutAChannelIsRefused) {
  Pair pair;
  EXPECT_EQ(pair.a.send_cq->arm(CompletionQueue::Arm::kNext).error(), Error::kBadState);
}

TEST(CompletionQueue, OverflowHurtsOnlyTheQueuePairsOfThatQueue) {
  Host host;
  EndpointOptions tiny;
  tiny.cq_depth = 4;
  Endpoint a(host, tiny);
  Endpoint b(host);
  connect(host, a, host, b);
  Endpoint c(host);
  Endpoint d(host);
  connect(host, c, host, d);
  Memory memory(host, 64);
  for (std::uint64_t id = 1; id <= 12; ++id) {
    // Refused once the overflow has been noticed, or flushed: both are fine.
    SendWr wr = wr_write(id, memory.rkey(), memory.to());
    (void)a.qp->post_send(wr);
  }
  bool cq_error = false;
  while (const auto event = host.async_event(milliseconds(cq_error ? 50 : 15000))) {
    if (event->type == AsyncEventType::kCqError) {
      cq_error = true;
      EXPECT_EQ(event->cq.lock(), a.send_cq);
    }
  }
  EXPECT_TRUE(cq_error);
  EXPECT_TRUE(a.send_cq->overflowed());
  EXPECT_FALSE(c.send_cq->overflowed());
  EXPECT_TRUE(eventually([&] { return a.qp->state() == QpState::kError; }));
  EXPECT_EQ(c.qp->state(), QpState::kRts);
  post_recv(*d.qp, 1);
  post(*c.qp, wr_send(1));
  take_success(*d.recv_cq, 1);
}

// No completion is lost in silence, however often it happens.
TEST(CompletionQueue, OverflowsOfOneQueueEachFailWhoUsesIt) {
  Host host;
  EndpointOptions tiny;
  tiny.cq_depth = 4;
  Endpoint first(host, tiny);
  Endpoint peer(host);
  connect(host, first, host, peer);
  Memory memory(host, 64);
  const auto overflow = [&](QueuePair& qp) {
    for (std::uint64_t id = 1; id <= 12; ++id) {
      (void)qp.post_send(wr_write(id, memory.rkey(), memory.to()));
    }
    EXPECT_TRUE(eventually([&] { return qp.state() == QpState::kError; }));
  };
  overflow(*first.qp);
  std::array<WorkCompletion, 16> wcs;
  while (first.send_cq->poll(wcs) != 0) {
  }
  EndpointOptions same = tiny;
  same.send_cq = first.send_cq;
  Endpoint second(host, same);
  Endpoint other(host);
  connect(host, second, host, other);
  EXPECT_EQ(second.qp->state(), QpState::kRts);
  overflow(*second.qp);
  int told = 0;
  while (const auto event = host.async_event(milliseconds(50))) {
    told += static_cast<int>(event->type == AsyncEventType::kCqError);
  }
  EXPECT_EQ(told, 1);
}

TEST(CompletionQueue, ResizeKeepsWhatIsQueuedAndMayRunUnderLoad) {
  EndpointOptions options;
  options.cq_depth = 512;
  options.max_send_wr = 128;
  Pair pair(plain_config(), options);
  Memory memory(pair.host, 64);
  std::atomic<bool> stop{false};
  std::thread resizer([&] {
    for (std::uint32_t depth = 256; !stop; depth = depth == 256 ? 1024 : 256) {
      must(pair.a.send_cq->resize(depth), "resize");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  std::uint64_t posted = 0;
  std::uint64_t expected = 0;
  while (expected < 5000) {
    while (posted < 5000 && posted - expected < 100) {
      post(*pair.a.qp, wr_write(posted++, memory.rkey(), memory.to()), {memory.sge(0, 8)});
    }
    take_success(*pair.a.send_cq, expected++);
  }
  stop = true;
  resizer.join();
  post(*pair.a.qp, wr_write(1, 0, 0));
  post(*pair.a.qp, wr_write(2, 0, 0));
  post(*pair.a.qp, wr_write(3, 0, 0));
  post_recv(*pair.b.qp, 1);
  post(*pair.a.qp, wr_send(4));
  take_success(*pair.b.recv_cq, 1);
  std::this_thread::sleep_for(milliseconds(20));
  const Status too_small = pair.a.send_cq->resize(1);
  ASSERT_FALSE(too_small);
  EXPECT_EQ(too_small.error(), Error::kInvalidArgument);
  for (std::uint64_t id = 1; id <= 4; ++id) take_success(*pair.a.send_cq, id);
}

struct SharedReceive {
  explicit SharedReceive(std::uint32_t limit = 0) : into(host, 64 * 100) {
    SrqOptions options;
    options.max_wr = 64;
    options.limit = limit;
    srq = must(host.pd->create_srq(options), "create an SRQ");
    EndpointOptions with_srq;
    with_srq.srq = srq;
    for (int i = 0; i < 2; ++i) {
      senders.push_back(std::make_unique<Endpoint>(host));
      receivers.push_back(std::make_unique<Endpoint>(host, with_srq));
      connect(host, *senders.back(), host, *receivers.back());
    }
  }
  void fill(std::uint64_t first, std::size_t count) {
    for (std::uint64_t id = first; id < first + count; ++id) {
      RecvWr wr;
      wr.wr_id = id;
      const Sge sge = into.sge(id % 64 * 100, 100);
      wr.sges = std::span(&sge, 1);
      if (srq->post_recv(std::span(&wr, 1)).count != 1) throw Failure("the SRQ takes no more");
    }
  }
  Host host;
  Memory into;
  std::shared_ptr<SharedReceiveQueue> srq;
  std::vector<std::unique_ptr<Endpoint>> senders, receivers;
};

TEST(SharedReceiveQueue, ReceivesGoToWhoeverNeedsThem) {
  SharedReceive s;
  s.fill(0, 20);
  Memory from(s.host, 100);
  for (std::uint64_t i = 0; i < 20; ++i) {
    from.fill_pattern(static_cast<unsigned>(i));
    const std::size_t who = i % 3 == 0 ? 0 : 1;
    post(*s.senders[who]->qp, wr_send(i), {from.sge(0, 50)});
    const WorkCompletion wc = take(*s.receivers[who]->recv_cq);
    EXPECT_EQ(wc.status, WcStatus::kSuccess);
    EXPECT_EQ(wc.qp_num, s.receivers[who]->qp->number());
    EXPECT_EQ(s.into.copy(wc.wr_id * 100, 50), from.copy(0, 50));
    take_success(*s.senders[who]->send_cq, i);
  }
  EXPECT_TRUE(s.into.guards_intact());
}

TEST(SharedReceiveQueue, LimitEventIsRaisedOnceAndCanBeArmedAgain) {
  SharedReceive s(4);
  s.fill(0, 6);
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      post(*s.senders[0]->qp, wr_send(i));
      (void)take(*s.receivers[0]->recv_cq);
    }
    const auto event = s.host.async_event();
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->type, AsyncEventType::kSrqLimitReached);
    EXPECT_EQ(event->srq.lock(), s.srq);
    EXPECT_FALSE(s.host.async_event(milliseconds(20)).has_value());
    s.fill(6, 3);
    must(s.srq->set_limit(4), "arm the limit");
  }
}

TEST(SharedReceiveQueue, ASendWaitsAWhileForTheQueueToBeFilled) {
  SharedReceive s;
  post(*s.senders[0]->qp, wr_send(1));
  EXPECT_TRUE(quiet(*s.receivers[0]->recv_cq));
  s.fill(0, 1);
  EXPECT_EQ(take(*s.receivers[0]->recv_cq).status, WcStatus::kSuccess);
}

TEST(SharedReceiveQueue, EmptyQueueEndsTheStreamThatFindsItEmpty) {
  SharedReceive s;
  post(*s.senders[0]->qp, wr_send(1));
  (void)next_event(*s.senders[0]->events);
  EXPECT_TRUE(eventually([&] { return s.receivers[0]->qp->state() == QpState::kError; }));
  s.fill(0, 1);
  post(*s.senders[1]->qp, wr_send(1));
  EXPECT_EQ(take(*s.receivers[1]->recv_cq).status, WcStatus::kSuccess);
}

TEST(SharedReceiveQueue, LastReceiveEventTellsWhenAQueuePairIsDone) {
  SharedReceive s;
  s.fill(0, 8);
  s.senders[0]->connection->abort();
  bool last = false;
  while (const auto event = s.host.async_event(milliseconds(last ? 20 : 5000))) {
    if (event->type != AsyncEventType::kQpLastWqeReached) continue;
    last = true;
    EXPECT_EQ(event->qp.lock(), s.receivers[0]->qp);
  }
  EXPECT_TRUE(last);
  EXPECT_TRUE(quiet(*s.receivers[0]->recv_cq, milliseconds(10)));  // the rest stays in the SRQ
  post(*s.senders[1]->qp, wr_send(1));
  EXPECT_EQ(take(*s.receivers[1]->recv_cq).status, WcStatus::kSuccess);
}

TEST(SharedReceiveQueue, FullQueueRefusesMoreAndTakesThemAfterAResize) {
  SharedReceive s;
  const std::uint32_t room = s.srq->max_wr();
  s.fill(0, room);
  RecvWr more;
  EXPECT_EQ(s.srq->post_recv(std::span(&more, 1)).error, Error::kNoSpace);
  must(s.srq->resize(room + 10), "resize");
  s.fill(0, 10);
}

}  // namespace
}  // namespace weft::test
