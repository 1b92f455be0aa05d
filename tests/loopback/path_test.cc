// Connections inside one machine that move from TCP to a ring of shared memory, and back.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "support/ring_mappings.h"
#include "support/weft_side.h"

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;
using std::chrono::seconds;

Config path_config(PathMode path) {
  Config config = plain_config();
  config.path = path;
  return config;
}

// Sockets of TCP and bells.
std::size_t open_sockets() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    count += target.starts_with("socket:") || target.find("memfd:") != std::string::npos ? 1 : 0;
  }
  return count;
}

// Those that the test program got from its parent.
const std::size_t kSocketsAtStart = open_sockets();

// Sends `size` octets from one to the other, and checks them.
void send_across(Host& host, Endpoint& from, Endpoint& to, std::size_t size, unsigned seed) {
  Memory source(host, size);
  Memory sink(host, size);
  source.fill_pattern(seed);
  post_recv(*to.qp, seed, {sink.sge()});
  post(*from.qp, wr_send(seed), {source.sge()});
  EXPECT_EQ(take_success(*to.recv_cq, seed).byte_len, size);
  take_success(*from.send_cq, seed);
  EXPECT_EQ(sink.copy(0, size), source.copy(0, size));
  EXPECT_TRUE(sink.guards_intact());
}

template <class Two>
bool both_on(const Two& pair, std::string_view path) {
  return pair.a.connection->info().path == path && pair.b.connection->info().path == path;
}

// Messages in both directions until the change is over, since it goes with the stream.
template <class Two>
bool comes_to(Two& pair, std::string_view path) {
  for (unsigned turn = 1; turn < 1000; ++turn) {
    send_across(pair.host, pair.a, pair.b, 100, turn);
    send_across(pair.host, pair.b, pair.a, 100, turn);
    if (both_on(pair, path)) return true;
  }
  return false;
}

// Connections of one host with itself, one after another, by the same listener.
struct Caller {
  // Those of the test before go when their connections have ended.
  Caller() {
    EXPECT_TRUE(eventually([] { return ring_mappings() == 0U; }));
  }
  Host host{path_config(PathMode::kAuto)};
  std::shared_ptr<EventChannel> requests = must(EventChannel::create(), "create a channel");
  std::shared_ptr<Listener> listener = listen(host, requests);
};

struct Call {
  explicit Call(Caller& caller) : host(caller.host), a(host), b(host) {
    a.connection = must(host.device->create_connection(a.events), "create a connection");
    must(a.connection->connect(a.qp, caller.listener->local_address(), {}), "connect");
    b.connection = take_event(*caller.requests, Type::kConnectRequest).connection;
    must(b.connection->accept(b.qp, {}), "accept");
    take_event(*a.events, Type::kEstablished);
    take_event(*caller.requests, Type::kEstablished);
  }
  Host& host;
  Endpoint a;
  Endpoint b;
};

enum class End { kOrderly, kAbort };

// A connection that comes to the ring, and ends. Returns the rings that were mapped meanwhile.
std::set<std::string> rings_of_one_call(Caller& caller, End end) {
  Call call(caller);
  EXPECT_TRUE(comes_to(call, "ring"));
  std::set<std::string> rings = mapped_rings();
  if (end == End::kAbort) {
    call.a.connection->abort();
  } else {
    must(call.a.connection->disconnect(), "disconnect");
    static_cast<void>(take_event(*call.a.events, Type::kDisconnected));
  }
  static_cast<void>(take_event(*caller.requests, Type::kDisconnected));
  return rings;
}

TEST(Path, AutoMovesToTheRingWithTheFirstMessagesAndNotBefore) {
  Pair pair(path_config(PathMode::kAuto));
  EXPECT_TRUE(both_on(pair, "tcp"));
  EXPECT_EQ(ring_mappings(), 0U) << "an idle connection costs no memory";
  EXPECT_TRUE(comes_to(pair, "ring"));
  EXPECT_EQ(ring_mappings(), 2U);
}

TEST(Path, TcpStaysOnTcp) {
  Pair pair(path_config(PathMode::kTcp));
  for (unsigned turn = 1; turn < 20; ++turn) send_across(pair.host, pair.a, pair.b, 1000, turn);
  EXPECT_TRUE(both_on(pair, "tcp"));
  // Those of the test before go when their connections have ended.
  EXPECT_TRUE(eventually([] { return ring_mappings() == 0U; }));
}

