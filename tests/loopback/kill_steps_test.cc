// A process that is killed at every step of a connection's set-up and of its move to a ring: before
// each of its system calls, one after another. Whatever it has done by then, the other process gets
// back each request that it posted, and has no descriptor and no page left of it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <future>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/ring_mappings.h"
#include "support/weft_side.h"

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

enum class End { kKilled, kWhole, kGaveUp, kNotAllowed };

// Runs steps_child, and follows all of its threads from call to call. The kernel asks that one
// thread does all of this: that of run().
class Tracer {
 public:
  explicit Tracer(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {
    arguments_.insert(arguments_.begin(), WEFT_STEPS_CHILD);
    for (std::string& a : arguments_) argv_.push_back(a.data());
    argv_.push_back(nullptr);
  }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Kills the child before step `kill_at`, counted from its first mark. kWhole: it has come to its
  // second mark, and is killed there. kGaveUp: it has ended by itself. `line` is what it prints;
  // empty, if nothing.
  End run(int kill_at, std::promise<std::string> line) {
    std::array<int, 2> out;
    if (::pipe2(out.data(), O_CLOEXEC) != 0) return End::kNotAllowed;
    const pid_t child = ::fork();
    if (child == 0) become_child(out[1]);
    ::close(out[1]);
    // By a thread of its own: the child stands still unless this one goes on with it.
    std::thread reader([&] { line.set_value(read_line(out[0])); });
    const End end = follow(child, kill_at);
    reader.join();
    ::close(out[0]);
    return end;
  }

 private:
  [[noreturn]] void become_child(int out) {
    if (::dup2(out, STDOUT_FILENO) < 0) ::_exit(1);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0) ::execv(argv_[0], argv_.data());
    ::_exit(1);
  }
  static std::string read_line(int from) {
    std::string text;
    char c = 0;
    while (::read(from, &c, 1) == 1 && c != '\n') text += c;
    return text;
  }

  static End follow(pid_t child, int kill_at) {
    int status = 0;
    if (::waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return End::kNotAllowed;
    ::ptrace(PTRACE_SETOPTIONS, child, nullptr,
             PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
    int marks = 0;
    int steps = 0;
    pid_t thread = child;
    int signal = 0;
    while (true) {
      ::ptrace(PTRACE_SYSCALL, thread, nullptr, signal);
      thread = next_stop(status);
      if (thread < 0) return End::kGaveUp;
      signal = WSTOPSIG(status);
      const bool at_call = signal == (SIGTRAP | 0x80);
      // The others are of a new thread, or a new program.
      if (at_call || signal == SIGTRAP || signal == SIGSTOP) signal = 0;
      const long call = at_call ? entered(thread) : -1;
      if (call == SYS_getppid) ++marks;
      if (marks == 1 && is_a_step(call)) ++steps;
      if (marks == 2 || steps > kill_at) {
        ::kill(child, SIGKILL);
        while (next_stop(status) > 0) {
        }
        return marks == 2 ? End::kWhole : End::kKilled;
      }
    }
  }

  // The thread that has stopped; -1: all are gone.
  static pid_t next_stop(int& status) {
    while (true) {
      const pid_t thread = ::waitpid(-1, &status, __WALL | __WNOTHREAD);
      if (thread < 0 && errno == EINTR) continue;
      if (thread < 0 || WIFSTOPPED(status)) return thread;
    }
  }

  // The call that this thread is about to make; -1: it comes back from one.
  static long entered(pid_t thread) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return -1;
    return info.op == PTRACE_SYSCALL_INFO_ENTRY ? static_cast<long>(info.entry.nr) : -1;
  }

  // There is any number of pauses, and nothing changes in them.
  static bool is_a_step(long call) {
    return call >= 0 && call != SYS_nanosleep && call != SYS_clock_nanosleep;
  }

  std::vector<std::string> arguments_;
  std::vector<char*> argv_;
};

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// Our side of one connection with a process that is killed.
class Survivor {
 public:
  explicit Survivor(Host& host) : host_(host), end_(host) {}

  [[nodiscard]] std::string listen_here() {
    listener_ = listen(host_, end_.events);
    return std::to_string(listener_->local_address().port());
  }
  void connect_to(const std::string& port) {
    end_.connection = must(host_.device->create_connection(end_.events), "create a connection");
    must(end_.connection->connect(end_.qp, must(SocketAddress::parse("127.0.0.1:" + port), "parse"),
                                  {}),
         "connect");
  }

