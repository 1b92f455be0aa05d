// What outlives what: queues that are deleted, descriptors that are lost, processes that fork.
#include <poll.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "../support/cancelled.h"
#include "../support/descriptor_limit.h"
#include "exs_support.h"

namespace weft::exs_test {
namespace {

TEST(Life, AThreadThatWaitsForADeletedQueueIsTold) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  for (const int wait : {EXS_WAIT_ADAPTIVE, EXS_WAIT_BUSY_POLL, EXS_WAIT_NOTIFY}) {
    const exs_qhandle_t q = exs_qcreate(4);
    ASSERT_EQ(exs_qmodify(q, EXS_QATTR_WAIT, &wait), 0);
    std::atomic<bool> waits{false};
    std::thread waiter([&] {
      exs_event_t event;
      waits = true;
      EXPECT_ERRNO(exs_qdequeue(q, &event, 1, nullptr), EINVAL);
    });
    while (!waits) std::this_thread::yield();
    EXPECT_EQ(exs_qdelete(q), 0);
    waiter.join();
  }
}

TEST(Life, AThreadThatIsCancelledInItsWaitLeavesTheQueueInOrder) {
  Pair pair(kTcp);
  const int wait = EXS_WAIT_NOTIFY;
  ASSERT_EQ(exs_qmodify(pair.right_q, EXS_QATTR_WAIT, &wait), 0);
  EXPECT_TRUE(test::ends_in_its_sleep([&] {
    exs_event_t event;
    static_cast<void>(exs_qdequeue(pair.right_q, &event, 1, nullptr));
  }));
  char byte = 0;
  ASSERT_EQ(exs_recv(pair.right, &byte, 1, 0, pair.right_q, tag(1), kPlain), 0);
  ASSERT_EQ(exs_send(pair.left, "x", 1, 0, kBlock, 0, kPlain), 1);
  EXPECT_EQ(next_event(pair.right_q).ahandle, tag(1));
}

// It has none of its own yet for others to wake it by.
TEST(Life, AThreadWaitsWhereThereAreNoDescriptors) {
  Pair pair(kTcp);
  const int wait = EXS_WAIT_NOTIFY;
  ASSERT_EQ(exs_qmodify(pair.right_q, EXS_QATTR_WAIT, &wait), 0);
  constexpr int kRounds = 100;
  std::atomic<int> taken{0};
  std::thread waiter([&] {
    exs_event_t event{};
    for (int i = 0; i < kRounds; ++i) taken += exs_qdequeue(pair.right_q, &event, 1, nullptr);
  });
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  // Not in the first and the last round: a sanitizer looks at each type once, also at that of the
  // thread when it ends, and needs a pipe for that.
  std::unique_ptr<test::DescriptorLimit> none;
  for (int i = 0; i < kRounds; ++i) {
    if (i == 1) none.reset(new test::DescriptorLimit(test::DescriptorLimit::beyond(0)));
    if (i + 1 == kRounds) none.reset();
    char byte = 0;
    EXPECT_EQ(exs_recv(pair.right, &byte, 1, 0, pair.right_q, tag(1), kPlain), 0);
    EXPECT_EQ(exs_send(pair.left, "x", 1, 0, pair.left_q, tag(2), kPlain), 0);
    while (taken != i + 1) {
      if (std::chrono::steady_clock::now() > patience) std::_Exit(1);  // it does not come back
      std::this_thread::yield();
    }
  }
  waiter.join();
}

// Polling makes system calls under the engine's locks.
TEST(Life, AThreadThatOnlyPollsIsNotCancelled) {
  Pair pair(kTcp);
  EXPECT_TRUE(test::comes_back([&] {
    exs_event_t event;
    const timeval now{0, 0};
    EXPECT_EQ(exs_qdequeue(pair.right_q, &event, 1, &now), 0);
  }));
  char byte = 0;
  ASSERT_EQ(exs_recv(pair.right, &byte, 1, 0, pair.right_q, tag(1), kPlain), 0);
  ASSERT_EQ(exs_send(pair.left, "x", 1, 0, kBlock, 0, kPlain), 1);
  EXPECT_EQ(next_event(pair.right_q).ahandle, tag(1));
}

// The memory is the program's again, and what comes is for the next receive.
TEST(Life, AThreadThatIsCancelledInAReceiveTakesItBack) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(name_of(way));
    Pair pair(way);
    Buffer out(20'000, 1);
    Buffer in(20'000, 2);
    Buffer untouched(100'000, 3);
    const std::vector<std::uint8_t> before = untouched.bytes;
    EXPECT_TRUE(test::ends_in_its_sleep([&] {
      exs_recv(pair.right, untouched.data(), untouched.size(), 0, kBlock, 0, untouched.mh);
    }));
    ASSERT_EQ(exs_recv(pair.right, in.data(), in.size(), MSG_WAITALL, pair.right_q, tag(1), in.mh),
              0);
    ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, pair.left_q, tag(2), out.mh), 0);
    EXPECT_EQ(next_event(pair.right_q).ahandle, tag(1));
    EXPECT_EQ(in.bytes, out.bytes);
    EXPECT_EQ(untouched.bytes, before);
    EXPECT_EQ(next_event(pair.left_q).ahandle, tag(2));
  }
}

