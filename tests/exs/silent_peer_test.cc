// Peers that have stopped, or say nothing: time limits hold, and what is cancelled ends.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "liar.h"

namespace weft::exs_test {
namespace {

constexpr std::size_t kBig = 100'000;  // too much for a message: it is offered by address

void limit(int fd, int option) {
  exs_timeout_t limit{};
  limit.tv.tv_usec = 5000;
  limit.qhandle = EXS_QHANDLE_INVALID;
  ASSERT_EQ(exs_setsockopt(fd, SOL_SOCKET, option, &limit, sizeof limit), 0);
}

// A socket, and a peer that takes part in nothing by itself.
class SilentPeer : public testing::TestWithParam<Way> {
 protected:
  SilentPeer() {
    EXPECT_TRUE(liar.connected());
    EXPECT_TRUE(liar.say(header_of(Type::kStart)));
    fd = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
    EXPECT_GE(fd, 0);
  }
  ~SilentPeer() override {
    close_now(fd);
    EXPECT_EQ(exs_qdelete(q), 0);
  }
  void expect_still_works() {
    const std::vector<std::uint8_t> payload{'x'};
    EXPECT_TRUE(liar.say(header_of(Type::kData, 1, 0), {}, payload));
    char byte = 0;
    EXPECT_EQ(exs_recv(fd, &byte, 1, 0, kBlock, 0, kPlain), 1) << std::strerror(errno);
    EXPECT_EQ(byte, 'x');
  }