TEST(Path, MessagesOfAllSizesCrossWhileItMoves) {
  for (const bool crc : {true, false}) {
    for (const bool markers : {true, false}) {
      SCOPED_TRACE(std::to_string(crc) + std::to_string(markers));
      Config config = path_config(PathMode::kAuto);
      config.crc = crc;
      config.markers = markers;
      Pair pair(config);
      unsigned seed = 1;
      for (const std::size_t size : {1U, 64U, 5000U, 70'000U, 1'000'000U, 3'000'000U, 17U}) {
        send_across(pair.host, pair.a, pair.b, size, seed++);
        send_across(pair.host, pair.b, pair.a, size, seed++);
      }
      EXPECT_TRUE(both_on(pair, "ring"));
    }
  }
}

TEST(Path, ReadsWritesAndAtomicsWorkOnTheRing) {
  Pair pair(path_config(PathMode::kAuto));
  ASSERT_TRUE(comes_to(pair, "ring"));
  constexpr std::size_t kSize = 2'000'000;
  Memory here(pair.host, kSize);
  Memory there(pair.host, kSize);
  here.fill_pattern(9);
  post(*pair.a.qp, wr_write(1, there.rkey(), there.to()), {here.sge()});
  take_success(*pair.a.send_cq, 1);
  Memory back(pair.host, kSize);
  post(*pair.a.qp, wr_read(2, there.rkey(), there.to()), {back.sge()});
  take_success(*pair.a.send_cq, 2);
  EXPECT_EQ(back.copy(0, kSize), here.copy(0, kSize));
  there.store64(0, 40);
  Memory old(pair.host, 8);
  post(*pair.a.qp, wr_fetch_add(3, there.rkey(), there.to(), 2), {old.sge()});
  take_success(*pair.a.send_cq, 3);
  EXPECT_EQ(old.load64(0), 40U);
  EXPECT_EQ(there.load64(0), 42U);
}

TEST(Path, ViolationOnTheRingIsATerminate) {
  Pair pair(path_config(PathMode::kAuto));
  ASSERT_TRUE(comes_to(pair, "ring"));
  Memory memory(pair.host, 100);
  post(*pair.a.qp, wr_write(1, memory.rkey() ^ 1U, memory.to()), {memory.sge()});
  EXPECT_TRUE(take_event(*pair.a.events, Type::kDisconnected).error.has_value());
  EXPECT_TRUE(take_event(*pair.b.events, Type::kDisconnected).error.has_value());
}

TEST(Path, DisconnectFlushesAndLeavesNothingBehind) {
  {
    Pair pair(path_config(PathMode::kAuto));
    ASSERT_TRUE(comes_to(pair, "ring"));
    post_recv(*pair.b.qp, 77);
    must(pair.a.connection->disconnect(), "disconnect");
    EXPECT_EQ(take(*pair.b.recv_cq).status, WcStatus::kFlushed);
    EXPECT_FALSE(take_event(*pair.a.events, Type::kDisconnected).error.has_value());
    EXPECT_FALSE(take_event(*pair.b.events, Type::kDisconnected).error.has_value());
  }
  EXPECT_TRUE(eventually([&] { return ring_mappings() == 0; }));
  EXPECT_TRUE(eventually([&] { return open_sockets() == kSocketsAtStart; }));
}

// One connection after another between the same two: each has a ring, and all have the same.
TEST(Path, RingOfAConnectionThatIsOverServesTheNext) {
  Caller caller;
  const std::set<std::string> first = rings_of_one_call(caller, End::kOrderly);
  ASSERT_EQ(first.size(), 1U);
  for (int turn = 0; turn < 5; ++turn) EXPECT_EQ(rings_of_one_call(caller, End::kOrderly), first);
}

// Its two ends need not have come as far as each other.
TEST(Path, RingThatWasCutOffServesNobody) {
  Caller caller;
  const std::set<std::string> first = rings_of_one_call(caller, End::kAbort);
  const std::set<std::string> second = rings_of_one_call(caller, End::kOrderly);
  EXPECT_FALSE(std::includes(first.begin(), first.end(), second.begin(), second.end()));
}

TEST(Path, KeptRingsAreGivenBack) {
  Caller caller;
  static_cast<void>(rings_of_one_call(caller, End::kOrderly));
  EXPECT_TRUE(eventually([] { return ring_mappings() == 0; }));
}

TEST(Path, AbortIsSeenByThePeer) {
  Pair pair(path_config(PathMode::kAuto));
  ASSERT_TRUE(comes_to(pair, "ring"));
  pair.a.connection->abort();
  EXPECT_TRUE(take_event(*pair.b.events, Type::kDisconnected).error.has_value());
}

TEST(Path, PeerThatStaysOnTcpIsRefusedTheRingAndServedAllTheSame) {
  for (const bool active_is_auto : {true, false}) {
    Host active_host(path_config(active_is_auto ? PathMode::kAuto : PathMode::kTcp));
    Host passive_host(path_config(active_is_auto ? PathMode::kTcp : PathMode::kAuto));
    Endpoint a(active_host);
    Endpoint b(passive_host);
    connect(active_host, a, passive_host, b);
    for (unsigned turn = 1; turn < 30; ++turn) {
      Memory source(active_host, 500);
      Memory sink(passive_host, 500);
      source.fill_pattern(turn);
      post_recv(*b.qp, turn, {sink.sge()});
      post(*a.qp, wr_send(turn), {source.sge()});
      take_success(*b.recv_cq, turn);
      take_success(*a.send_cq, turn);
      ASSERT_EQ(sink.copy(0, 500), source.copy(0, 500));
    }
    EXPECT_EQ(a.connection->info().path, "tcp");
    EXPECT_EQ(b.connection->info().path, "tcp");
    EXPECT_TRUE(eventually([] { return ring_mappings() == 0U; })) << "perhaps of the test before";
  }
}

TEST(Path, RingOrNothingEndsAConnectionThatCannotHaveIt) {
  Host active_host(path_config(PathMode::kRing));
  Host passive_host(path_config(PathMode::kTcp));
  Endpoint a(active_host);
  Endpoint b(passive_host);
  connect(active_host, a, passive_host, b);
  EXPECT_TRUE(take_event(*a.events, Type::kDisconnected).error.has_value());
  EXPECT_TRUE(take_event(*b.events, Type::kDisconnected).error.has_value());
}

TEST(Path, RingOrNothingMovesWithoutAMessage) {
  Pair pair(path_config(PathMode::kRing));
  EXPECT_TRUE(eventually([&] { return both_on(pair, "ring"); }));
}

TEST(Path, IdleRingIsGivenBackAndTakenAgain) {
  Config config = path_config(PathMode::kAuto);
  config.ring_idle = milliseconds(20);
  Pair pair(config);
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(comes_to(pair, "ring"));
    ASSERT_TRUE(eventually([&] { return both_on(pair, "tcp") && ring_mappings() == 0; }));
  }
}