TEST(Life, AThreadThatIsCancelledInAcceptOrPollTakesThatBack) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(name_of(way));
    const Listener listener(way);
    exs_pollfd_t given_up{listener.fd, EXS_POLLIN, 0};
    EXPECT_TRUE(test::ends_in_its_sleep(
        [&] { static_cast<void>(exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0)); }));
    EXPECT_TRUE(
        test::ends_in_its_sleep([&] { static_cast<void>(exs_poll(&given_up, 1, 0, kBlock, 0)); }));
    const exs_qhandle_t q = exs_qcreate(4);
    exs_pollfd_t ready{listener.fd, EXS_POLLIN, 0};
    ASSERT_EQ(exs_poll(&ready, 1, 0, q, tag(1)), 0);
    const int fd = new_socket(way);
    Endpoint to = loopback(way.domain, listener.port);
    ASSERT_EQ(exs_connect(fd, to.get(), to.length, 0, kBlock, 0), 0);
    EXPECT_EQ(next_event(q).ahandle, tag(1));
    ASSERT_EQ(exs_accept(listener.fd, nullptr, 0, 0, q, tag(2)), 0);
    const exs_event_t accepted = next_event(q);
    ASSERT_EQ(accepted.ahandle, tag(2));
    EXPECT_EQ(given_up.revents, 0);
    close_now(fd);
    close_now(exs_evt_accepted(&accepted));
    EXPECT_EQ(exs_qdelete(q), 0);
  }
}

// Those who connected to it learn that nobody will accept them.
TEST(Life, AListenerWhoseDescriptorIsLostLetsItsPeersGo) {
  const Way ways[] = {kStream, kPacket};
  for (const Way& way : ways) {
    const int lost = new_socket(way);
    Endpoint any = loopback(AF_INET);
    ASSERT_EQ(exs_bind(lost, any.get(), any.length), 0);
    ASSERT_EQ(exs_listen(lost, 4), 0);
    Endpoint to = loopback(AF_INET, port_of(lost));
    const int fd = new_socket(way);
    ASSERT_EQ(exs_connect(fd, to.get(), to.length, 0, kBlock, 0), 0);
    exs_pollfd_t ready{lost, EXS_POLLIN, 0};
    ASSERT_EQ(exs_poll(&ready, 1, 0, kBlock, 0), 1);
    const exs_qhandle_t q = exs_qcreate(4);
    char byte = 0;
    ASSERT_EQ(exs_recv(fd, &byte, 1, 0, q, tag(1), kPlain), 0);
    ASSERT_EQ(close(lost), 0);
    const int again = new_socket(way);
    ASSERT_EQ(again, lost);
    EXPECT_EQ(next_event(q).error, ECONNRESET);
    close_now(fd);
    close_now(again);
    EXPECT_EQ(exs_qdelete(q), 0);
  }
}

// The event of an operation is there before the queue may go, and the queue may go once it is.
TEST(Life, AQueueMayGoAsSoonAsItsLastEventHasBeenTaken) {
  Pair pair(kStream);
  for (int i = 0; i < 300; ++i) {
    const exs_qhandle_t q = exs_qcreate(4);
    char byte = 0;
    ASSERT_EQ(exs_recv(pair.right, &byte, 1, 0, q, tag(i), kPlain), 0);
    EXPECT_ERRNO(exs_qdelete(q), EBUSY);
    ASSERT_EQ(exs_send(pair.left, "x", 1, 0, kBlock, 0, kPlain), 1);
    ASSERT_EQ(next_event(q).ahandle, tag(i));
    ASSERT_EQ(exs_qdelete(q), 0) << "round " << i;
  }
}