  // Waits for an event; false: none came in time.
  bool take_event(milliseconds patience) {
    const auto event = next_event(*end_.events, patience);
    if (!event) return false;
    if (event->type == Type::kConnectRequest) {
      end_.connection = event->connection;
      ended_ = !event->connection->accept(end_.qp, {});
    } else if (event->type == Type::kEstablished) {
      established_ = true;
      post_requests();
    } else {
      ended_ = true;
    }
    return true;
  }

  // The other process is dead. Nothing may be open that was posted.
  void settle() {
    while (!ended_ && take_event(established_ ? kPatience : kGlance)) {
    }
    EXPECT_TRUE(ended_ || !established_) << "nobody tells that the connection is over";
    // A connect that nobody answers is tried for long.
    if (!ended_ && end_.connection != nullptr) end_.connection->abort();
    if (!established_) return;
    expect_all(*end_.recv_cq);
    expect_all(*end_.send_cq);
  }

 private:
  static constexpr std::uint64_t kRequests = 3;

  void post_requests() {
    post_empty_recvs(*end_.qp, 1, kRequests);
    for (std::uint64_t id = 1; id <= kRequests; ++id) post(*end_.qp, wr_send(id));
  }
  static void expect_all(CompletionQueue& cq) {
    std::vector<std::uint64_t> ids;
    for (const WorkCompletion& wc : take_n(cq, kRequests)) ids.push_back(wc.wr_id);
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(ids, (std::vector<std::uint64_t>{1, 2, 3}));
    EXPECT_TRUE(quiet(cq, milliseconds(0)));
  }

  Host& host_;
  Endpoint end_;
  std::shared_ptr<Listener> listener_;
  bool established_ = false;
  bool ended_ = false;
};

// One connection with a child that is killed before its step `kill_at`.
End kill_one(Host& host, bool child_connects, int kill_at) {
  Survivor survivor(host);
  std::vector<std::string> arguments{"listen"};
  if (child_connects) arguments = {"connect", survivor.listen_here()};
  Tracer tracer(std::move(arguments));
  std::promise<std::string> line;
  auto said = line.get_future();
  auto done = std::async(std::launch::async, [&, promise = std::move(line)]() mutable {
    return tracer.run(kill_at, std::move(promise));
  });
  const std::string port = said.get();
  if (!child_connects && !port.empty()) survivor.connect_to(port);
  while (done.wait_for(milliseconds(0)) != std::future_status::ready) {
    static_cast<void>(survivor.take_event(milliseconds(1)));
  }
  const End end = done.get();
  if (end != End::kNotAllowed) survivor.settle();
  return end;
}

// A child with AddressSanitizer takes ten times as long to start: each third step is enough then.
#ifdef __SANITIZE_ADDRESS__
constexpr int kStride = 3;
#else
constexpr int kStride = 1;
#endif

void kill_at_each_step(bool child_connects) {
  constexpr int kStepsMax = 1000;
  constexpr int kStepsMin = 30;
  Config config = plain_config();
  config.path = PathMode::kRing;
  Host host(config);
  static_cast<void>(kill_one(host, child_connects, 0));  // what the device opens stays
  const std::ptrdiff_t before = open_descriptors();
  int step = 0;
  End end = End::kKilled;
  while (end == End::kKilled && step < kStepsMax) {
    SCOPED_TRACE("killed before step " + std::to_string(step));
    end = kill_one(host, child_connects, step);
    step += kStride;
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  if (end == End::kNotAllowed) GTEST_SKIP() << "no right to trace a process";
  EXPECT_EQ(end, End::kWhole) << "the child does not come to the ring";
  EXPECT_GT(step, kStepsMin) << "the steps are not counted";
  EXPECT_TRUE(eventually([] { return ring_mappings() == 0; }));
  EXPECT_TRUE(eventually([&] { return open_descriptors() == before; }))
      << open_descriptors() << " descriptors, " << before << " before";
}

TEST(KilledAtEachStep, WhileItConnectsAndMovesToTheRing) { kill_at_each_step(true); }

TEST(KilledAtEachStep, WhileItAcceptsAndMovesToTheRing) { kill_at_each_step(false); }

}  // namespace
}  // namespace weft::test
