// Many threads on few queue pairs, and many queue pairs on few threads: nothing is lost or doubled.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "flood.h"

namespace weft::test {
namespace {

// Several threads post to one queue pair and several poll its queues.
TEST(Stress, ManyThreadsOnOneQueuePairLoseAndDoubleNothing) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kEach = 3000;
  EndpointOptions options;
  options.max_send_wr = 200;
  options.max_recv_wr = 8192;
  options.cq_depth = 16384;
  Pair pair(plain_config(), options, options);
  Memory memory(pair.host, 4096);
  Memory scratch(pair.host, 4096);
  post_empty_recvs(*pair.b.qp, 0, kThreads * kEach / 4);
  std::vector<std::atomic<int>> seen(kThreads * kEach);
  std::vector<std::atomic<int>> received(kThreads * kEach / 4);
  std::atomic<std::uint64_t> total{0};
  std::atomic<std::uint64_t> failed{0};

  const auto poster = [&](std::uint64_t thread) {
    for (std::uint64_t i = 0; i < kEach; ++i) {
      const std::uint64_t id = thread * kEach + i;
      SendWr wr = i % 4 == 0   ? wr_send(id)
                  : i % 4 == 1 ? wr_read(id, memory.rkey(), memory.to())
                  : i % 4 == 2 ? wr_fetch_add(id, memory.rkey(), memory.to(4088), 1)
                               : wr_write(id, memory.rkey(), memory.to());
      const Sge sge = scratch.sge(0, i % 4 == 0 ? 0 : i % 4 == 2 ? 8 : i % 3000);
      wr.sges = std::span(&sge, 1);
      while (!pair.a.qp->post_send(wr)) std::this_thread::yield();
    }
  };
  const auto poller = [&](CompletionQueue& cq, std::vector<std::atomic<int>>& marks) {
    std::array<WorkCompletion, 16> done;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (total < seen.size() + received.size() && std::chrono::steady_clock::now() < deadline) {
      const std::size_t n = cq.poll(done);
      for (std::size_t i = 0; i < n; ++i) {
        if (done[i].status != WcStatus::kSuccess) ++failed;
        if (done[i].wr_id < marks.size()) ++marks[done[i].wr_id];
        ++total;
      }
      if (n == 0) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) threads.emplace_back(poster, t);
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] { poller(*pair.a.send_cq, seen); });
    threads.emplace_back([&] { poller(*pair.b.recv_cq, received); });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failed, 0U);
  EXPECT_TRUE(std::ranges::all_of(seen, [](const auto& n) { return n == 1; }));
  EXPECT_TRUE(std::ranges::all_of(received, [](const auto& n) { return n == 1; }));
}

