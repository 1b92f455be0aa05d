// No system call of the data path is a point where a thread may be cancelled.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "os/calls.h"
#include "os/fd.h"
#include "os/log.h"
#include "os/signal_queue.h"
#include "support/cancelled.h"

namespace weft::os {
namespace {

using weft::test::comes_back;
using weft::test::ends_in_its_sleep;

class CancelTest : public ::testing::Test {
 protected:
  CancelTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()), 0);
  }
  ~CancelTest() override {
    for (const int fd : pair) close(fd);
  }
  std::array<int, 2> pair{};
};

TEST_F(CancelTest, WithoutAGuardTheLibrarysCallsArePoints) {
  EXPECT_FALSE(comes_back([&] {
    char octet = 0;
    static_cast<void>(!::read(pair[0], &octet, 1));
  }));
}

TEST_F(CancelTest, AGuardPutsItOff) {
  bool inside = false;
  EXPECT_FALSE(comes_back([&] {
    {
      const NoCancel outer;
      { const NoCancel inner; }
      pthread_testcancel();
      inside = true;
    }
    pthread_testcancel();
  }));
  EXPECT_TRUE(inside);
}

TEST_F(CancelTest, AGuardLeavesErrnoAndAThreadThatMayNotBeCancelled) {
  errno = EDOM;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  { const NoCancel guard; }
  int before = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
  EXPECT_EQ(before, PTHREAD_CANCEL_DISABLE);
  EXPECT_EQ(errno, EDOM);
}

TEST_F(CancelTest, CallsDoWhatTheLibrarysDoAndAreNoPoints) {
  EXPECT_TRUE(comes_back([&] {
    std::array<char, 4> in{};
    EXPECT_EQ(calls::send(pair[0], "abc", 3, MSG_NOSIGNAL), 3);
    EXPECT_EQ(calls::recv(pair[1], in.data(), in.size(), 0), 3);
    EXPECT_EQ(in[2], 'c');
    EXPECT_EQ(calls::recv(pair[1], in.data(), in.size(), 0), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(calls::write(pair[0], "de", 2), 2);
    EXPECT_EQ(calls::read(pair[1], in.data(), in.size()), 2);
    EXPECT_EQ(in[1], 'e');
  }));
}

TEST_F(CancelTest, CallsWithListsDoWhatTheLibrarysDoAndAreNoPoints) {
  const Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(comes_back([&] {
    std::array<char, 4> in{};
    iovec out{const_cast<char*>("fgh"), 3};
    iovec into{in.data(), in.size()};
    mmsghdr message{};
    message.msg_hdr.msg_iov = &out;
    message.msg_hdr.msg_iovlen = 1;
    EXPECT_EQ(calls::sendmsg(pair[0], &message.msg_hdr, MSG_NOSIGNAL), 3);
    EXPECT_EQ(calls::sendmmsg(pair[0], &message, 1, MSG_NOSIGNAL), 1);
    message.msg_hdr.msg_iov = &into;
    EXPECT_EQ(calls::recvmsg(pair[1], &message.msg_hdr, 0), 3);
    EXPECT_EQ(calls::recvmmsg(pair[1], &message, 1, MSG_DONTWAIT), 1);
    EXPECT_EQ(message.msg_len, 3U);
    EXPECT_EQ(in[0], 'f');
    EXPECT_EQ(calls::preadv2(file.get(), &into, 1, 1, 0), 4);
    EXPECT_EQ(in[0], 'E');  // 0x7f ELF
  }));
}

TEST_F(CancelTest, ALookAtAnEpollIsNoPoint) {
  EXPECT_TRUE(comes_back([&] {
    const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLOUT;
    event.data.u32 = 7;
    EXPECT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, pair[0], &event), 0);
    event = {};
    EXPECT_EQ(calls::epoll_look(epoll.get(), &event, 1), 1);
    EXPECT_EQ(event.data.u32, 7U);
  }));
}

TEST_F(CancelTest, ClosingAndLoggingAreNoPoints) {
  EXPECT_TRUE(comes_back([&] {
    Fd fd(eventfd(0, EFD_CLOEXEC));
    fd.reset();
    EXPECT_TRUE(configure_log(LogLevel::kWarning, "/dev/null"));
    log(LogLevel::kError, "a line");
    EXPECT_TRUE(configure_log(LogLevel::kWarning, ""));
  }));
}

TEST_F(CancelTest, AnItemOfASignalIsNotLostWithAThread) {
  const auto signal = std::move(*SignalQueue<int>::create());
  EXPECT_TRUE(comes_back([&] {
    signal->push(1);
    EXPECT_EQ(signal->try_pop(), 1);
    signal->push(2);
  }));
  EXPECT_TRUE(comes_back([&] { EXPECT_EQ(*signal->next({}), 2); }));
  EXPECT_TRUE(ends_in_its_sleep([&] { static_cast<void>(signal->next({})); }));
  signal->push(3);
  EXPECT_EQ(*signal->next({}), 3);
}

}  // namespace
}  // namespace weft::os
