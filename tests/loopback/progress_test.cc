// Who makes progress, and that nothing is lost between them: posts beside sleepers and pollers, the
// end of connections, forks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/placement.h>

#include <array>
#include <atomic>
#include <string_view>
#include <thread>

#include "support/weft_side.h"

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

// Posts `count` unsignaled Writes of 8 octets, each of its own value, over and over.
void post_writes(QueuePair& qp, Memory& from, const Memory& into, int count) {
  for (int i = 0; i < count; ++i) {
    SendWr wr = wr_write(static_cast<std::uint64_t>(i), into.rkey(), into.to(),
                         i + 1 == count ? SendFlags::kSignaled : SendFlags::kNone);
    post(qp, wr, {from.sge(0, 8)});
  }
}

TEST(Progress, DoorbellsLeftToAPollRingWhenNoPollComes) {
  Pair pair;
  Memory from(pair.host, 8);
  Memory into(pair.host, 8);
  std::array<WorkCompletion, 16> done;
  for (int round = 0; round < 50; ++round) {
    // Polls make the CQ one that is polled; then the program looks elsewhere.
    for (int i = 0; i < 20; ++i) (void)pair.a.send_cq->poll(done);
    from.store64(0, static_cast<std::uint64_t>(round) + 1);
    post_writes(*pair.a.qp, from, into, 40);
    ASSERT_TRUE(eventually([&] { return into.load64(0) == from.load64(0); })) << round;
    while (pair.a.send_cq->poll(done) == 0) {
    }
  }
}

// A page that its program has write-protected, to learn of the next write to it: a collector of
// garbage, a checkpoint, an emulator that tracks what has changed.
class ProtectedPage {
 public:
  ProtectedPage() : size_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    page_ = static_cast<std::uint8_t*>(at);
    size_of_page = size_;
    the_page = page_;
    struct sigaction on_fault {};
    on_fault.sa_sigaction = &ProtectedPage::unprotect;
    on_fault.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &on_fault, &before_);
  }
  ~ProtectedPage() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(page_, size_);
  }
  ProtectedPage(const ProtectedPage&) = delete;
  ProtectedPage& operator=(const ProtectedPage&) = delete;

  void protect() { ASSERT_EQ(mprotect(page_, size_, PROT_READ), 0); }
  [[nodiscard]] std::uint8_t* data() { return page_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint64_t load64() {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(page_)).load();
  }

  static inline std::atomic<int> faults{0};

 private:
  static void unprotect(int, siginfo_t* info, void*) {
    const auto* at = static_cast<std::uint8_t*>(info->si_addr);
    if (at < the_page || at >= the_page + size_of_page) _exit(99);
    ++faults;
    mprotect(the_page, size_of_page, PROT_READ | PROT_WRITE);
  }
  static inline std::uint8_t* the_page = nullptr;
  static inline std::size_t size_of_page = 0;

  std::size_t size_;
  std::uint8_t* page_ = nullptr;
  struct sigaction before_ {};
};

TEST(Progress, BackgroundPlacesWritesIntoMemoryThatItsProgramWatchesByFaults) {
  Pair pair;
  Memory from(pair.host, 8);
  ProtectedPage page;
  const auto into =
      must(pair.host.pd->register_memory(page.data(), page.size(), kAllAccess), "register");
  for (std::uint64_t round = 1; round <= 5; ++round) {
    page.protect();
    from.store64(0, round);
    post(*pair.a.qp, wr_write(round, into->rkey(), into->iova()), {from.sge(0, 8)});
    // Nobody polls the other end.
    ASSERT_TRUE(eventually([&] { return page.load64() == from.load64(0); })) << round;
    take_success(*pair.a.send_cq, round);
    EXPECT_EQ(ProtectedPage::faults, static_cast<int>(round));
  }
}