// Atomics of many streams on one word: none gets lost.
TEST(Stress, AtomicsOfManyStreamsAddUp) {
  constexpr int kStreams = 4;
  constexpr std::uint64_t kEach = 500;
  Host host;
  Memory word(host, 8, kAllAccess, 0);
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Endpoint>> a;
  std::vector<std::unique_ptr<Endpoint>> b;
  for (int i = 0; i < kStreams; ++i) {
    a.push_back(std::make_unique<Endpoint>(host));
    b.push_back(std::make_unique<Endpoint>(host));
    connect(host, *a.back(), host, *b.back());
  }
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      Memory old(host, 8);
      for (std::uint64_t n = 0; n < kEach; ++n) {
        post(*a[static_cast<std::size_t>(i)]->qp, wr_fetch_add(n, word.rkey(), word.to(), 1),
             {old.sge()});
        take_success(*a[static_cast<std::size_t>(i)]->send_cq, n);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(word.load64(0), kStreams * kEach);
}

// Random traffic both ways; then one side goes in each of the ways it can.
TEST(Stress, EveryRequestCompletesOnceHoweverTheConnectionEnds) {
  for (int how = 0; how < 4; ++how) {
    SCOPED_TRACE(how);
    Host host;
    Flood a(host, 11U + static_cast<unsigned>(how));
    Flood b(host, 23U + static_cast<unsigned>(how));
    a.peer = b.here();
    b.peer = a.here();
    a.post_receives();
    b.post_receives();
    connect(host, a.endpoint, host, b.endpoint);
    for (int i = 0; i < 300; ++i) {
      ASSERT_TRUE(a.step());
      ASSERT_TRUE(b.step());
    }
    EXPECT_GT(a.succeeded(), 0U);
    switch (how) {
      case 0: must(a.endpoint.connection->disconnect(), "disconnect"); break;
      case 1: a.endpoint.connection->abort(); break;
      case 2: must(a.endpoint.qp->modify(QpState::kError), "move to the error state"); break;
      default:
        a.break_the_rules();  // ends both by a Terminate
        break;
    }
    EXPECT_TRUE(a.settle()) << a.state();
    EXPECT_TRUE(b.settle()) << b.state();
  }
}

// Connections that come and go on two queues, while others poll, sleep and read counters.
class Reconnects {
 public:
  static constexpr std::uint64_t kRounds = 40;
  static constexpr std::uint64_t kSends = 50;  // in a round, and as many receives

  Reconnects() : host_(config()) {
    CqOptions options;
    options.depth = 4096;
    channel_ = options.channel = must(host_.device->create_channel(), "create a channel");
    for (auto& cq : cqs_) cq = must(host_.device->create_cq(options), "create a CQ");
    for (auto& side : sides_) {
      side = std::make_unique<Endpoint>(host_);
      side->qp = create_qp();
    }
  }

  void run() {
    std::vector<std::thread> others;
    // Several poll one queue at once.
    for (int i = 0; i < 3; ++i) others.emplace_back([this] { poll(*cqs_[0]); });
    others.emplace_back([this] { sleep(); });
    others.emplace_back([this] { read_counters(); });
    try {
      for (std::uint64_t i = 0; i < kRounds && !::testing::Test::HasFailure(); ++i) round(i);
    } catch (const Failure& why) {
      ADD_FAILURE() << why.what();
    }
    over_ = true;
    for (std::thread& t : others) t.join();
    while (drain(*cqs_[0]) + drain(*cqs_[1]) != 0) {
    }
    EXPECT_TRUE(std::ranges::all_of(seen_, [](const auto& n) { return n == 1; }));
    EXPECT_GT(succeeded_, 0U);
    EXPECT_FALSE(fell_) << "a counter fell";
  }

 private:
  static Config config() {
    Config config = plain_config();
    config.background_threads = 2;
    return config;
  }

  std::shared_ptr<QueuePair> create_qp() {
    QpOptions options;
    options.send_cq = cqs_[0];
    options.recv_cq = cqs_[1];
    options.max_send_wr = options.max_recv_wr = kSends;
    return must(host_.pd->create_qp(options), "create a QP");
  }

  // One connection, of the queue pairs of the round before or of new ones.
  void round(std::uint64_t number) {
    for (auto& side : sides_) {
      if (number % 3 == 2) {
        side->qp = create_qp();
      } else if (number != 0) {
        EXPECT_TRUE(eventually([&] { return side->qp->modify(QpState::kReset).has_value(); }));
        must(side->qp->modify(QpState::kInit), "init");
      }
      side->connection.reset();
      side->events = must(EventChannel::create(), "create an event channel");
    }
    Endpoint& from = *sides_[number % 2];
    Endpoint& to = *sides_[1 - number % 2];
    const std::uint64_t first = number * 2 * kSends;
    post_empty_recvs(*to.qp, first, kSends);
    connect(host_, from, host_, to);
    for (std::uint64_t i = 0; i < kSends; ++i) post(*from.qp, wr_send(first + kSends + i));
    Connection& ends = number % 4 < 2 ? *from.connection : *to.connection;
    if (number % 8 < 4) {
      ends.abort();
    } else {
      must(ends.disconnect(), "disconnect");
    }
    const std::uint64_t all = first + 2 * kSends;
    EXPECT_TRUE(eventually([&] { return total_ == all; })) << total_ << " of " << all;
    EXPECT_TRUE(eventually(
        [&] { return from.qp->state() == QpState::kError && to.qp->state() == QpState::kError; }));
  }

  std::size_t drain(CompletionQueue& cq) {
    std::array<WorkCompletion, 8> done;
    const std::size_t n = cq.poll(done);
    for (std::size_t i = 0; i < n; ++i) {
      if (done[i].wr_id < seen_.size()) ++seen_[done[i].wr_id];
      if (done[i].status == WcStatus::kSuccess) ++succeeded_;
    }
    total_ += n;
    return n;
  }

  void poll(CompletionQueue& cq) {
    while (!over_) {
      if (drain(cq) == 0) std::this_thread::yield();
    }
  }

  void sleep() {
    CompletionQueue& cq = *cqs_[1];
    while (!over_) {
      (void)cq.arm(CompletionQueue::Arm::kNext);
      if (drain(cq) != 0) continue;
      const Result<CompletionQueue*> woken = channel_->wait(milliseconds(100));
      if (woken) (*woken)->ack_events(1);
    }
  }

  void read_counters() {
    std::uint64_t last = 0;
    while (!over_) {
      const std::uint64_t now = host_.device->counters().tx_bytes;
      if (now < last) fell_ = true;
      last = now;
      std::this_thread::yield();
    }
  }

  Host host_;
  std::shared_ptr<CompletionChannel> channel_;
  std::array<std::shared_ptr<CompletionQueue>, 2> cqs_;  // of sends, of receives
  std::array<std::unique_ptr<Endpoint>, 2> sides_;
  std::vector<std::atomic<int>> seen_ = std::vector<std::atomic<int>>(kRounds * 2 * kSends);
  std::atomic<std::uint64_t> total_{0};
  std::atomic<std::uint64_t> succeeded_{0};
  std::atomic<bool> fell_{false};
  std::atomic<bool> over_{false};
};

TEST(Stress, PollsPostsSleepersClosesAndReconnectsAtOnce) { Reconnects().run(); }

TEST(Stress, ThousandConnectionsAreSetUpAndUsed) {
  constexpr std::size_t kCount = 1000;
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 2 * kCount + 200) GTEST_SKIP() << "too few file descriptors";

  using Type = ConnectionEvent::Type;
  Host host;
  Memory memory(host, 64);
  CqOptions cq_options;
  cq_options.depth = 8192;
  const auto cq = must(host.device->create_cq(cq_options), "create a CQ");
  const auto events = must(EventChannel::create(), "create an event channel");
  const auto listener = listen(host, events);
  QpOptions options;
  options.send_cq = cq;
  options.recv_cq = cq;
  options.max_send_wr = 8;
  options.max_recv_wr = 8;
  std::vector<std::shared_ptr<QueuePair>> active;
  std::vector<std::shared_ptr<QueuePair>> passive;
  std::vector<std::shared_ptr<Connection>> connections;
  std::size_t established = 0;
  const auto handle = [&] {
    auto event = next_event(*events);
    ASSERT_TRUE(event.has_value());
    if (event->type == Type::kConnectRequest) {
      passive.push_back(must(host.pd->create_qp(options), "create a QP"));
      post_empty_recvs(*passive.back(), 1'000'000 + passive.size(), 1);
      must(event->connection->accept(passive.back(), {}), "accept");
      connections.push_back(event->connection);
    } else {
      ASSERT_EQ(event->type, Type::kEstablished) << describe(event->type);
      ++established;
    }
  };
  for (std::size_t i = 0; i < kCount; ++i) {
    active.push_back(must(host.pd->create_qp(options), "create a QP"));
    connections.push_back(must(host.device->create_connection(events), "create a connection"));
    must(connections.back()->connect(active.back(), listener->local_address(), {}), "connect");
    while (established + 100 < 2 * i) ASSERT_NO_FATAL_FAILURE(handle());
  }
  while (established < 2 * kCount) ASSERT_NO_FATAL_FAILURE(handle());
  for (std::size_t i = 0; i < kCount; ++i) {
    post(*active[i], wr_write(2 * i, memory.rkey(), memory.to()), {memory.sge(0, 8)});
    post(*active[i], wr_send(2 * i + 1), {});
  }
  std::set<std::uint64_t> ids;
  for (const WorkCompletion& wc : take_n(*cq, 3 * kCount)) {
    ASSERT_EQ(wc.status, WcStatus::kSuccess) << to_string(wc);
    EXPECT_TRUE(ids.insert(wc.wr_id).second);
  }
}

TEST(Stress, IdleConnectionsUseNoProcessorTime) {
  Host host;
  std::vector<std::unique_ptr<Endpoint>> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(std::make_unique<Endpoint>(host));
    all.push_back(std::make_unique<Endpoint>(host));
    connect(host, *all[all.size() - 2], host, *all.back());
  }
  const auto used = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  std::this_thread::sleep_for(milliseconds(200));  // what set-up left to do
  const auto before = used();
  std::this_thread::sleep_for(milliseconds(2000));
  // Five percent of one core: far above nothing, far below a thread that polls.
  EXPECT_LT(used() - before, milliseconds(100));
}

}  // namespace
}  // namespace weft::test
