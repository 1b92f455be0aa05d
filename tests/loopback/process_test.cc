// Two processes: either may be killed at any time; a fork leaves parent and child each with a clean
// device.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "flood.h"

extern char** environ;

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

// A process that dies with the test.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments) {
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) throw Failure("pipe");
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::vector<std::string> copies = arguments;
    copies.insert(copies.begin(), WEFT_FLOOD_CHILD);
    std::vector<char*> argv;
    for (std::string& a : copies) argv.push_back(a.data());
    argv.push_back(nullptr);
    const int failed = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    out_ = out[0];
    if (failed != 0) throw Failure("cannot start " + copies[0]);
  }
  ~Child() {
    kill();
    ::close(out_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  std::string line() {
    std::string text;
    char c = 0;
    while (::read(out_, &c, 1) == 1 && c != '\n') text += c;
    return text;
  }
  void signal(int number) const { ::kill(pid_, number); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // The exit code, or -1 after a signal.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

bool no_ring_is_mapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("weft-ring") != std::string::npos) return false;
  }
  return true;
}

// Floods for a while, kills the child in the middle of it, and settles the account.
void expect_clean_loss(Host& host, Flood& flood, Child& child, int steps) {
  (void)host;
  for (int i = 0; i < steps; ++i) ASSERT_TRUE(flood.step()) << flood.state();
  child.kill();
  EXPECT_TRUE(flood.settle()) << flood.state();
  const ConnectionEvent end = take_event(*flood.endpoint.events, Type::kDisconnected);
  EXPECT_EQ(flood.endpoint.qp->state(), QpState::kError);
  EXPECT_TRUE(eventually(no_ring_is_mapped)) << "memory shared with the dead process";
}

TEST(Processes, KilledActiveSideLeavesEveryRequestCompletedOnce) {
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    Host host;
    Flood flood(host, 100U + static_cast<unsigned>(round));
    flood.post_receives();
    const auto listener = listen(host, flood.endpoint.events);
    Child child(
        {"connect", std::to_string(listener->local_address().port()), std::to_string(round)});
    flood.accept();
    expect_clean_loss(host, flood, child, 1 + round * round * 20);
  }
}

TEST(Processes, KilledPassiveSideLeavesEveryRequestCompletedOnce) {
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    Host host;
    Flood flood(host, 200U + static_cast<unsigned>(round));
    flood.post_receives();
    Child child({"listen", std::to_string(round)});
    const std::string port = child.line();
    ConnectionParams params;
    params.private_data = flood.here().bytes();
    flood.endpoint.connection =
        must(host.device->create_connection(flood.endpoint.events), "create a connection");
    must(flood.endpoint.connection->connect(
             flood.endpoint.qp, must(SocketAddress::parse("127.0.0.1:" + port), "parse"), params),
         "connect");
    const ConnectionEvent event = take_event(*flood.endpoint.events, Type::kEstablished);
    flood.peer = FloodTarget::from(event.private_data);
    expect_clean_loss(host, flood, child, 1 + round * round * 20);
  }
}

TEST(Processes, KilledDuringSetUpIsAFailedConnect) {
  for (const int after_ms : {0, 1, 3, 10, 30}) {
    SCOPED_TRACE(after_ms);
    Host host;
    Endpoint endpoint(host);
    Child child({"listen", "1"});
    const std::string port = child.line();
    endpoint.connection = must(host.device->create_connection(endpoint.events), "create");
    ConnectionParams params;
    params.private_data = FloodTarget{}.bytes();
    must(endpoint.connection->connect(
             endpoint.qp, must(SocketAddress::parse("127.0.0.1:" + port), "parse"), params),
         "connect");
    std::this_thread::sleep_for(milliseconds(after_ms));
    child.kill();
    auto event = next_event(*endpoint.events);
    ASSERT_TRUE(event.has_value());
    if (event->type == Type::kEstablished) {
      event = next_event(*endpoint.events);
      ASSERT_TRUE(event.has_value());
      EXPECT_EQ(event->type, Type::kDisconnected);
    }
  }
}