TEST(Progress, PostsBesideASleeperAreSentThoughNobodyPolls) {
  EndpointOptions options;
  options.with_channel = true;
  Pair pair(plain_config(), options);
  Memory from(pair.host, 8);
  Memory into(pair.host, 8);
  must(pair.a.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
  std::thread sleeper([&] { (void)pair.a.channel->wait(kPatience); });
  int at_once = 0;
  for (int round = 1; round <= 200; ++round) {
    from.store64(0, static_cast<std::uint64_t>(round));
    const std::uint64_t before = pair.host.device->counters().tx_fpdus;
    post_writes(*pair.a.qp, from, into, 12);
    if (pair.host.device->counters().tx_fpdus - before == 12) ++at_once;
    ASSERT_TRUE(eventually([&] { return into.load64(0) == from.load64(0); })) << round;
    (void)take_n(*pair.a.send_cq, 1);
  }
  EXPECT_GT(at_once, 100) << "of 200: they were left to a later bell";
  post_recv(*pair.a.qp, 1);
  post(*pair.b.qp, wr_send(1));
  sleeper.join();
}

// A QP that goes down while others post: each request that was taken completes, once.
TEST(Progress, RequestsPostedWhileTheConnectionEndsAreFlushedOnce) {
  for (int round = 0; round < 60; ++round) {
    EndpointOptions options;
    options.signal_all = true;
    options.cq_depth = 4096;
    Pair pair(plain_config(), options);
    Memory from(pair.host, 8);
    Memory into(pair.host, 8);
    std::atomic<std::size_t> taken{0};
    std::atomic<bool> go{false};
    std::thread poster([&] {
      const Sge sge = from.sge(0, 8);
      while (!go) {
      }
      for (int i = 0; i < 400; ++i) {
        SendWr wr = wr_write(1, into.rkey(), into.to());
        wr.sges = std::span(&sge, 1);
        taken += pair.a.qp->post_send(std::span(&wr, 1)).count;
      }
    });
    std::size_t completed = 0;
    std::array<WorkCompletion, 32> done;
    go = true;
    if (round % 2 == 0) pair.b.connection->abort();
    if (round % 2 == 1) (void)pair.a.connection->disconnect();
    while (poster.joinable() && completed < 100) {
      completed += pair.a.send_cq->poll(done);
      if (taken == 400) break;
    }
    poster.join();
    EXPECT_TRUE(eventually([&] {
      completed += pair.a.send_cq->poll(done);
      return completed >= taken;
    })) << completed
        << " of " << taken;
    EXPECT_EQ(pair.a.send_cq->poll(done), 0U);
    EXPECT_EQ(completed, taken.load());
  }
}

// Whoever finds that there is room may meet the poster, who is about to find none.
TEST(Progress, LargeWritesPostedWhileNobodyPollsAllComplete) {
  Host ours, theirs;  // a background thread each
  constexpr std::size_t kSize = 1U << 20U;
  Memory from(ours, kSize);
  Memory into(theirs, kSize);
  for (int round = 0; round < 12; ++round) {
    Endpoint a(ours), b(theirs);
    connect(ours, a, theirs, b);
    for (int burst = 0; burst < 8; ++burst) {
      for (std::uint64_t i = 0; i < 20; ++i) {
        post(*a.qp, wr_write(i, into.rkey(), into.to()), {from.sge()});
      }
      for (std::uint64_t i = 0; i < 20; ++i) take_success(*a.send_cq, i);
    }
  }
}

TEST(Progress, DestroyingAQueuePairDeliversWhatWasSent) {
  Host host;
  for (int round = 0; round < 30; ++round) {
    Endpoint server(host);
    {
      Endpoint client(host);
      connect(host, client, host, server);
      Memory from(host, 50000);
      Memory into(host, 50000);
      from.fill_pattern(static_cast<unsigned>(round));
      post_recv(*server.qp, 1, {into.sge()});
      post(*client.qp, wr_send(1), {from.sge()});
      take_success(*client.send_cq, 1);
      client.connection.reset();
      client.qp.reset();
      EXPECT_EQ(take_success(*server.recv_cq, 1).byte_len, 50000U);
      EXPECT_EQ(into.copy(0, 50000), from.copy(0, 50000));
    }
    const ConnectionEvent end = take_event(*server.events, Type::kDisconnected);
    EXPECT_FALSE(end.error.has_value()) << describe(*end.error);
  }
}

TEST(Progress, CountersDoNotFallWhenAQueuePairIsUsedAgain) {
  Host host;
  Endpoint client(host);
  Counters before{};
  for (int round = 0; round < 4; ++round) {
    Endpoint server(host);
    connect(host, client, host, server);
    post_recv(*server.qp, 1);
    post(*client.qp, wr_send(1));
    take_success(*client.send_cq, 1);
    take_success(*server.recv_cq, 1);
    const Counters now = host.device->counters();
    EXPECT_GT(now.tx_bytes, before.tx_bytes);
    EXPECT_GT(now.tx_messages[3], before.tx_messages[3]);
    before = now;
    must(client.connection->disconnect(), "disconnect");
    take_event(*client.events, Type::kDisconnected);
    ASSERT_TRUE(eventually([&] { return client.qp->modify(QpState::kReset).has_value(); }));
    must(client.qp->modify(QpState::kInit), "init");
    EXPECT_GE(host.device->counters().tx_bytes, before.tx_bytes);
  }
}

// CQs that no queue pair has tied at first, with connections up on both.
TEST(Progress, QueuePairsThatTieCompletionQueuesTakeTheirConnectionsAlong) {
  Host host;
  Endpoint first(host), second(host), first_peer(host), second_peer(host);
  connect(host, first, host, first_peer);
  connect(host, second, host, second_peer);
  QpOptions options;
  options.send_cq = first.send_cq;
  options.recv_cq = second.recv_cq;
  options.max_send_wr = options.max_recv_wr = 4;
  const auto tying = must(host.pd->create_qp(options), "create_qp");
  for (int round = 0; round < 50; ++round) {
    for (Endpoint* end : {&first, &second}) {
      Endpoint& peer = end == &first ? first_peer : second_peer;
      post_recv(*end->qp, 1);
      post(*peer.qp, wr_send(2));
      take_success(*end->recv_cq, 1);
      take_success(*peer.send_cq, 2);
    }
  }
}

// The peer stops reading and closes its side: waiting for room costs no spinning.
// As DAPL does it: the channel is emptied to EAGAIN, then the program sleeps in poll(2).
TEST(Progress, ANonBlockingChannelIsEmptiedAndThenSleptOnInPoll) {
  EndpointOptions options;
  options.with_channel = true;
  Pair pair(plain_config(), options);
  const int fd = pair.a.channel->fd();
  ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
  for (std::uint64_t round = 0; round < 300; ++round) {
    post_recv(*pair.a.qp, round);
    must(pair.a.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
    EXPECT_EQ(pair.a.channel->wait(std::nullopt).error(), Error::kTimedOut);
    post(*pair.b.qp, wr_send(round));
    pollfd wanted{fd, POLLIN, 0};
    ASSERT_EQ(poll(&wanted, 1, static_cast<int>(kPatience.count())), 1) << round;
    EXPECT_EQ(must(pair.a.channel->wait(std::nullopt), "wait"), pair.a.recv_cq.get());
    pair.a.recv_cq->ack_events(1);
    take_success(*pair.a.recv_cq, round);
    take_success(*pair.b.send_cq, round);
  }
}

// A caller with an event loop of its own: one completion of `cq`, slept for in poll(2).
void sleep_for_one(CompletionChannel& channel, CompletionQueue& cq, std::uint64_t id) {
  std::array<WorkCompletion, 1> done;
  for (;;) {
    while (const auto told = channel.wait(std::chrono::nanoseconds(0))) (*told)->ack_events(1);
    must(cq.arm(CompletionQueue::Arm::kNext), "arm");
    if (cq.poll(done) == 1) break;
    if (!channel.begin_sleep()) continue;
    pollfd wanted{channel.sleep_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&wanted, 1, static_cast<int>(kPatience.count())), 1) << "slept for " << id;
    channel.end_sleep();
  }
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[0].wr_id, id);
}

