// Errors and time limits of rsockets are those of TCP sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace {

constexpr int kWaitMs = 20'000;

int error_of(int fd) {
  int error = -1;
  socklen_t length = sizeof error;
  EXPECT_EQ(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length), 0) << std::strerror(errno);
  return error;
}

class RsocketErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    listener_ = rsocket(AF_INET, SOCK_STREAM, 0);
    ASSERT_GE(listener_, 0) << std::strerror(errno);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(rbind(listener_, peer(), sizeof address_), 0);
    ASSERT_EQ(rlisten(listener_, 16), 0);
    socklen_t length = sizeof address_;
    ASSERT_EQ(rgetsockname(listener_, peer(), &length), 0);
  }
  void TearDown() override {
    for (const int fd : {a_, b_, listener_}) {
      if (fd >= 0) rclose(fd);
    }
  }
  void make_pair() {
    a_ = rsocket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(rconnect(a_, peer(), sizeof address_), 0) << std::strerror(errno);
    b_ = raccept(listener_, nullptr, nullptr);
    ASSERT_GE(b_, 0) << std::strerror(errno);
  }
  sockaddr* peer() { return reinterpret_cast<sockaddr*>(&address_); }

  int listener_ = -1;
  int a_ = -1;
  int b_ = -1;
  sockaddr_in address_{};
};

TEST_F(RsocketErrors, SoErrorTellsOfAResetOnce) {
  make_pair();
  const linger with_reset{1, 0};
  ASSERT_EQ(rsetsockopt(b_, SOL_SOCKET, SO_LINGER, &with_reset, sizeof with_reset), 0);
  ASSERT_EQ(rclose(std::exchange(b_, -1)), 0);
  pollfd one{a_, POLLIN, 0};
  ASSERT_EQ(rpoll(&one, 1, kWaitMs), 1);
  EXPECT_EQ(one.revents, POLLIN | POLLHUP | POLLERR);
  EXPECT_EQ(error_of(a_), ECONNRESET);
  EXPECT_EQ(error_of(a_), 0);
  EXPECT_EQ(rpoll(&one, 1, 0), 1);
  EXPECT_EQ(one.revents, POLLIN | POLLHUP);
  char octet = 0;
  EXPECT_EQ(rrecv(a_, &octet, 1, 0), 0);
}

}  // namespace