// Descriptors that an epoll of this process still watches although they are closed here.
std::size_t watched_after_close() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find("[eventpoll]") == std::string::npos) continue;
    std::ifstream lines("/proc/self/fdinfo/" + entry.path().filename().string());
    for (std::string line; std::getline(lines, line);) {
      int fd = -1;
      unsigned long inode = 0;
      if (std::sscanf(line.c_str(), "tfd: %d events: %*x data: %*x pos:%*i ino:%lx", &fd, &inode) !=
          2) {
        continue;
      }
      struct stat now {};
      if (fstat(fd, &now) != 0 || now.st_ino != inode) ++count;
    }
  }
  return count;
}

// A child with all descriptors of this process that does nothing, as one of vfork() before exec:
// fork() would close the connections in it.
class ChildThatHoldsAll {
 public:
  ChildThatHoldsAll() : pid_(static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))) {
    while (pid_ == 0) syscall(SYS_ppoll, nullptr, 0, nullptr, nullptr, 0);
    if (pid_ < 0) throw Failure("no child");
  }
  ~ChildThatHoldsAll() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ChildThatHoldsAll(const ChildThatHoldsAll&) = delete;
  ChildThatHoldsAll& operator=(const ChildThatHoldsAll&) = delete;

 private:
  const pid_t pid_;
};

// Whoever has the bell open rings it, and the connection may be gone by then.
TEST(Path, EpollForgetsABellThatAChildHasOpenToo) {
  Config config = path_config(PathMode::kAuto);
  config.ring_idle = milliseconds(20);
  Pair pair(config);
  ASSERT_TRUE(comes_to(pair, "ring"));
  const ChildThatHoldsAll child;
  ASSERT_TRUE(eventually([&] { return both_on(pair, "tcp") && ring_mappings() == 0; }));
  EXPECT_EQ(watched_after_close(), 0U);
}

// One turn takes so many reads and no more; what it leaves has been reported already.
TEST(Path, WhatAReceiveLeavesUnreadIsReadSoon) {
  Config config = path_config(PathMode::kAuto);
  config.recv_wait = std::chrono::seconds(60);
  EndpointOptions options;
  options.max_send_wr = 128;
  Pair pair(config, options, options);
  ASSERT_TRUE(comes_to(pair, "ring"));
  constexpr std::size_t kBytes = 3000;
  constexpr std::uint64_t kWrites = 60;
  Memory from(pair.host, kBytes);
  Memory into(pair.host, kBytes);
  post(*pair.a.qp, wr_send(1000));  // it waits for its receive, and all the others behind it
  for (std::uint64_t id = 0; id < kWrites; ++id) {
    post(*pair.a.qp, wr_write(id, into.rkey(), into.to()), {from.sge()});
  }
  post(*pair.a.qp, wr_send(1001));
  take_success(*pair.a.send_cq, 1000);
  for (std::uint64_t id = 0; id < kWrites; ++id) take_success(*pair.a.send_cq, id);
  take_success(*pair.a.send_cq, 1001);
  // Nobody polls for a while: the background has the connection, and rests.
  std::this_thread::sleep_for(milliseconds(100));
  post_recv(*pair.b.qp, 1);
  post_recv(*pair.b.qp, 2);
  take_success(*pair.b.recv_cq, 1);
  take_success(*pair.b.recv_cq, 2);
}

TEST(Path, SleeperOnTheRingIsWoken) {
  EndpointOptions options;
  options.with_channel = true;
  Pair pair(path_config(PathMode::kAuto), options, options);
  ASSERT_TRUE(comes_to(pair, "ring"));
  for (unsigned turn = 1; turn < 50; ++turn) {
    post_recv(*pair.b.qp, turn);
    must(pair.b.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
    post(*pair.a.qp, wr_send(turn));
    ASSERT_TRUE(pair.b.channel->wait(kPatience).has_value());
    take_success(*pair.b.recv_cq, turn);
    take_success(*pair.a.send_cq, turn);
  }
}

}  // namespace
}  // namespace weft::test
