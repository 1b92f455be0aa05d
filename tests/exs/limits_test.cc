// Extended sockets that do not block, and time limits of those that do.
#include <poll.h>

#include <algorithm>
#include <thread>

#include "exs_support.h"

namespace weft::exs_test {
namespace {

TEST(Limits, ASocketThatDoesNotBlockSaysAgain) {
  for (const Way& way : {kStream, kPacket, kTcp}) {
    Pair pair(way);
    char byte = 0;
    ASSERT_EQ(exs_fcntl(pair.right, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(exs_fcntl(pair.right, F_GETFL, 0), O_RDWR | O_NONBLOCK);
    EXPECT_ERRNO(exs_recv(pair.right, &byte, 1, 0, kBlock, 0, kPlain), EAGAIN);
    EXPECT_ERRNO(exs_recv(pair.left, &byte, 1, MSG_DONTWAIT, kBlock, 0, kPlain), EAGAIN);
    // Operations with a queue are taken up to a limit, and each of them ends.
    int taken = 0;
    while (exs_recv(pair.right, &byte, 1, 0, pair.right_q, 0, kPlain) == 0) ++taken;
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_GT(taken, 100);
    ASSERT_EQ(exs_cancel(pair.right, EXS_CAF_FILDES, 0), 0);
    for (; taken > 0; --taken) ASSERT_EQ(next_event(pair.right_q).error, ECANCELED);
  }
}

TEST(Limits, ASendThatDoesNotBlockTakesWhatThereIsRoomFor) {
  for (const Way& way : {kStream, kTcp}) {
    SCOPED_TRACE(name_of(way));
    Pair pair(way);
    Buffer out(64U << 20U, 1);
    std::size_t taken = 0;
    ssize_t sent = 1;
    while (sent > 0 && taken < out.size()) {
      sent = exs_send(pair.left, out.data() + taken, out.size() - taken, MSG_DONTWAIT, kBlock, 0,
                      out.mh);
      if (sent > 0) taken += static_cast<std::size_t>(sent);
    }
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_GT(taken, 0U);
    ASSERT_LT(taken, out.size());
    std::vector<std::uint8_t> in(taken);
    ASSERT_EQ(exs_recv(pair.right, in.data(), taken, MSG_WAITALL, kBlock, 0, kPlain),
              static_cast<ssize_t>(taken));
    EXPECT_EQ(std::memcmp(in.data(), out.data(), taken), 0);
  }
}

TEST(Limits, AReceiveThatDoesNotBlockTakesWhatIsThere) {
  for (const Way& way : {kStream, kTcp}) {
    SCOPED_TRACE(name_of(way));
    Pair pair(way);
    ASSERT_EQ(exs_send(pair.left, "0123456789", 10, 0, kBlock, 0, kPlain), 10);
    exs_pollfd_t ready{pair.right, EXS_POLLIN, 0};
    ASSERT_EQ(exs_poll(&ready, 1, 0, kBlock, 0), 1);
    std::vector<char> in(20'000);
    constexpr int kFlags = MSG_DONTWAIT | MSG_WAITALL;
    EXPECT_EQ(exs_recv(pair.right, in.data(), in.size(), kFlags, kBlock, 0, kPlain), 10);
    EXPECT_ERRNO(exs_recv(pair.right, in.data(), in.size(), kFlags, kBlock, 0, kPlain), EAGAIN);
  }
}

// It goes out by itself, from memory of the library.
TEST(Limits, AMessageThatDoesNotBlockIsTakenWhole) {
  for (const Way& way : {kPacket, kTcpPacket}) {
    SCOPED_TRACE(name_of(way));
    Pair pair(way);
    Buffer out(16U << 20U, 1);
    const std::vector<std::uint8_t> before = out.bytes;
    const auto size = static_cast<ssize_t>(out.size());
    ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), MSG_DONTWAIT, kBlock, 0, out.mh), size);
    std::fill(out.bytes.begin(), out.bytes.end(), 0);
    EXPECT_ERRNO(exs_send(pair.left, "x", 1, MSG_DONTWAIT, kBlock, 0, kPlain), EAGAIN);
    // It is no operation that could be cancelled.
    ASSERT_EQ(exs_cancel(pair.left, EXS_CAF_FILDES, 0), 0);
    std::vector<std::uint8_t> in(out.size());
    ASSERT_EQ(exs_recv(pair.right, in.data(), in.size(), 0, kBlock, 0, kPlain), size);
    EXPECT_EQ(in, before);
    ASSERT_EQ(exs_fcntl(pair.left, F_SETFL, O_NONBLOCK), 0);
    exs_pollfd_t ready{pair.left, EXS_POLLOUT, 0};
    ASSERT_EQ(exs_poll(&ready, 1, 0, kBlock, 0), 1);
    EXPECT_EQ(exs_send(pair.left, "x", 1, 0, kBlock, 0, kPlain), 1);
  }
}

TEST(Limits, APartOfAMessageWaitsForTheRest) {
  const Listener listener(kTcpPacket);
  const int plain = plain_client(listener.port);
  ASSERT_GE(plain, 0);
  const int fd = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_GE(fd, 0);
  char in[16] = {};
  exs_pollfd_t ready{fd, EXS_POLLIN, 0};
  // The greeting, and a message of six octets, in parts.
  for (const auto& part :
       {std::string("EXSP", 4), std::string("\0\0\0\1\0\0\0\6\0\0\0\0abc", 15)}) {
    ASSERT_EQ(write(plain, part.data(), part.size()), static_cast<ssize_t>(part.size()));
    ASSERT_EQ(exs_poll(&ready, 1, 0, kBlock, 0), 1);
    EXPECT_ERRNO(exs_recv(fd, in, sizeof in, MSG_DONTWAIT, kBlock, 0, kPlain), EAGAIN);
  }
  std::memset(in, 0, sizeof in);
  ASSERT_EQ(write(plain, "def", 3), 3);
  ASSERT_EQ(exs_poll(&ready, 1, 0, kBlock, 0), 1);
  EXPECT_EQ(exs_recv(fd, in, sizeof in, MSG_DONTWAIT, kBlock, 0, kPlain), 6);
  EXPECT_STREQ(in, "abcdef");
  close_now(fd);
  close(plain);
}

TEST(Limits, ATimeLimitTellsOfAWaitThatIsTooLong) {
  for (const Way& way : {kStream, kPacket, kTcp}) {
    Pair pair(way);
    exs_timeout_t limit{};
    limit.tv.tv_usec = 5000;
    limit.flags = EXS_TIMEOUT_ONCE;
    limit.qhandle = pair.right_q;
    limit.ahandle = tag(11);
    ASSERT_EQ(exs_setsockopt(pair.right, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &limit, sizeof limit),
              0);
    char byte = 0;
    ASSERT_EQ(exs_recv(pair.right, &byte, 1, 0, pair.right_q, tag(12), kPlain), 0);
    const exs_event_t late = next_event(pair.right_q);
    EXPECT_EQ(late.type, EXS_EVT_RECVTIMEOUT);
    EXPECT_EQ(late.error, ETIMEDOUT);
    EXPECT_EQ(late.ahandle, tag(11));
    // The operation goes on.
    ASSERT_EQ(exs_send(pair.left, "y", 1, 0, pair.left_q, 0, kPlain), 0);
    const exs_event_t got = next_event(pair.right_q);
    EXPECT_EQ(got.ahandle, tag(12));
    EXPECT_EQ(got.error, 0);
    EXPECT_EQ(byte, 'y');
    // A call that blocks ends.
    limit.flags = 0;
    limit.qhandle = EXS_QHANDLE_INVALID;
    ASSERT_EQ(exs_setsockopt(pair.right, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &limit, sizeof limit),
              0);
    EXPECT_ERRNO(exs_recv(pair.right, &byte, 1, 0, kBlock, 0, kPlain), ETIMEDOUT);
  }
}

exs_timeout_t time_limit(long microseconds, exs_qhandle_t q, exs_ahandle_t ah) {
  exs_timeout_t out{};
  out.tv.tv_sec = microseconds / 1'000'000;
  out.tv.tv_usec = microseconds % 1'000'000;
  out.flags = EXS_TIMEOUT_ONCE;
  out.qhandle = q;
  out.ahandle = ah;
  return out;
}

// The progress thread has nothing to do before, so that it sleeps without a time limit of its own.
TEST(Limits, ATimeLimitWakesAProgressThreadThatSleeps) {
  Pair pair(kStream);
  const int fd = exs_qfd(pair.right_q);
  char byte = 0;
  for (int i = 0; i < 20; ++i) {
    const exs_timeout_t limit = time_limit(3000, pair.right_q, tag(11));
    ASSERT_EQ(exs_setsockopt(pair.right, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &limit, sizeof limit),
              0);
    ASSERT_EQ(exs_recv(pair.right, &byte, 1, 0, pair.right_q, tag(12), kPlain), 0);
    pollfd one{fd, POLLIN, 0};
    ASSERT_EQ(poll(&one, 1, kWaitSeconds * 1000), 1) << "round " << i;
    ASSERT_EQ(next_event(pair.right_q).type, EXS_EVT_RECVTIMEOUT);
    ASSERT_EQ(exs_cancel(pair.right, EXS_CAF_FILDES, 0), 0);
    ASSERT_EQ(next_event(pair.right_q).error, ECANCELED);
  }
}

TEST(Limits, AShortTimeLimitDoesNotWaitForALongOne) {
  Buffer out(100'000, 1);
  Pair pair(kPacket);
  char byte = 0;
  const exs_timeout_t longer = time_limit(3'600'000'000, pair.left_q, tag(1));
  ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &longer, sizeof longer),
            0);
  ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, pair.left_q, tag(2), out.mh), 0);
  const exs_timeout_t shorter = time_limit(3000, pair.left_q, tag(3));
  ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &shorter, sizeof shorter),
            0);
  // The look that the option itself asked for is over before the receive is posted.
  const timeval later{0, 20'000};
  exs_event_t none;
  ASSERT_EQ(exs_qdequeue(pair.left_q, &none, 1, &later), 0);
  ASSERT_EQ(exs_recv(pair.left, &byte, 1, 0, pair.left_q, tag(4), kPlain), 0);
  const exs_event_t late = next_event(pair.left_q);
  EXPECT_EQ(late.type, EXS_EVT_RECVTIMEOUT);
  EXPECT_EQ(late.ahandle, tag(3));
}