TEST(Progress, ALoopOfTheCallersSleepsAsWaitDoes) {
  for (const ProgressMode mode : {ProgressMode::kAuto, ProgressMode::kThread}) {
    Config config = plain_config();
    config.progress = mode;
    EndpointOptions options;
    options.with_channel = true;
    constexpr std::uint64_t kRounds = 2000;
    options.max_send_wr = kRounds;  // nobody polls for sends
    Pair pair(config, options, options);
    post_recv(*pair.a.qp, 0);
    post_recv(*pair.b.qp, 0);
    std::thread other([&] {
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        sleep_for_one(*pair.b.channel, *pair.b.recv_cq, round);
        post_recv(*pair.b.qp, round + 1);
        post(*pair.b.qp, wr_send(round, SendFlags::kNone));
      }
    });
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      post(*pair.a.qp, wr_send(round, SendFlags::kNone));
      sleep_for_one(*pair.a.channel, *pair.a.recv_cq, round);
      post_recv(*pair.a.qp, round + 1);
    }
    other.join();
    pair.a.channel->end_sleep();  // without a sleep: does nothing
  }
}

// Connections come and go, so descriptor numbers are used again, while others carry messages.
// Holds the thread that places octets.
class Gate final : public PlacementTarget {
 public:
  [[nodiscard]] Placed place(std::uint64_t, std::span<const std::uint8_t>) noexcept override {
    entered.store(true);
    (void)eventually([this] { return open.load(); });
    return Placed::kTaken;
  }
  std::atomic<bool> entered{false};
  std::atomic<bool> open{false};
};