  const Listener listener{GetParam()};
  exs_qhandle_t q = exs_qcreate(16);
  Buffer memory{kBig, 1};
  Liar liar{listener.port, bytes_of(hello_of(GetParam()))};
  int fd = -1;
};

using SilentStream = SilentPeer;
using SilentPacket = SilentPeer;

// It lets go of the memory at last, and the connection goes on.
TEST_P(SilentStream, ABlockingReceiveEndsWithItsTimeLimit) {
  limit(fd, SO_ASYNC_RECV_TIMEOUT);
  EXPECT_ERRNO(exs_recv(fd, memory.data(), kBig, 0, kBlock, 0, memory.mh), ETIMEDOUT);
  EXPECT_ERRNO(exs_recv(fd, memory.data(), kBig, 0, kBlock, 0, memory.mh), ETIMEDOUT);
  Header closed = header_of(Type::kChainClosed);
  closed.aux = liar.hear(Type::kCloseChain).header.aux;
  EXPECT_TRUE(liar.say(closed));
  expect_still_works();
}

TEST_P(SilentStream, CancellingWhatItWasOfferedGivesTheEvent) {
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(exs_recv(fd, memory.data(), kBig, 0, q, tag(i), memory.mh), 0);
  }
  for (int i = 0; i < 3; ++i) static_cast<void>(liar.hear(Type::kAdvert));
  ASSERT_EQ(exs_cancel(fd, EXS_CAF_AHANDLE, tag(2)), 0);
  const exs_event_t second = next_event(q);
  EXPECT_EQ(second.ahandle, tag(2));
  EXPECT_EQ(second.error, ECANCELED);
  ASSERT_EQ(exs_cancel(fd, EXS_CAF_FILDES, 0), 0);
  for (const int i : {1, 3}) {
    const exs_event_t event = next_event(q);
    EXPECT_EQ(event.ahandle, tag(i));
    EXPECT_EQ(event.error, ECANCELED);
  }
}

TEST_P(SilentStream, ALaterWriteEndsOnlyThatConnection) {
  Pair other(GetParam());
  ASSERT_EQ(exs_recv(fd, memory.data(), kBig, 0, q, tag(1), memory.mh), 0);
  const Segment offered = liar.hear(Type::kAdvert).segments[0];
  ASSERT_EQ(exs_recv(fd, memory.data(), 10, 0, q, tag(2), memory.mh), 0);
  ASSERT_EQ(exs_cancel(fd, EXS_CAF_AHANDLE, tag(1)), 0);
  EXPECT_EQ(next_event(q).ahandle, tag(1));
  const std::vector<std::uint8_t> before = memory.bytes;
  static_cast<void>(liar.reach(offered, true));  // its success means that it was sent
  const exs_event_t ended = next_event(q);
  EXPECT_EQ(ended.ahandle, tag(2));
  EXPECT_EQ(ended.error, ECONNRESET);
  EXPECT_EQ(memory.bytes, before);
  ASSERT_EQ(exs_send(other.left, "z", 1, 0, kBlock, 0, kPlain), 1);
  char byte = 0;
  ASSERT_EQ(exs_recv(other.right, &byte, 1, 0, kBlock, 0, kPlain), 1);
}

// In a message, so that no Write fails.
TEST_P(SilentStream, LaterBytesEndTheConnection) {
  ASSERT_EQ(exs_recv(fd, memory.data(), kBig, 0, q, tag(1), memory.mh), 0);
  static_cast<void>(liar.hear(Type::kAdvert));
  ASSERT_EQ(exs_recv(fd, memory.data(), 10, 0, q, tag(2), memory.mh), 0);
  ASSERT_EQ(exs_cancel(fd, EXS_CAF_AHANDLE, tag(1)), 0);
  EXPECT_EQ(next_event(q).ahandle, tag(1));
  liar.say(header_of(Type::kDirect, 100, 0));
  const exs_event_t ended = next_event(q);
  EXPECT_EQ(ended.ahandle, tag(2));
  EXPECT_EQ(ended.error, ECONNRESET);
}

// Bytes by way of the ring have taken the offer back already, before the peer stops.
TEST_P(SilentStream, ACancelledReceiveThatIsOfferedNoMoreNeedsNoPeer) {
  for (int i = 1; i <= 2; ++i) {
    ASSERT_EQ(exs_recv(fd, memory.data(), kBig, 0, q, tag(i), memory.mh), 0);
  }
  for (int i = 0; i < 2; ++i) static_cast<void>(liar.hear(Type::kAdvert));
  ASSERT_EQ(exs_cancel(fd, EXS_CAF_AHANDLE, tag(2)), 0);
  EXPECT_TRUE(liar.say(header_of(Type::kData, 1, 0), {}, std::vector<std::uint8_t>{'x'}));
  const exs_event_t first = next_event(q);
  EXPECT_EQ(first.ahandle, tag(1));
  EXPECT_EQ(first.error, 0);
  const exs_event_t second = next_event(q);
  EXPECT_EQ(second.ahandle, tag(2));
  EXPECT_EQ(second.error, ECANCELED) << std::strerror(second.error);
}

// What was taken back waits for nothing any more.
TEST_P(SilentStream, NoTimeLimitIsToldOfWhatWasTakenBack) {
  ASSERT_EQ(exs_recv(fd, memory.data(), kBig, 0, q, tag(1), memory.mh), 0);
  static_cast<void>(liar.hear(Type::kAdvert));
  ASSERT_EQ(exs_cancel(fd, EXS_CAF_AHANDLE, tag(1)), 0);
  EXPECT_EQ(next_event(q).error, ECANCELED);
  exs_timeout_t limit{};
  limit.tv.tv_usec = 2000;
  limit.qhandle = q;
  ASSERT_EQ(exs_setsockopt(fd, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &limit, sizeof limit), 0);
  exs_event_t event{};
  const timeval while_limits_pass{0, 100'000};
  EXPECT_EQ(exs_qdequeue(q, &event, 1, &while_limits_pass), 0);
  limit = {};
  ASSERT_EQ(exs_setsockopt(fd, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &limit, sizeof limit), 0);
}

INSTANTIATE_TEST_SUITE_P(Rdma, SilentStream, testing::Values(kStream));

// The peer hears of the cancellation only behind a lot of data, and answers in the meantime.
TEST(BusyPeer, ACancellationBehindMuchDataEndsNothingElse) {
  constexpr std::size_t kHuge = 256U << 20U;
  Pair pair(kStream);
  Buffer out(kHuge, 1);
  Buffer in(kHuge, 2);
  Buffer offered(kBig, 3);
  Buffer answer(kBig, 4);
  ASSERT_EQ(exs_recv(pair.right, in.data(), kHuge, MSG_WAITALL, pair.right_q, tag(1), in.mh), 0);
  ASSERT_EQ(exs_recv(pair.left, offered.data(), kBig, 0, pair.left_q, tag(2), offered.mh), 0);
  ASSERT_EQ(exs_send(pair.left, out.data(), kHuge, 0, pair.left_q, tag(3), out.mh), 0);
  ASSERT_EQ(exs_cancel(pair.left, EXS_CAF_AHANDLE, tag(2)), 0);
  ASSERT_EQ(exs_send(pair.right, answer.data(), kBig, 0, pair.right_q, tag(4), answer.mh), 0);
  for (int i = 0; i < 2; ++i) {
    const exs_event_t event = next_event(pair.left_q);
    EXPECT_TRUE(event.ahandle != tag(3) || event.error == 0) << std::strerror(event.error);
  }
  for (int i = 0; i < 2; ++i) {
    const exs_event_t event = next_event(pair.right_q);
    EXPECT_EQ(event.error, 0) << std::strerror(event.error);
  }
  EXPECT_EQ(in.bytes, out.bytes);
}

TEST_P(SilentPacket, ABlockingSendEndsWithItsTimeLimit) {
  limit(fd, SO_ASYNC_SEND_TIMEOUT);
  EXPECT_ERRNO(exs_send(fd, memory.data(), kBig, 0, kBlock, 0, memory.mh), ETIMEDOUT);
  // It answers at last.
  const exs::Message withdrawn = liar.hear(Type::kWithdraw);
  Header dropped = header_of(Type::kDone, 0, withdrawn.header.seq);
  dropped.flags = exs::kDropped;
  EXPECT_TRUE(liar.say(dropped));
  expect_still_works();
}

TEST_P(SilentPacket, ALaterReadEndsTheConnection) {
  ASSERT_EQ(exs_send(fd, memory.data(), kBig, 0, q, tag(1), memory.mh), 0);
  const Segment offered = liar.hear(Type::kSource).segments[0];
  ASSERT_EQ(exs_recv(fd, memory.data(), 10, 0, q, tag(2), memory.mh), 0);
  ASSERT_EQ(exs_cancel(fd, EXS_CAF_AHANDLE, tag(1)), 0);
  const exs_event_t cancelled = next_event(q);
  EXPECT_EQ(cancelled.ahandle, tag(1));
  EXPECT_EQ(cancelled.error, ECANCELED);
  EXPECT_NE(liar.reach(offered, false), IBV_WC_SUCCESS);
  EXPECT_EQ(next_event(q).error, ECONNRESET);
}

INSTANTIATE_TEST_SUITE_P(Rdma, SilentPacket, testing::Values(kPacket));

// It takes the connection of TCP and never answers.
TEST(SilentServer, WhatIsCancelledBeforeTheConnectionStandsLeavesTheAttemptAlone) {
  for (const Way& way : {kStream, kPacket}) {
    SCOPED_TRACE(name_of(way));
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    Endpoint to = loopback(AF_INET);
    ASSERT_EQ(bind(server, to.get(), to.length), 0);
    ASSERT_EQ(listen(server, 4), 0);
    ASSERT_EQ(getsockname(server, to.get(), &to.length), 0);
    const int fd = new_socket(way);
    const exs_qhandle_t q = exs_qcreate(4);
    ASSERT_EQ(exs_connect(fd, to.get(), to.length, 0, q, tag(1)), 0);
    char byte = 0;
    ASSERT_EQ(exs_recv(fd, &byte, 1, 0, q, tag(7), kPlain), 0);
    ASSERT_EQ(exs_send(fd, &byte, 0, 0, q, tag(8), kPlain), 0);
    for (const int n : {8, 7}) {
      ASSERT_EQ(exs_cancel(fd, EXS_CAF_AHANDLE, tag(n)), 0);
      const exs_event_t cancelled = next_event(q);
      EXPECT_EQ(cancelled.ahandle, tag(n));
      EXPECT_EQ(cancelled.error, ECANCELED) << std::strerror(cancelled.error);
    }
    exs_event_t event{};
    const timeval a_while{2, 0};
    EXPECT_EQ(exs_qdequeue(q, &event, 1, &a_while), 0) << std::strerror(event.error);
    close_now(fd);
    close(server);
    EXPECT_EQ(next_event(q).ahandle, tag(1));
    EXPECT_EQ(exs_qdelete(q), 0);
  }
}

// ThreadSanitizer cannot follow threads that a child of fork() starts.
#if !defined(__SANITIZE_THREAD__)

// A process that has connected, sent one byte, and is stopped.
class StoppedPeer {
 public:
  explicit StoppedPeer(const Way& way) : listener_(way), child_(fork()) {
    if (child_ == 0) {
      fd = new_socket(way);
      Endpoint to = loopback(way.domain, listener_.port);
      if (exs_connect(fd, to.get(), to.length, 0, kBlock, 0) != 0) _exit(1);
      if (exs_send(fd, "x", 1, 0, kBlock, 0, kPlain) != 1) _exit(2);
      for (;;) pause();
    }
    fd = exs_accept(listener_.fd, nullptr, 0, 0, kBlock, 0);
    EXPECT_GE(fd, 0);
    char byte = 0;
    EXPECT_EQ(exs_recv(fd, &byte, 1, 0, kBlock, 0, kPlain), 1);
    // Not by itself: a blocking send that has ended may still be on its way.
    EXPECT_EQ(kill(child_, SIGSTOP), 0);
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, WUNTRACED), child_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  ~StoppedPeer() {
    close_now(fd);
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  StoppedPeer(const StoppedPeer&) = delete;
  StoppedPeer& operator=(const StoppedPeer&) = delete;

  int fd = -1;

 private:
  const Listener listener_;
  const pid_t child_;
};

class StoppedPeerTest : public testing::TestWithParam<Way> {};

// Its device and the kernel take some of it; our own device is left nothing of the rest.
TEST_P(StoppedPeerTest, ALargeSendEndsWithItsTimeLimit) {
  Buffer memory(64U << 20U, 1);
  const StoppedPeer peer(GetParam());
  limit(peer.fd, SO_ASYNC_SEND_TIMEOUT);
  EXPECT_ERRNO(exs_send(peer.fd, memory.data(), memory.size(), 0, kBlock, 0, memory.mh), ETIMEDOUT);
}

TEST_P(StoppedPeerTest, AReceiveEndsWithItsTimeLimit) {
  Buffer memory(kBig, 1);
  const StoppedPeer peer(GetParam());
  limit(peer.fd, SO_ASYNC_RECV_TIMEOUT);
  EXPECT_ERRNO(exs_recv(peer.fd, memory.data(), kBig, 0, kBlock, 0, memory.mh), ETIMEDOUT);
  EXPECT_ERRNO(exs_recv(peer.fd, memory.data(), kBig, 0, kBlock, 0, memory.mh), ETIMEDOUT);
}

INSTANTIATE_TEST_SUITE_P(Ways, StoppedPeerTest, testing::ValuesIn(kWays),
                         [](const auto& one) { return name_of(one.param); });
#endif

volatile std::sig_atomic_t g_broken_pipes = 0;

// What the peer has reset is an error of the call, whatever the program does with SIGPIPE.
TEST(BrokenPipe, SendingAFileRaisesNoSignal) {
  struct sigaction counting {};
  struct sigaction before {};
  counting.sa_handler = [](int) { g_broken_pipes = g_broken_pipes + 1; };
  ASSERT_EQ(sigaction(SIGPIPE, &counting, &before), 0);
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(ftruncate(fileno(file), 32 << 20), 0);
  for (const Way& way : {kTcp, kStream}) {
    Pair pair(way);
    close_now(std::exchange(pair.right, -1));
    exs_xferfile_t all{};
    all.tag = EXS_FDVEC;
    all.u.fdvec.fd = fileno(file);
    all.u.fdvec.length = 32U << 20U;
    // The first may be under way when the reset comes.
    while (exs_sendfile(pair.left, &all, 1, 0, kBlock, 0) > 0) {
    }
    EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET) << std::strerror(errno);
  }
  EXPECT_EQ(g_broken_pipes, 0);
  std::fclose(file);
  sigaction(SIGPIPE, &before, nullptr);
}

}  // namespace
}  // namespace weft::exs_test
