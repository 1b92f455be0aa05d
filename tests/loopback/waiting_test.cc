// Threads that wait in different ways on the same shards, and what is looked after meanwhile.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

#include "support/weft_side.h"

namespace weft::test {
namespace {

constexpr int kPatienceMs = static_cast<int>(kPatience.count());

// --- ways to wait ---

enum class Way : std::uint8_t {
  kPoll,
  kWait,        // arm, poll once more, ibv_get_cq_event()
  kOwnEpoll,    // the same, but the sleep is in an epoll of the program
  kOwnPoll,     // in its poll(2), with a time limit behind which it looks again
  kThread,      // a thread of the program's sleeps in ibv_get_cq_event()
  kBeginSleep,  // CompletionChannel::begin_sleep()
};
constexpr int kWays = 6;
constexpr std::array<const char*, kWays> kNames{"poll",     "wait",   "own epoll",
                                                "own poll", "thread", "begin_sleep"};

// All that is needed to wait for completions of a CQ.
class Waiter {
 public:
  Waiter(CompletionChannel& channel, CompletionQueue& cq)
      : channel_(channel), cq_(cq), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event event{};
    event.events = EPOLLIN;
    EXPECT_EQ(epoll_ctl(epoll_, EPOLL_CTL_ADD, channel.fd(), &event), 0);
    thread_ = std::thread([this] {
      for (asked_.acquire(); !over_; asked_.acquire()) {
        woken_ = sleep_in_wait();
        told_.release();
      }
    });
  }
  ~Waiter() {
    over_ = true;
    asked_.release();
    thread_.join();
    close(epoll_);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // False: it did not come, or was another.
  [[nodiscard]] bool take(Way way, std::uint64_t id) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (way == Way::kPoll ? !look() : !arm_and_look()) {
      if (sleep(way) && std::chrono::steady_clock::now() < until) continue;
      ADD_FAILURE() << "nobody was woken; "
                    << (look() ? "it had come" : "it has not come, as far as a poll sees");
      return false;
    }
    return done_.status == WcStatus::kSuccess && done_.wr_id == id;
  }
  // It has found nothing, and sleeps next.
  [[nodiscard]] bool goes_to_sleep() const {
    return eventually([this] { return sleeps_.load() != 0; });
  }

 private:
  [[nodiscard]] bool look() { return cq_.poll(std::span(&done_, 1)) == 1; }
  [[nodiscard]] bool arm_and_look() {
    must(cq_.arm(CompletionQueue::Arm::kNext), "arm");
    return look();
  }
  [[nodiscard]] bool sleep_in_wait() {
    const auto told = channel_.wait(kPatience);
    if (told) (*told)->ack_events(1);
    return told || told.error() == Error::kAborted;  // a signal, as of a debugger
  }
  void empty_channel() {
    while (const auto told = channel_.wait(std::chrono::nanoseconds(0))) {
      (*told)->ack_events(1);
    }
  }
  [[nodiscard]] bool sleep(Way way) {
    epoll_event event{};
    pollfd wanted{channel_.fd(), POLLIN, 0};
    bool woken = true;
    ++sleeps_;
    switch (way) {
      case Way::kPoll: return true;
      case Way::kWait: return sleep_in_wait();
      case Way::kOwnEpoll: woken = epoll_wait(epoll_, &event, 1, kPatienceMs) != 0; break;
      case Way::kOwnPoll: (void)poll(&wanted, 1, kTimeLimitMs); break;
      case Way::kThread:
        asked_.release();
        told_.acquire();
        return woken_;
      case Way::kBeginSleep:
        if (!channel_.begin_sleep()) break;
        wanted.fd = channel_.sleep_fd();
        woken = poll(&wanted, 1, kPatienceMs) != 0;
        channel_.end_sleep();
        break;
    }
    empty_channel();
    return woken;
  }

