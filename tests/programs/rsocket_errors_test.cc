// Errors and time limits of rsockets are those of TCP sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <tuple>
#include <utility>

namespace {

constexpr int kWaitMs = 20'000;
constexpr int kLateMs = 8'000;

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

// A TCP listener that never says whether it takes RDMA.
class Silent {
 public:
  Silent() {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, address(), sizeof address_), 0);
    EXPECT_EQ(listen(fd_, 4), 0);
    socklen_t length = sizeof address_;
    EXPECT_EQ(getsockname(fd_, address(), &length), 0);
  }
  ~Silent() { close(fd_); }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;
  // Calls rconnect(): 0 or an errno.
  int answer_to(int fd) { return rconnect(fd, address(), sizeof address_) == 0 ? 0 : errno; }

 private:
  sockaddr* address() { return reinterpret_cast<sockaddr*>(&address_); }

  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address_{};
};

void limit_calls(int fd, int name) {
  const timeval limit{0, 300'000};
  EXPECT_EQ(rsetsockopt(fd, SOL_SOCKET, name, &limit, sizeof limit), 0) << std::strerror(errno);
}

class Stopwatch {
 public:
  [[nodiscard]] int milliseconds() const {
    const auto spent = std::chrono::steady_clock::now() - begin_;
    return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(spent).count());
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

TEST_F(RsocketErrors, ConnectingGoesOnAtTheTimeLimitOfTheCall) {
  Silent silent;
  a_ = rsocket(AF_INET, SOCK_STREAM, 0);
  limit_calls(a_, SO_SNDTIMEO);
  for (const int error : {EINPROGRESS, EALREADY}) {
    const Stopwatch watch;
    EXPECT_EQ(silent.answer_to(a_), error);
    EXPECT_GE(watch.milliseconds(), 300);
    EXPECT_LT(watch.milliseconds(), kLateMs);
  }
}

TEST_F(RsocketErrors, AcceptKeepsToTheTimeLimit) {
  limit_calls(listener_, SO_RCVTIMEO);
  const Stopwatch watch;
  EXPECT_EQ(raccept(listener_, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_GE(watch.milliseconds(), 300);
  EXPECT_LT(watch.milliseconds(), kLateMs);
  make_pair();  // what comes in time is accepted
}

// Options that would stop the engine do not get to its socket.
TEST_F(RsocketErrors, OptionsThatTheStreamCannotKeepAreRefused) {
  make_pair();
  const std::pair<int, int> refused[] = {{SOL_SOCKET, SO_RCVLOWAT},
                                         {SOL_SOCKET, SO_TIMESTAMPING},
                                         {SOL_TCP, TCP_ULP},
                                         {SOL_TCP, TCP_REPAIR}};
  const int number = 1 << 16;
  for (const auto& [level, name] : refused) {
    EXPECT_EQ(rsetsockopt(a_, level, name, &number, sizeof number), -1) << name;
    EXPECT_EQ(errno, ENOPROTOOPT) << name;
  }
  const std::tuple<int, int, int> harmless[] = {
      {SOL_SOCKET, SO_RCVLOWAT, 1}, {SOL_SOCKET, SO_TIMESTAMPING, 0}, {SOL_TCP, TCP_REPAIR, 0}};
  for (const auto& [level, name, value] : harmless) {
    EXPECT_EQ(rsetsockopt(a_, level, name, &value, sizeof value), 0) << name;
  }
  char octet = 'x';
  EXPECT_EQ(rsend(a_, &octet, 1, 0), 1);
  EXPECT_EQ(rrecv(b_, &octet, 1, 0), 1);
}

// The messages below do not wait, whatever the program wants of its octets.
TEST_F(RsocketErrors, CorkAndDelayAreTheProgramsAlone) {
  make_pair();
  const auto ask = [](auto call, int fd, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    EXPECT_EQ(call(fd, SOL_TCP, name, &value, &length), 0);
    return value;
  };
  for (const int wanted : {1, 0}) {
    for (const int name : {TCP_CORK, TCP_NODELAY}) {
      EXPECT_EQ(rsetsockopt(a_, SOL_TCP, name, &wanted, sizeof wanted), 0);
      EXPECT_EQ(ask(rgetsockopt, a_, name), wanted);
    }
    EXPECT_EQ(ask(getsockopt, a_, TCP_CORK), 0);
    EXPECT_EQ(ask(getsockopt, a_, TCP_NODELAY), 1);
  }
}

TEST_F(RsocketErrors, AThreadThatConnectsIsToldOfAClose) {
  Silent silent;
  const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
  int error = 0;
  std::thread connecting([&] { error = silent.answer_to(fd); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(rclose(fd), 0);
  connecting.join();
  EXPECT_EQ(error, EBADF);
}

}  // namespace
