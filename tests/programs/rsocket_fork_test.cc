// fork() in programs with rsockets: the child has none of them, and can make its own, whatever the
// parent's threads were in the middle of.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

namespace {

constexpr unsigned kPatienceSeconds = 60;

// A listener at a free port of the loopback; its address in `at`.
int listen_somewhere(sockaddr_in& at) {
  const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return -1;
  at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  if (rbind(fd, reinterpret_cast<sockaddr*>(&at), length) != 0 || rlisten(fd, 64) != 0 ||
      rgetsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) != 0) {
    rclose(fd);
    return -1;
  }
  return fd;
}

int connect_to(const sockaddr_in& at) {
  const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || rconnect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) return fd;
  rclose(fd);
  return -1;
}

// 0, or the step that failed.
int talk_to_myself() {
  sockaddr_in at;
  const int listener = listen_somewhere(at);
  if (listener < 0) return 1;
  const int a = connect_to(at);
  if (a < 0) return 2;
  const int b = raccept(listener, nullptr, nullptr);
  if (b < 0) return 3;
  char word[6] = {};
  if (rsend(a, "words", 5, 0) != 5 || rrecv(b, word, 5, MSG_WAITALL) != 5) return 4;
  if (std::strcmp(word, "words") != 0) return 5;
  return rclose(a) == 0 && rclose(b) == 0 && rclose(listener) == 0 ? 0 : 6;
}

// What `work` gave in a child; 100 and more: a signal ended it, SIGALRM if it hung.
template <class Work>
int in_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kPatienceSeconds);
    _exit(work());
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Clients come and go all the time, so that the thread which answers them is at work in most forks.
class Crowd {
 public:
  explicit Crowd(const sockaddr_in& at, int listener)
      : clients_([this, at] {
          while (!over_) {
            if (const int fd = connect_to(at); fd >= 0) rclose(fd);
          }
        }),
        server_([this, listener] {
          pollfd one{listener, POLLIN, 0};
          while (!over_) {
            if (rpoll(&one, 1, 100) <= 0) continue;
            if (const int fd = raccept(listener, nullptr, nullptr); fd >= 0) rclose(fd);
          }
        }) {}
  ~Crowd() {
    over_ = true;
    clients_.join();
    server_.join();
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::thread clients_;
  std::thread server_;
};

TEST(RsocketFork, AChildServesWhileTheParentWasAnsweringClients) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer's allocator may be locked by another thread at the fork";
#endif
  constexpr int kForks = 30;
  sockaddr_in at;
  const int listener = listen_somewhere(at);
  ASSERT_GE(listener, 0) << std::strerror(errno);
  {
    ASSERT_EQ(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
    const Crowd crowd(at, listener);
    for (int i = 0; i < kForks; ++i) ASSERT_EQ(in_child(talk_to_myself), 0) << "fork " << i;
  }
  EXPECT_EQ(rclose(listener), 0);
}

TEST(RsocketFork, TheChildCanCloseTheParentsNumbersAndNothingElse) {
  sockaddr_in at;
  const int listener = listen_somewhere(at);
  ASSERT_GE(listener, 0) << std::strerror(errno);
  const int a = connect_to(at);
  const int b = raccept(listener, nullptr, nullptr);
  ASSERT_TRUE(a >= 0 && b >= 0) << std::strerror(errno);
  EXPECT_EQ(in_child([&] {
              if (rsend(a, "x", 1, 0) != -1 || errno != EBADF) return 1;
              if (raccept(listener, nullptr, nullptr) != -1 || errno != EBADF) return 2;
              for (const int fd : {a, b, listener}) {
                if (rclose(fd) != 0) return 3;
                if (rclose(fd) != -1 || errno != EBADF) return 4;
                if (fcntl(fd, F_GETFD) != -1) return 5;
              }
              return talk_to_myself() * 10;
            }),
            0);
  char word[3] = {};
  ASSERT_EQ(rsend(a, "me", 2, 0), 2);
  ASSERT_EQ(rrecv(b, word, 2, MSG_WAITALL), 2);
  EXPECT_STREQ(word, "me");
  for (const int fd : {a, b, listener}) EXPECT_EQ(rclose(fd), 0);
}

// A connection that nobody has accepted is none of the child's: when the parent refuses it, its
// client hears of it though the child lives on.
TEST(RsocketFork, AChildThatLivesOnKeepsNoConnectionOpenThatNobodyAccepted) {
  sockaddr_in at;
  const int listener = listen_somewhere(at);
  ASSERT_GE(listener, 0) << std::strerror(errno);
  const int a = connect_to(at);
  ASSERT_GE(a, 0) << std::strerror(errno);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kPatienceSeconds);
    char octet = 0;
    close(pipe_ends[1]);
    _exit(read(pipe_ends[0], &octet, 1) == 0 ? 0 : 1);
  }
  EXPECT_EQ(rclose(listener), 0);
  char octet = 0;
  EXPECT_LE(rrecv(a, &octet, 1, 0), 0);  // the end, or a reset
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(rclose(a), 0);
}

}  // namespace