// A peer's process that is stopped, in the middle of a flood.
struct Stopped {
  explicit Stopped(const Config& config)
      : host(config),
        flood(host, 5),
        listener(listen(host, flood.endpoint.events)),
        child({"connect", std::to_string(listener->local_address().port()), "5"}) {
    flood.post_receives();
    flood.accept();
    for (int i = 0; i < 500; ++i) EXPECT_TRUE(flood.step()) << flood.state();
    // A Read that is not answered would keep what is posted behind it from leaving.
    EXPECT_TRUE(flood.rest()) << flood.state();
    child.signal(SIGSTOP);
  }
  // Goes on with the flood, which comes to a stop. What the connection says meanwhile, if anything.
  std::optional<ConnectionEvent> watch(milliseconds patience) {
    std::optional<ConnectionEvent> event;
    static_cast<void>(eventually(
        [&] {
          EXPECT_TRUE(flood.step()) << flood.state();
          event = next_event(*flood.endpoint.events, milliseconds(1));
          return event.has_value();
        },
        patience));
    return event;
  }

  Host host;
  Flood flood;
  std::shared_ptr<Listener> listener;
  Child child;
};

// Keep-alive asks for the peer's host, which lives.
TEST(Processes, PeerThatIsStoppedForLongerThanKeepaliveIsWaitedFor) {
  Config config = plain_config();
  config.keepalive = std::chrono::seconds(1);
  config.user_timeout = std::chrono::seconds(0);
  Stopped peer(config);
  EXPECT_FALSE(peer.watch(milliseconds(3500)).has_value());
  peer.child.signal(SIGCONT);
  const std::uint64_t before = peer.flood.succeeded();
  EXPECT_TRUE(eventually([&] {
    return peer.flood.step() && peer.flood.succeeded() > before + 500;
  })) << peer.flood.state();
}

TEST(Processes, PeerThatTakesNothingForLongerThanUserTimeoutIsGivenUp) {
  Config config = plain_config();
  config.user_timeout = std::chrono::seconds(1);
  Stopped peer(config);
  peer.flood.pour();
  const auto event = peer.watch(kPatience);
  ASSERT_TRUE(event.has_value()) << "it is waited for without end";
  EXPECT_EQ(event->type, Type::kDisconnected);
  EXPECT_TRUE(event->error.has_value());
  EXPECT_TRUE(peer.flood.settle()) << peer.flood.state();
}

// The peer's process ends by itself, after an orderly disconnect: it saw a clean end too.
TEST(Processes, OrderlyDisconnectIsSeenByTheOtherProcess) {
  Host host;
  Flood flood(host, 7);
  flood.post_receives();
  const auto listener = listen(host, flood.endpoint.events);
  Child child({"connect", std::to_string(listener->local_address().port()), "1"});
  flood.accept();
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(flood.step());
  must(flood.endpoint.connection->disconnect(), "disconnect");
  EXPECT_TRUE(flood.settle()) << flood.state();
  EXPECT_EQ(child.wait(), 0);
}