  static constexpr int kTimeLimitMs = 50;
  CompletionChannel& channel_;
  CompletionQueue& cq_;
  const int epoll_;
  WorkCompletion done_;
  std::thread thread_;
  std::binary_semaphore asked_{0}, told_{0};
  std::atomic<bool> over_{false};
  std::atomic<int> sleeps_{0};
  bool woken_ = false;
};

// Both ends wait in ways that `ways` names, anew in each round.
void ping_pong(ProgressMode mode, int rounds, const std::vector<Way>& ways) {
  Config config = plain_config();
  config.progress = mode;
  EndpointOptions options;
  options.with_channel = true;
  options.max_send_wr = static_cast<std::uint32_t>(rounds);  // nobody polls for sends
  Host ours(config), theirs(config);
  Endpoint a(ours, options), b(theirs, options);
  connect(ours, a, theirs, b);
  post_recv(*a.qp, 0);
  post_recv(*b.qp, 0);
  const auto play = [&](Endpoint& end, bool begins) {
    Waiter waiter(*end.channel, *end.recv_cq);
    std::minstd_rand random(begins ? 27 : 72);
    for (std::uint64_t round = 0; round < static_cast<std::uint64_t>(rounds); ++round) {
      const Way way = ways[random() % ways.size()];
      if (begins) post(*end.qp, wr_send(round, SendFlags::kNone));
      if (!waiter.take(way, round)) {
        ADD_FAILURE() << "round " << round << ", by " << kNames[static_cast<std::size_t>(way)]
                      << (begins ? ", who begins" : ", who answers");
        return;
      }
      post_recv(*end.qp, round + 1);
      if (!begins) post(*end.qp, wr_send(round, SendFlags::kNone));
    }
  };
  std::thread other([&] { play(b, false); });
  play(a, true);
  other.join();
}

TEST(Waiting, TwoHundredRoundsInSixWaysAtRandom) {
  ping_pong(
      ProgressMode::kAuto, 200,
      {Way::kPoll, Way::kWait, Way::kOwnEpoll, Way::kOwnPoll, Way::kThread, Way::kBeginSleep});
}

TEST(Waiting, InSixWaysAtRandomWhereCallersRunNothing) {
  ping_pong(
      ProgressMode::kThread, 200,
      {Way::kPoll, Way::kWait, Way::kOwnEpoll, Way::kOwnPoll, Way::kThread, Way::kBeginSleep});
}

// The pattern of the verbs' manual pages.
TEST(Waiting, ProgramsThatArmPollOnceMoreAndSleepInTheirOwnEpoll) {
  ping_pong(ProgressMode::kAuto, 1000, {Way::kOwnEpoll});
}

// --- several CQs, several shards ---

// The poller runs the shards on which the sleeper depends, and leaves nothing of them behind.
TEST(Waiting, APollerBesideASleeperOnTwoCqsOfOneChannel) {
  constexpr std::uint64_t kRounds = 300;
  Host ours, theirs;
  EndpointOptions options;
  options.with_channel = true;
  Endpoint slept(ours, options);
  Endpoint polled(ours);
  CqOptions on_channel;
  on_channel.channel = slept.channel;
  polled.recv_cq = must(ours.device->create_cq(on_channel), "create a CQ");
  QpOptions q;
  q.send_cq = polled.send_cq;
  q.recv_cq = polled.recv_cq;
  q.max_send_wr = q.max_recv_wr = 16;
  polled.qp = must(ours.pd->create_qp(q), "create a QP");
  Endpoint slept_peer(theirs), polled_peer(theirs);
  connect(ours, slept, theirs, slept_peer);
  connect(ours, polled, theirs, polled_peer);
  std::atomic<std::uint64_t> posted{0}, taken{0};
  std::thread sleeper([&] {
    Waiter waiter(*slept.channel, *slept.recv_cq);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      post_recv(*slept.qp, round);
      posted = round + 1;
      if (!waiter.take(Way::kWait, round)) return;
      taken = round + 1;
    }
  });
  std::size_t mine = 0;
  const auto poll_until = [&](const auto& holds) {
    const auto until = std::chrono::steady_clock::now() + 2 * kPatience;
    WorkCompletion done;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > until) return false;
      mine += polled.recv_cq->poll(std::span(&done, 1));
    }
    return true;
  };
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    post_recv(*polled.qp, round);
    if (!poll_until([&] { return posted > round; })) break;
    post(*polled_peer.qp, wr_send(round));
    post(*slept_peer.qp, wr_send(round));
    if (!poll_until([&] { return mine > round && taken > round; })) break;
    take_success(*polled_peer.send_cq, round);
    take_success(*slept_peer.send_cq, round);
  }
  EXPECT_EQ(mine, kRounds) << "of the poller";
  EXPECT_EQ(taken, kRounds) << "of the sleeper";
  sleeper.join();
}

