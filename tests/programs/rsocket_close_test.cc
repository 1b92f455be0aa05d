// rclose() beside peers that are slow, or have stopped: it waits for nobody, and what was sent
// arrives all the same.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

// Octets that an end offers to take: far more than its kernel takes for a process that has stopped.
constexpr int kOffered = 16 << 20;

std::uint8_t octet_at(std::size_t at) { return static_cast<std::uint8_t>(at * 31 + at / 509); }

// A listener, and a child that runs `body` with its address.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) {
    // The child begins with a library of its own: so it comes before ours.
    int ports[2];
    EXPECT_EQ(pipe(ports), 0);
    pid_ = fork();
    if (pid_ == 0) {
      sockaddr_in server{};
      if (read(ports[0], &server, sizeof server) != sizeof server) _exit(2);
      body(server);
      exit(0);
    }
    listener = rsocket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(rbind(listener, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
      EXPECT_EQ(rsetsockopt(listener, SOL_SOCKET, option, &kOffered, sizeof kOffered), 0);
    }
    EXPECT_EQ(rlisten(listener, 64), 0);
    socklen_t length = sizeof any;
    EXPECT_EQ(rgetsockname(listener, reinterpret_cast<sockaddr*>(&any), &length), 0);
    EXPECT_EQ(write(ports[1], &any, sizeof any), static_cast<ssize_t>(sizeof any));
    close(ports[0]);
    close(ports[1]);
  }
  ~Child() {
    rclose(listener);
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void stop() const {
    EXPECT_EQ(kill(pid_, SIGSTOP), 0);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void expect_exit() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    pid_ = -1;
  }

  int listener = -1;

 private:
  pid_t pid_ = -1;
};

int connect_to(const sockaddr_in& server) {
  const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
  for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
    if (rsetsockopt(fd, SOL_SOCKET, option, &kOffered, sizeof kOffered) != 0) _exit(6);
  }
  if (rconnect(fd, reinterpret_cast<const sockaddr*>(&server), sizeof server) != 0) _exit(3);
  return fd;
}

// A child has sent, and exits, while its peer has not begun to read.
void expect_all_of_a_child_that_ends(bool closes) {
  constexpr std::size_t kBytes = 3'000'000;
  Child child([closes](const sockaddr_in& server) {
    std::vector<std::uint8_t> data(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) data[i] = octet_at(i);
    const int fd = connect_to(server);
    for (std::size_t at = 0; at < kBytes;) {
      const ssize_t n = rsend(fd, data.data() + at, kBytes - at, 0);
      if (n <= 0) _exit(4);
      at += static_cast<std::size_t>(n);
    }
    if (closes && rclose(fd) != 0) _exit(5);
  });
  const int fd = raccept(child.listener, nullptr, nullptr);
  ASSERT_GE(fd, 0) << std::strerror(errno);
  std::vector<std::uint8_t> data(10'000);
  std::size_t at = 0;
  for (;;) {
    if (at < 200'000) usleep(20'000);  // slowly, to begin with
    const ssize_t n = rrecv(fd, data.data(), data.size(), 0);
    if (n == 0) break;
    ASSERT_GT(n, 0) << std::strerror(errno);
    for (ssize_t i = 0; i < n; ++i) ASSERT_EQ(data[static_cast<std::size_t>(i)], octet_at(at++));
  }
  EXPECT_EQ(at, kBytes);
  child.expect_exit();
  EXPECT_EQ(rclose(fd), 0);
}

TEST(RsocketClose, WhatWasSentArrivesThoughTheProgramEnds) {
  expect_all_of_a_child_that_ends(true);
}
TEST(RsocketClose, WhatWasSentArrivesThoughNobodyCloses) { expect_all_of_a_child_that_ends(false); }

int g_fd_at_exit = -1;

// Handlers of the program may still send.
TEST(RsocketClose, WhatIsSentAtExitArrives) {
  Child child([](const sockaddr_in& server) {
    if (std::atexit([] { static_cast<void>(rsend(g_fd_at_exit, "bye", 3, 0)); }) != 0) _exit(4);
    g_fd_at_exit = connect_to(server);
  });
  const int fd = raccept(child.listener, nullptr, nullptr);
  ASSERT_GE(fd, 0) << std::strerror(errno);
  char data[8];
  EXPECT_EQ(rrecv(fd, data, sizeof data, MSG_WAITALL), 3);
  EXPECT_EQ(rrecv(fd, data, sizeof data, 0), 0);
  child.expect_exit();
  EXPECT_EQ(rclose(fd), 0);
}

// To them the connection has not failed: what they would do then must not happen.
TEST(RsocketClose, ThreadsThatAreInCallsAtExitStayThere) {
  Child child([](const sockaddr_in& server) {
    const int reads = connect_to(server);
    const int polls = connect_to(server);
    std::thread([reads] {
      char octet = 0;
      static_cast<void>(rrecv(reads, &octet, 1, 0));
      _exit(7);
    }).detach();
    std::thread([polls] {
      pollfd one{polls, POLLIN, 0};
      static_cast<void>(rpoll(&one, 1, -1));
      _exit(8);
    }).detach();
    usleep(200'000);  // so that they sleep
  });
  const int fds[] = {raccept(child.listener, nullptr, nullptr),
                     raccept(child.listener, nullptr, nullptr)};
  for (const int fd : fds) {
    char octet = 0;
    EXPECT_EQ(rrecv(fd, &octet, 1, 0), 0);
  }
  child.expect_exit();
  for (const int fd : fds) EXPECT_EQ(rclose(fd), 0);
}

// One after the other they would take minutes.
TEST(RsocketClose, DoesNotWaitForPeersThatHaveStopped) {
  constexpr std::size_t kConnections = 16;
  constexpr unsigned kPatienceS = 60;
  Child child([](const sockaddr_in& server) {
    for (std::size_t i = 0; i < kConnections; ++i) static_cast<void>(connect_to(server));
    // Not stopped by itself: the last connection may still need it.
    for (;;) pause();
  });
  std::vector<int> accepted;
  while (accepted.size() < kConnections) {
    accepted.push_back(raccept(child.listener, nullptr, nullptr));
    ASSERT_GE(accepted.back(), 0) << std::strerror(errno);
  }
  child.stop();
  alarm(kPatienceS);
  const std::vector<char> data(100'000, 'x');
  for (const int fd : accepted) {
    while (rsend(fd, data.data(), data.size(), MSG_DONTWAIT) > 0) {
    }
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(rclose(fd), 0);
  }
  alarm(0);
}

}  // namespace