TEST(Limits, AClosedSocketLetsGoOfTheQueueOfItsTimeLimits) {
  const exs_qhandle_t q = exs_qcreate(4);
  {
    Pair pair(kStream);
    const exs_timeout_t limit = time_limit(3'600'000'000, q, 0);
    ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &limit, sizeof limit),
              0);
    EXPECT_ERRNO(exs_qdelete(q), EBUSY);
  }
  EXPECT_EQ(exs_qdelete(q), 0);
}

TEST(Limits, SendsThatNobodyReceivesHaveTheirTimeLimit) {
  Pair pair(kPacket);
  Buffer out(100'000, 1);
  exs_timeout_t limit{};
  limit.tv.tv_usec = 5000;
  limit.qhandle = pair.left_q;
  ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &limit, sizeof limit), 0);
  exs_timeout_t back{};
  socklen_t length = sizeof back;
  ASSERT_EQ(exs_getsockopt(pair.left, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &back, &length), 0);
  EXPECT_EQ(back.tv.tv_usec, 5000);
  ASSERT_EQ(exs_send(pair.left, out.data(), 100'000, 0, pair.left_q, tag(1), out.mh), 0);
  EXPECT_EQ(next_event(pair.left_q).type, EXS_EVT_SENDTIMEOUT);
  EXPECT_EQ(next_event(pair.left_q).type, EXS_EVT_SENDTIMEOUT);
  limit.tv.tv_usec = 0;
  ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &limit, sizeof limit), 0);
  ASSERT_EQ(exs_cancel(pair.left, EXS_CAF_FILDES, 0), 0);
  exs_event_t end = next_event(pair.left_q);
  while (end.type == EXS_EVT_SENDTIMEOUT) end = next_event(pair.left_q);
  EXPECT_EQ(end.error, ECANCELED);
}

}  // namespace
}  // namespace weft::exs_test