// The socket was connected before the child went to another network namespace: its addresses say
// that both are on one machine, but they cannot find each other there. With path=auto TCP carries
// all.
TEST(Processes, AnotherNetworkNamespaceStaysOnTcp) {
  Config config = plain_config();
  config.path = PathMode::kAuto;
  Host host(config);
  Flood flood(host, 9);
  flood.post_receives();
  const auto listener = listen(host, flood.endpoint.events);
  Child child({"apart", std::to_string(listener->local_address().port()), "1"});
  const auto event = next_event(*flood.endpoint.events);
  if (!event) {
    if (child.wait() == 77) GTEST_SKIP() << "no right to make a network namespace";
    FAIL() << "no connect request came";
  }
  ASSERT_EQ(event->type, Type::kConnectRequest);
  flood.peer = FloodTarget::from(event->private_data);
  ConnectionParams params;
  params.private_data = flood.here().bytes();
  flood.endpoint.connection = event->connection;
  must(event->connection->accept(flood.endpoint.qp, params), "accept");
  take_event(*flood.endpoint.events, Type::kEstablished);
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(flood.step());
  ASSERT_TRUE(eventually([&] { return flood.step() && flood.succeeded() > 500; })) << flood.state();
  EXPECT_EQ(flood.endpoint.connection->info().path, "tcp");
  EXPECT_TRUE(eventually(no_ring_is_mapped)) << "perhaps of the test before";
  must(flood.endpoint.connection->disconnect(), "disconnect");
  EXPECT_TRUE(flood.settle()) << flood.state();
  EXPECT_EQ(child.wait(), 0);
}

// Runs `body` in a forked child; true if it returned true.
template <class Body>
bool in_child(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(30);
    bool ok = false;
    try {
      ok = body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "child: %s\n", e.what());
    }
    ::_exit(ok ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool ping(Pair& pair, std::uint64_t id) {
  post_recv(*pair.b.qp, id);
  post(*pair.a.qp, wr_send(id));
  take_success(*pair.b.recv_cq, id);
  take_success(*pair.a.send_cq, id);
  return true;
}

TEST(Fork, ChildOpensItsOwnDeviceAndTheParentGoesOn) {
  if (!WEFT_FORK_WORKS) GTEST_SKIP() << "the sanitizer ends a child that makes threads";
  Pair pair;
  ping(pair, 1);
  EXPECT_TRUE(in_child([] {
    Pair own;
    return ping(own, 1);
  }));
  ping(pair, 2);
  EXPECT_EQ(pair.a.qp->state(), QpState::kRts);
}

TEST(Fork, ObjectsOfTheParentAreRefusedInTheChildAndUntouched) {
  if (!WEFT_FORK_WORKS) GTEST_SKIP() << "the sanitizer ends a child that makes threads";
  auto pair = std::make_unique<Pair>();
  Memory memory(pair->host, 64);
  ping(*pair, 1);
  EXPECT_TRUE(in_child([&] {
    std::vector<std::uint8_t> bytes(8);
    const auto refused = [](Error e) { return e == Error::kBadState; };
    bool ok = refused(pair->a.qp->post_send(wr_send(9)).error());
    const auto region = pair->host.pd->register_memory(bytes.data(), 8, Access::kNone);
    ok = ok && !region && refused(region.error());
    const auto pd = pair->host.device->create_pd();
    ok = ok && !pd && refused(pd.error());
    WorkCompletion wc;
    ok = ok && pair->b.recv_cq->poll(std::span(&wc, 1)) == 0;
    // Dropping them does nothing to the parent's connection.
    memory.region.reset();
    pair.reset();
    return ok;
  }));
  ping(*pair, 2);
  post(*pair->a.qp, wr_write(3, memory.rkey(), memory.to()), {memory.sge(0, 8)});
  take_success(*pair->a.send_cq, 3);
}

TEST(Fork, ForkBeforeOpenChangesNothing) {
  if (!WEFT_FORK_WORKS) GTEST_SKIP() << "the sanitizer ends a child that makes threads";
  EXPECT_TRUE(in_child([] {
    Pair own;
    return ping(own, 1);
  }));
  Pair pair;
  ping(pair, 1);
}

TEST(Fork, ChildThatExitsAtOnceLeavesTheConnectionUp) {
  if (!WEFT_FORK_WORKS) GTEST_SKIP() << "the sanitizer ends a child that makes threads";
  Pair pair;
  for (std::uint64_t id = 1; id <= 5; ++id) {
    EXPECT_TRUE(in_child([] { return true; }));
    ping(pair, id);
  }
  EXPECT_FALSE(next_event(*pair.a.events, milliseconds(20)).has_value());
}

}  // namespace
}  // namespace weft::test