// More shards than a word has bits: each receive CQ has one, all feed one send CQ and one channel.
TEST(Waiting, MoreThan64ShardsFeedOneCqAndOneChannel) {
  constexpr std::size_t kShards = 70;
  Host ours, theirs;
  Memory from(theirs, 8);
  Memory into(ours, 8);
  CqOptions on_channel;
  on_channel.channel = must(ours.device->create_channel(), "create a channel");
  const auto send_cq = must(ours.device->create_cq(on_channel), "create a CQ");
  std::vector<std::unique_ptr<Endpoint>> ends, peers;
  for (std::size_t i = 0; i < kShards; ++i) {
    auto& end = *ends.emplace_back(std::make_unique<Endpoint>(ours));
    auto& peer = *peers.emplace_back(std::make_unique<Endpoint>(theirs));
    end.send_cq = send_cq;
    end.recv_cq = must(ours.device->create_cq(on_channel), "create a CQ");
    QpOptions q;
    q.send_cq = end.send_cq;
    q.recv_cq = end.recv_cq;
    q.max_send_wr = q.max_recv_wr = 4;
    end.qp = must(ours.pd->create_qp(q), "create a QP");
    connect(ours, end, theirs, peer);
    post_recv(*end.qp, i);
    must(end.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
  }
  for (std::size_t i = 0; i < kShards; ++i) {
    post(*peers[i]->qp, wr_send(i));
    const auto* told = must(on_channel.channel->wait(kPatience), "wait for a receive");
    ASSERT_EQ(told, ends[i]->recv_cq.get()) << i;
    ends[i]->recv_cq->ack_events(1);
    take_success(*ends[i]->recv_cq, i);
  }
  // The answers come by each of the shards.
  for (std::size_t i = 0; i < kShards; ++i) {
    must(send_cq->arm(CompletionQueue::Arm::kNext), "arm");
    post(*ends[i]->qp, wr_read(i, from.rkey(), from.to()), {into.sge()});
    ASSERT_EQ(must(on_channel.channel->wait(kPatience), "wait for a Read"), send_cq.get()) << i;
    send_cq->ack_events(1);
    take_success(*send_cq, i);
  }
}

// It sleeps on the shards that fed the CQ before; of the new one it hears by the background.
TEST(Waiting, AQueuePairThatAddsAShardToACqOnWhichSomebodySleeps) {
  for (const Way way : {Way::kWait, Way::kOwnEpoll, Way::kThread, Way::kBeginSleep}) {
    Host ours, theirs;
    Memory from(theirs, 8);
    Memory into(ours, 8);
    EndpointOptions options;
    options.with_channel = true;
    Endpoint first(ours, options), first_peer(theirs);
    connect(ours, first, theirs, first_peer);
    Waiter waiter(*first.channel, *first.send_cq);
    std::thread sleeper([&] {
      EXPECT_TRUE(waiter.take(way, 7)) << "by " << kNames[static_cast<std::size_t>(way)];
    });
    EXPECT_TRUE(waiter.goes_to_sleep());
    Endpoint second(ours), second_peer(theirs);
    second.send_cq = first.send_cq;
    QpOptions q;
    q.send_cq = second.send_cq;
    q.recv_cq = second.recv_cq;
    q.max_send_wr = q.max_recv_wr = 4;
    second.qp = must(ours.pd->create_qp(q), "create a QP");
    connect(ours, second, theirs, second_peer);
    post(*second.qp, wr_read(7, from.rkey(), from.to()), {into.sge()});
    sleeper.join();
  }
}

}  // namespace
}  // namespace weft::test