// The pattern of verbs programs: arm, poll once more, sleep in poll(2). A poll that is quicker than
// the background takes its event, and may meet more than fits in one turn.
TEST(Progress, ACallerThatLooksBesideTheBackgroundLeavesNothingBehind) {
  constexpr int kWrites = 6000;  // more than a ring holds, and than a turn reads
  constexpr std::size_t kBytes = 64;
  Host writing;
  Host reading;
  EndpointOptions many;
  many.max_send_wr = kWrites + 1;
  EndpointOptions with_channel;
  with_channel.with_channel = true;
  Endpoint a(writing, many);
  Endpoint b(reading, with_channel);
  connect(writing, a, reading, b);
  Endpoint blocks(writing);
  Endpoint blocked(reading);
  connect(writing, blocks, reading, blocked);
  Memory from(writing, kBytes);
  Memory into(reading, kBytes);
  const auto gate = std::make_shared<Gate>();
  const auto held = must(register_target(*reading.pd, gate, kBytes), "register");
  // The path has changed by then, if it does.
  for (int i = 0; i < 20; ++i) {
    post_empty_recvs(*b.qp, 0, 1);
    post(*a.qp, wr_send(0));
    (void)take(*b.recv_cq);
    (void)take(*a.send_cq);
  }
  post_empty_recvs(*b.qp, 0, 1);

  post(*blocks.qp, wr_write(0, held->rkey(), held->iova()), {from.sge()});
  ASSERT_TRUE(eventually([&] { return gate->entered.load(); })) << "the background places";
  must(b.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
  const std::uint64_t before = writing.device->counters().tx_fpdus;
  for (int i = 0; i < kWrites; ++i) {
    post(*a.qp, wr_write(0, into.rkey(), into.to(), SendFlags::kNone), {from.sge()});
  }
  post(*a.qp, wr_send(1));
  ASSERT_TRUE(eventually([&] { return writing.device->counters().tx_fpdus - before > 2000; }));
  std::array<WorkCompletion, 1> done;
  const bool came = b.recv_cq->poll(done) != 0;
  gate->open.store(true);
  pollfd p{b.channel->fd(), POLLIN, 0};
  EXPECT_TRUE(came || poll(&p, 1, static_cast<int>(kPatience.count())) == 1);
  take_success(*blocks.send_cq, 0);
}

TEST(Progress, ReusedDescriptorsDeafenNobody) {
  Host host;
  std::atomic<bool> stop{false};
  std::thread churn([&] {
    while (!stop) {
      Endpoint a(host), b(host);
      connect(host, a, host, b);
      if (host.device->users() % 2 == 0) a.connection->abort();
    }
  });
  for (int round = 0; round < 40; ++round) {
    Endpoint a(host), b(host);
    connect(host, a, host, b);
    for (std::uint64_t i = 0; i < 20; ++i) {
      post_recv(*b.qp, i);
      post(*a.qp, wr_send(i));
      take_success(*b.recv_cq, i);
    }
  }
  stop = true;
  churn.join();
}

#if !defined(__SANITIZE_THREAD__)
TEST(Progress, AChildOfForkThatPollsItsParentsQueueTouchesNothing) {
  Pair pair;
  post_recv(*pair.a.qp, 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Connections are closed in a child, so that these get their numbers.
    std::array<std::array<int, 2>, 32> ends{};
    const std::string_view octets = "not ours";
    for (auto& [one, other] : ends) {
      std::array<int, 2> made{};
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, made.data()) != 0) _exit(3);
      one = made[0];
      other = made[1];
      for (const int end : made) {
        if (write(end, octets.data(), octets.size()) != ssize_t(octets.size())) _exit(3);
      }
    }
    std::array<WorkCompletion, 4> done;
    for (int i = 0; i < 2000; ++i) {
      if (pair.a.recv_cq->poll(done) != 0 || pair.b.send_cq->poll(done) != 0) _exit(1);
    }
    for (const auto& made : ends) {
      for (const int end : made) {
        std::array<char, 64> got{};
        const ssize_t n = recv(end, got.data(), got.size(), MSG_DONTWAIT);
        if (n < 0 || std::string_view(got.data(), std::size_t(n)) != octets) _exit(2);
      }
    }
    _exit(0);
  }
  post(*pair.b.qp, wr_send(7));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  take_success(*pair.a.recv_cq, 1);
}
#endif

}  // namespace
}  // namespace weft::test