// Every operation that a call took has its event, whenever another thread closes the socket.
TEST(Life, ASocketThatIsClosedWhileItIsUsedLosesNoEvent) {
  for (const Way& way : {kStream, kPacket, kTcp}) {
    for (int round = 0; round < 20; ++round) {
      Pair pair(way);
      const exs_qhandle_t q = exs_qcreate(64);
      char in[100];
      std::atomic<int> taken{0};
      std::thread user([&, fd = pair.left] {
        for (int i = 0; i < 2000; ++i) {
          const ssize_t done = i % 2 == 0 ? exs_send(fd, in, 100, 0, q, 0, kPlain)
                                          : exs_recv(fd, in, 100, 0, q, 0, kPlain);
          if (done == 0) ++taken;
          if (done < 0 && errno != EAGAIN) return;
        }
      });
      while (taken < 5 * round) std::this_thread::yield();
      close_now(std::exchange(pair.left, -1));
      user.join();
      for (int i = 0; i < taken; ++i) ASSERT_NE(next_event(q).type, 0);
      exs_event_t none;
      const timeval now{0, 0};
      EXPECT_EQ(exs_qdequeue(q, &none, 1, &now), 0);
      EXPECT_EQ(exs_qdelete(q), 0);
    }
  }
}

TEST(Life, ADescriptorThatIsClosedByMistakeDoesNoHarmToItsSuccessor) {
  Pair pair(kStream);
  const int lost = std::exchange(pair.left, -1);
  close(lost);
  // The lowest free number is the next one: sockets until it is that one's turn.
  std::vector<int> lower;
  int fd = new_socket(kStream);
  for (; fd < lost; fd = new_socket(kStream)) lower.push_back(fd);
  ASSERT_EQ(fd, lost);
  // The former connection ends, and the number stays with its new owner.
  char byte = 0;
  EXPECT_ERRNO(exs_recv(pair.right, &byte, 1, 0, kBlock, 0, kPlain), ECONNRESET);
  EXPECT_ERRNO(exs_send(fd, "x", 1, 0, kBlock, 0, kPlain), ENOTCONN);
  EXPECT_EQ(fcntl(fd, F_GETFD), 0);
  EXPECT_EQ(exs_close(fd, kBlock, 0), 0);
  for (const int other : lower) EXPECT_EQ(exs_close(other, kBlock, 0), 0);
}

// A connection over TCP that its program has sent on by exs_send and closed by close(2).
TEST(Life, AConnectionThatIsAcceptedUnderALostNumberHearsItsPeer) {
  const Listener listener(kTcp);
  Endpoint to = loopback(AF_INET, listener.port);
  const int peer = socket(AF_INET, SOCK_STREAM, 0);
  const int lost = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(lost, to.get(), to.length), 0);
  ASSERT_EQ(exs_send(lost, "x", 1, 0, kBlock, 0, kPlain), 1);
  const int first = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_GE(first, 0);
  ASSERT_EQ(connect(peer, to.get(), to.length), 0);
  ASSERT_EQ(close(lost), 0);
  const int again = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_EQ(again, lost);
  // The former one ends now, on another thread.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  linger later{};
  socklen_t length = sizeof later;
  ASSERT_EQ(getsockopt(again, SOL_SOCKET, SO_LINGER, &later, &length), 0);
  EXPECT_EQ(later.l_onoff, 0);
  const exs_qhandle_t q = exs_qcreate(4);
  char byte = 0;
  ASSERT_EQ(exs_recv(again, &byte, 1, 0, q, tag(1), kPlain), 0);
  ASSERT_EQ(write(peer, "y", 1), 1);
  EXPECT_EQ(next_event(q).ahandle, tag(1));
  EXPECT_EQ(byte, 'y');
  for (const int fd : {first, again}) close_now(fd);
  close(peer);
  EXPECT_EQ(exs_qdelete(q), 0);
}

