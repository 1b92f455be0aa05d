// Clients that wait to be accepted: how many a listener takes, and what becomes of the others.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int kWaitMs = 20'000;
// The listener has heard from those that are connected, and counts them: on their way they take no
// place of its backlog.
constexpr useconds_t kSettledUs = 200'000;

// While it lives, this process can open nothing.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{0, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

class RsocketBacklog : public ::testing::Test {
 protected:
  void SetUp() override {
    listener_ = rsocket(AF_INET, SOCK_STREAM, 0);
    ASSERT_GE(listener_, 0) << std::strerror(errno);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(rbind(listener_, peer(), sizeof address_), 0);
  }
  void TearDown() override { rclose(listener_); }
  void listen(int backlog) {
    ASSERT_EQ(rlisten(listener_, backlog), 0) << std::strerror(errno);
    socklen_t length = sizeof address_;
    ASSERT_EQ(rgetsockname(listener_, peer(), &length), 0);
    const timeval limit{kWaitMs / 1000, 0};
    ASSERT_EQ(rsetsockopt(listener_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
  }
  // -1 with errno.
  int connect_one() {
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    if (rconnect(fd, peer(), sizeof address_) == 0) return fd;
    const int error = errno;
    rclose(fd);
    errno = error;
    return -1;
  }
  // One octet and its answer. Accepts the next, whichever it is.
  void serve_one() {
    const int fd = raccept(listener_, nullptr, nullptr);
    ASSERT_GE(fd, 0) << std::strerror(errno);
    char octet = 0;
    EXPECT_EQ(rrecv(fd, &octet, 1, 0), 1);
    EXPECT_EQ(rsend(fd, &octet, 1, 0), 1);
    EXPECT_EQ(rclose(fd), 0);
  }
  static bool is_served(int fd) {
    char octet = 'x';
    return rsend(fd, &octet, 1, MSG_NOSIGNAL) == 1 && rrecv(fd, &octet, 1, 0) == 1;
  }
  sockaddr* peer() { return reinterpret_cast<sockaddr*>(&address_); }

  int listener_ = -1;
  sockaddr_in address_{};
};

TEST_F(RsocketBacklog, WhoIsToldThatItIsConnectedIsServed) {
  listen(1);
  // As Linux: one more than asked for.
  const int first = connect_one();
  const int second = connect_one();
  usleep(kSettledUs);
  std::array<pollfd, 3> others{};
  for (pollfd& one : others) {
    one = {rsocket(AF_INET, SOCK_STREAM, 0), POLLOUT, 0};
    ASSERT_EQ(rfcntl(one.fd, F_SETFL, O_NONBLOCK), 0);
    ASSERT_EQ(rconnect(one.fd, peer(), sizeof address_), -1);
    ASSERT_EQ(errno, EINPROGRESS);
    EXPECT_EQ(rpoll(&one, 1, 300), 0);
  }
  // In whatever order they come.
  std::vector<std::thread> clients;
  for (const int fd : {first, second, others[0].fd, others[1].fd, others[2].fd}) {
    clients.emplace_back([fd] {
      pollfd one{fd, POLLOUT, 0};
      EXPECT_EQ(rpoll(&one, 1, kWaitMs), 1);
      EXPECT_EQ(rfcntl(fd, F_SETFL, 0), 0);
      EXPECT_TRUE(is_served(fd));
      rclose(fd);
    });
  }
  for (int i = 0; i < 5; ++i) serve_one();
  for (std::thread& one : clients) one.join();
}

TEST_F(RsocketBacklog, ALongerOneLetsThoseInThatWait) {
  listen(0);
  const int first = connect_one();
  std::thread second([&] {
    const int fd = connect_one();  // returns once there is room
    EXPECT_GE(fd, 0) << std::strerror(errno);
    rclose(fd);
  });
  listen(1);
  second.join();
  rclose(first);
}

// As listen(2).
TEST_F(RsocketBacklog, LessThanNothingIsAsManyAsThereMayBe) {
  listen(-1);
  std::vector<int> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(connect_one());
  std::vector<std::thread> served;
  for (const int fd : clients) {
    served.emplace_back([fd] {
      EXPECT_TRUE(is_served(fd));
      rclose(fd);
    });
  }
  for (std::size_t i = 0; i < clients.size(); ++i) serve_one();
  for (std::thread& one : served) one.join();
}

// As accept(2).
TEST_F(RsocketBacklog, WithoutADescriptorTheConnectionWaits) {
  listen(4);
  const int client = connect_one();
  pollfd one{listener_, POLLIN, 0};
  ASSERT_EQ(rpoll(&one, 1, kWaitMs), 1);
  {
    const NoDescriptors none;
    EXPECT_EQ(raccept(listener_, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EMFILE);
  }
  EXPECT_EQ(rpoll(&one, 1, 0), 1);
  std::thread server([&] { serve_one(); });
  EXPECT_TRUE(is_served(client));
  server.join();
  rclose(client);
}

// TCP connections that never ask for anything, of a child.
class SilentClients {
 public:
  SilentClients(const sockaddr_in& server, int count) {
    EXPECT_EQ(pipe2(done_, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    for (int i = 0; i < count; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(fd, reinterpret_cast<const sockaddr*>(&server), sizeof server) != 0) _exit(1);
    }
    if (write(done_[1], "", 1) != 1) _exit(2);
    for (;;) pause();
  }
  ~SilentClients() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(done_[0]);
    close(done_[1]);
  }
  SilentClients(const SilentClients&) = delete;
  SilentClients& operator=(const SilentClients&) = delete;
  void wait_until_connected() const {
    pollfd one{done_[0], POLLIN, 0};
    EXPECT_EQ(poll(&one, 1, kWaitMs), 1);
  }

 private:
  int done_[2]{};
  pid_t pid_ = -1;
};

// The first octets that a client of rsockets sends.
std::vector<char> good_request() {
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(server, at, length), 0);
  EXPECT_EQ(listen(server, 1), 0);
  EXPECT_EQ(getsockname(server, at, &length), 0);
  const int client = rsocket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(rfcntl(client, F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(rconnect(client, at, length), -1);
  const int accepted = accept(server, nullptr, nullptr);
  std::vector<char> said(1000);
  const ssize_t n = recv(accepted, said.data(), said.size(), 0);
  EXPECT_GT(n, 20);
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  close(accepted);
  rclose(client);
  close(server);
  return said;
}

// The engine gives them ten seconds.
TEST_F(RsocketBacklog, ClientsThatSayNoMoreLeaveThePlacesToOthers) {
  constexpr int kSoonMs = 5000;
  const std::vector<char> request = good_request();
  listen(1);
  std::array<int, 2> quiet{};
  for (int& fd : quiet) {
    fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(fd, peer(), sizeof address_), 0);
    ASSERT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    pollfd answer{fd, POLLIN, 0};
    ASSERT_EQ(poll(&answer, 1, kWaitMs), 1);
    char octet = 0;
    ASSERT_EQ(recv(fd, &octet, 1, 0), 1);
  }
  pollfd one{rsocket(AF_INET, SOCK_STREAM, 0), POLLOUT, 0};
  ASSERT_EQ(rfcntl(one.fd, F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(rconnect(one.fd, peer(), sizeof address_), -1);
  ASSERT_EQ(rpoll(&one, 1, kSoonMs), 1);
  ASSERT_EQ(rfcntl(one.fd, F_SETFL, 0), 0);
  std::thread server([&] { serve_one(); });
  EXPECT_TRUE(is_served(one.fd));
  server.join();
  rclose(one.fd);
  for (const int fd : quiet) close(fd);
}

TEST_F(RsocketBacklog, SilentClientsLeaveDescriptorsToOthers) {
  listen(64);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{200, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    const SilentClients clients(address_, 150);
    clients.wait_until_connected();
    for (int i = 0; i < 3; ++i) {
      const int fd = connect_one();
      ASSERT_GE(fd, 0) << std::strerror(errno);
      std::thread server([&] { serve_one(); });
      EXPECT_TRUE(is_served(fd));
      server.join();
      rclose(fd);
    }
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
