// Where there is no memory, or no more threads: a call says so, a connection ends, and the process
// goes on.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>

#include "exs_support.h"
#include "support/nth_fails.h"

namespace weft::exs_test {
namespace {

using test::each_fails;
using test::Fails;
using test::NthFails;

// An engine is started once in a process, so each attempt has one of its own. First: what the
// others start, a child does not have.
TEST(NoMemory, TheLibraryIsStartedOrNot) {
  enum Outcome { kGood = 10, kNothingFailed, kWrong };
  for (const Fails kind : {Fails::kAllocation, Fails::kSystemCall}) {
    int outcome = kGood;
    for (int n = 1; outcome == kGood; ++n) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        NthFails fails(kind, n);
        const int started = fails.during([] { return exs_init(EXS_VERSION); });
        const bool right = started == 0 || (started == -1 && fails.has_failed());
        if (!right || exs_init(EXS_VERSION) != 0) _exit(kWrong);
        _exit(fails.has_failed() ? kGood : kNothingFailed);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status)) << "call " << n << ": signal " << WTERMSIG(status);
      outcome = WEXITSTATUS(status);
      EXPECT_NE(outcome, kWrong) << "call " << n;
    }
    EXPECT_EQ(outcome, kNothingFailed);
  }
}

// Each allocation of `call` fails once: it says ENOMEM and has changed nothing, or does without.
// `undo` gets what it has returned otherwise.
void expect_enomem_or_success(const std::function<long()>& call,
                              const std::function<void(long)>& undo) {
  each_fails(Fails::kAllocation, [&](NthFails& fails) {
    errno = 0;
    const long got = fails.during(call);
    if (got >= 0) return undo(got);
    EXPECT_TRUE(fails.has_failed()) << std::strerror(errno);
    EXPECT_EQ(errno, ENOMEM) << fails.name();
  });
}

TEST(NoMemory, ThingsAreMadeOrNot) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  expect_enomem_or_success(
      [] { return exs_socket(AF_INET, SOCK_STREAM, 0); },
      [](long fd) { EXPECT_EQ(exs_close(static_cast<int>(fd), kBlock, 0), 0); });
  expect_enomem_or_success([] { return exs_qcreate(10); },
                           [](long q) { EXPECT_EQ(exs_qdelete(static_cast<int>(q)), 0); });
  char memory[100];
  expect_enomem_or_success([&] { return exs_mregister(memory, sizeof memory, 0); },
                           [](long mh) { EXPECT_EQ(exs_mderegister(static_cast<int>(mh)), 0); });
}

// Operations of a connection: each that was posted has its event, and no other.
TEST(NoMemory, OperationsArePostedOrNot) {
  for (const Way& way : {kTcp, kTcpPacket}) {
    SCOPED_TRACE(name_of(way));
    each_fails(Fails::kAllocation, [&](NthFails& fails) {
      Pair pair(way);
      char in[64];
      int posted = 0;
      fails.during([&] {
        for (int i = 0; i < 20; ++i) {
          if (exs_recv(pair.right, in, sizeof in, 0, pair.right_q, tag(7), kPlain) == 0) ++posted;
        }
        return 0;
      });
      EXPECT_GE(posted, fails.has_failed() ? 19 : 20) << fails.name();
      ASSERT_EQ(exs_cancel(pair.right, EXS_CAF_FILDES, 0), 0);
      for (; posted > 0; --posted) EXPECT_EQ(next_event(pair.right_q).ahandle, tag(7));
      exs_event_t none;
      const timeval now{0, 0};
      EXPECT_EQ(exs_qdequeue(pair.right_q, &none, 1, &now), 0);
    });
  }
}

TEST(NoMemory, PollLooksOrNot) {
  Pair pair(kTcp);
  exs_pollfd_t ready{pair.right, EXS_POLLIN, 0};
  ASSERT_EQ(exs_send(pair.left, "x", 1, 0, kBlock, 0, kPlain), 1);
  while (exs_poll(&ready, 1, 0, kBlock, 0) != 1) continue;
  expect_enomem_or_success([&] { return exs_poll(&ready, 1, 0, kBlock, 0); },
                           [](long count) { EXPECT_EQ(count, 1); });
}

// AddressSanitizer needs more addresses than there are then.
#if !defined(__SANITIZE_ADDRESS__)

std::size_t address_space() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Serves at a port that it writes to `told`, with memory for a few connections, until `over`.
[[noreturn]] void serve(int told, int over) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody else would end it
  constexpr long kRing = 64L << 20;
  const Listener listener(kStream, {{EXS_F_SETRING, kRing}});
  if (write(told, &listener.port, sizeof listener.port) != sizeof listener.port) _exit(1);
  const exs_qhandle_t q = exs_qcreate(64);
  for (int i = 0; i < 32; ++i) {
    if (exs_accept(listener.fd, nullptr, 0, 0, q, 0) != 0) _exit(2);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0) _exit(3);
  limit.rlim_cur = std::min<rlim_t>(address_space() + 300UL * 1024UL * 1024UL, limit.rlim_max);
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(3);
  char byte = 0;
  _exit(read(over, &byte, 1) == 1 ? 0 : 4);
}

TEST(NoMemory, PeersThatConnectWithoutEndDoNotEndTheServer) {
  int told[2];
  int over[2];
  ASSERT_EQ(pipe(told), 0);
  ASSERT_EQ(pipe(over), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) serve(told[1], over[0]);
  std::uint16_t port = 0;
  ASSERT_EQ(read(told[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  std::vector<int> sockets;
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    sockets.push_back(new_socket(kStream));
    Endpoint to = loopback(AF_INET, port);
    if (exs_connect(sockets.back(), to.get(), to.length, 0, kBlock, 0) != 0) ++refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(write(over[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  for (const int fd : sockets) close_now(fd);
  for (const int fd : {told[0], told[1], over[0], over[1]}) close(fd);
}
#endif

}  // namespace
}  // namespace weft::exs_test