// ThreadSanitizer cannot follow threads that a child of fork() starts.
#if !defined(__SANITIZE_THREAD__)
int child_result(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// A child has none of it, starts anew, and disturbs nothing of its parent's.
TEST(Life, AChildOfForkStartsAnew) {
  Pair pair(kStream);
  Pair tcp(kTcp);
  char byte = 0;
  ASSERT_EQ(exs_recv(pair.right, &byte, 1, 0, pair.right_q, tag(1), kPlain), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (exs_send(pair.left, "x", 1, 0, kBlock, 0, kPlain) != -1 || errno != EINVAL) _exit(1);
    exs_event_t event;
    if (exs_qdequeue(pair.right_q, &event, 1, nullptr) != -1 || errno != EINVAL) _exit(2);
    if (exs_init(EXS_VERSION) != 0) _exit(3);
    const Pair own(kTcp);
    if (exs_send(own.left, "y", 1, 0, kBlock, 0, kPlain) != 1) _exit(4);
    if (exs_recv(own.right, &byte, 1, 0, kBlock, 0, kPlain) != 1 || byte != 'y') _exit(5);
    _exit(0);
  }
  EXPECT_EQ(child_result(child), 0);
  for (const Pair* one : {&pair, &tcp}) {
    if (one == &tcp) {
      ASSERT_EQ(exs_recv(tcp.right, &byte, 1, 0, tcp.right_q, tag(1), kPlain), 0);
    }
    ASSERT_EQ(exs_send(one->left, "z", 1, 0, kBlock, 0, kPlain), 1);
    EXPECT_EQ(next_event(one->right_q).ahandle, tag(1));
    EXPECT_EQ(byte, 'z');
  }
}
#endif

TEST(Life, ClosingEndsWhenThePeerResets) {
  const Way packet_tcp{SOCK_SEQPACKET, EXS_PROVIDER_TCP, AF_INET};
  for (const Way& way : {kStream, kPacket, kTcp, packet_tcp}) {
    SCOPED_TRACE(name_of(way));
    Buffer out(32U << 20U, 1);
    Pair pair(way);
    ASSERT_EQ(exs_send(pair.left, out.data(), 100, 0, pair.left_q, tag(1), out.mh), 0);
    EXPECT_EQ(next_event(pair.left_q).error, 0);
    ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, pair.left_q, tag(2), out.mh), 0);
    ASSERT_EQ(exs_close(std::exchange(pair.left, -1), pair.left_q, tag(3)), 0);
    close_now(std::exchange(pair.right, -1));
    const exs_event_t sent = next_event(pair.left_q);
    EXPECT_EQ(sent.ahandle, tag(2));
    EXPECT_NE(sent.error, 0);
    const exs_event_t closed = next_event(pair.left_q);
    EXPECT_EQ(closed.type, EXS_EVT_CLOSE);
    EXPECT_NE(closed.error, 0);
  }
}

// The peer resets a connection of which everything has been received.
TEST(Life, ClosingAtBothEndsAtOnceEnds) {
  for (const Way& way : {kStream, kPacket, kTcp}) {
    for (int i = 0; i < 20; ++i) {
      Pair pair(way);
      char byte = 0;
      ASSERT_EQ(exs_send(pair.left, "x", 1, 0, kBlock, 0, kPlain), 1);
      ASSERT_EQ(exs_recv(pair.right, &byte, 1, 0, kBlock, 0, kPlain), 1);
      ASSERT_EQ(exs_close(std::exchange(pair.left, -1), pair.left_q, tag(1)), 0);
      close_now(std::exchange(pair.right, -1));
      EXPECT_EQ(next_event(pair.left_q).type, EXS_EVT_CLOSE);
    }
  }
}

TEST(Life, ClosingTakesNoLongerThanTheLingerTime) {
  for (const Way& way : {kStream, kPacket, kTcp}) {
    Buffer out(32U << 20U, 1);
    Pair pair(way);
    const linger a_second{1, 1};
    ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_LINGER, &a_second, sizeof a_second), 0);
    // Nobody receives it.
    ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, pair.left_q, tag(1), out.mh), 0);
    EXPECT_ERRNO(exs_close(std::exchange(pair.left, -1), kBlock, 0), ETIMEDOUT);
    EXPECT_EQ(next_event(pair.left_q).error, ECANCELED);
  }
}

}  // namespace
}  // namespace weft::exs_test
