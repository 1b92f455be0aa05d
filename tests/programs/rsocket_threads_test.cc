// Several threads on one rsocket, through rdma-core's interface: both directions at once, several
// senders, sleepers in rrecv() and rpoll() together, a close while others sleep. A sleeper that is
// forgotten shows as a thread that does not end.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr auto kPatience = std::chrono::seconds(60);

// Threads of a test. One that sleeps forever ends the program: it can't be joined.
class Threads {
 public:
  void start(std::function<void()> body) {
    std::packaged_task<void()> task(std::move(body));
    ends_.push_back(task.get_future());
    threads_.emplace_back(std::move(task));
  }
  ~Threads() {
    for (auto& end : ends_) {
      if (end.wait_for(kPatience) != std::future_status::ready) {
        std::fprintf(stderr, "FAILED: a thread sleeps forever\n");
        std::abort();
      }
    }
    for (std::thread& one : threads_) one.join();
  }

 private:
  std::vector<std::future<void>> ends_;
  std::vector<std::thread> threads_;
};

class RsocketThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    listener_ = rsocket(AF_INET, SOCK_STREAM, 0);
    ASSERT_GE(listener_, 0) << std::strerror(errno);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(rbind(listener_, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    ASSERT_EQ(rlisten(listener_, 16), 0);
    length_ = sizeof address_;
    ASSERT_EQ(rgetsockname(listener_, reinterpret_cast<sockaddr*>(&address_), &length_), 0);
  }
  void TearDown() override {
    for (const int fd : {a_, b_, listener_}) {
      if (fd >= 0) rclose(fd);
    }
  }
  int connect_one() {
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    if (rconnect(fd, reinterpret_cast<sockaddr*>(&address_), length_) == 0) return fd;
    ADD_FAILURE() << std::strerror(errno);
    return -1;
  }
  void make_pair() {
    a_ = connect_one();
    ASSERT_GE(a_, 0);
    b_ = raccept(listener_, nullptr, nullptr);
    ASSERT_GE(b_, 0) << std::strerror(errno);
  }

  int listener_ = -1;
  int a_ = -1;
  int b_ = -1;
  sockaddr_in address_{};
  socklen_t length_ = 0;
};

std::uint8_t octet_at(std::size_t at, int seed) {
  return static_cast<std::uint8_t>((at * 7 + at / 251 + static_cast<std::size_t>(seed)) % 253);
}

void send_pattern(int fd, std::size_t total, int seed) {
  std::vector<std::uint8_t> data(30'011);
  for (std::size_t at = 0; at < total;) {
    const std::size_t n = std::min(data.size(), total - at);
    for (std::size_t i = 0; i < n; ++i) data[i] = octet_at(at + i, seed);
    ASSERT_EQ(rsend(fd, data.data(), n, 0), static_cast<ssize_t>(n)) << std::strerror(errno);
    at += n;
  }
}

// `take` reads some octets, as recv() does.
template <class Take>
void expect_pattern(std::size_t total, int seed, Take take) {
  std::vector<std::uint8_t> data(17'003);
  for (std::size_t at = 0; at < total;) {
    const ssize_t n = take(data.data(), data.size());
    ASSERT_GT(n, 0) << std::strerror(errno);
    for (ssize_t i = 0; i < n; ++i) {
      ASSERT_EQ(data[static_cast<std::size_t>(i)],
                octet_at(at + static_cast<std::size_t>(i), seed));
    }
    at += static_cast<std::size_t>(n);
  }
}

ssize_t take_by_poll(int fd, void* out, std::size_t size) {
  pollfd one{fd, POLLIN, 0};
  for (;;) {
    const ssize_t n = rrecv(fd, out, size, MSG_DONTWAIT);
    if (n >= 0 || errno != EAGAIN) return n;
    if (rpoll(&one, 1, -1) < 0) return -1;
  }
}

TEST_F(RsocketThreads, BothDirectionsAtOnce) {
  make_pair();
  constexpr std::size_t kTotal = 6'000'000;
  Threads threads;
  for (const auto& [fd, seed] : {std::pair{a_, 1}, std::pair{b_, 2}}) {
    threads.start([fd = fd, seed = seed] { send_pattern(fd, kTotal, seed); });
  }
  for (const auto& [fd, seed] : {std::pair{a_, 2}, std::pair{b_, 1}}) {
    threads.start([fd = fd, seed = seed] {
      expect_pattern(kTotal, seed, [&](void* to, std::size_t n) { return rrecv(fd, to, n, 0); });
    });
  }
}

std::atomic<int> g_asked_of_handler = -1;
std::atomic<int> g_answers = 0;
std::atomic<int> g_refusals = 0;
std::atomic<int> g_wrong = 0;

void ask_in_handler(int) {
  const int error = errno;
  int value = 0;
  socklen_t size = sizeof value;
  if (rgetsockopt(g_asked_of_handler, SOL_SOCKET, SO_ERROR, &value, &size) == 0) {
    ++g_answers;
  } else if (errno == EDEADLK) {
    ++g_refusals;
    pollfd one{g_asked_of_handler, POLLIN, 0};
    if (rpoll(&one, 1, 0) != -1 || errno != EDEADLK) ++g_wrong;
  } else {
    ++g_wrong;
  }
  errno = error;
}

// It uses the rsocket whose call it has interrupted: that is told, and nobody waits for himself.
TEST_F(RsocketThreads, ASignalHandlerMayUseTheRsocketThatItInterrupted) {
  constexpr std::size_t kTotal = 6'000'000;
  make_pair();
  g_asked_of_handler = a_;
  struct sigaction action {};
  action.sa_handler = ask_in_handler;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  std::atomic<bool> over = false;
  Threads threads;
  threads.start([&] {
    expect_pattern(kTotal, 3, [&](void* out, std::size_t size) { return rrecv(b_, out, size, 0); });
  });
  std::promise<pthread_t> sender;
  threads.start([&] {
    sender.set_value(pthread_self());
    std::vector<std::uint8_t> data(kTotal);
    for (std::size_t i = 0; i < kTotal; ++i) data[i] = octet_at(i, 3);
    for (std::size_t at = 0; at < kTotal;) {
      const ssize_t n = rsend(a_, data.data() + at, kTotal - at, 0);
      if (n < 0 && errno == EINTR) continue;
      ASSERT_GT(n, 0) << std::strerror(errno);
      at += static_cast<std::size_t>(n);
    }
    // Signals come until the handler has met a call at work.
    while (g_refusals == 0) static_cast<void>(rsend(a_, "", 0, MSG_DONTWAIT));
    over = true;
    while (over) sched_yield();
  });
  const pthread_t interrupted = sender.get_future().get();
  // With a pause: one that does nothing but handle signals gets nowhere on a busy machine.
  while (!over) {
    pthread_kill(interrupted, SIGUSR1);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  over = false;
  EXPECT_GT(g_refusals, 0);
  EXPECT_EQ(g_wrong, 0);
}

TEST_F(RsocketThreads, OneSleepsInPollWhileAnotherSends) {
  make_pair();
  constexpr std::size_t kTotal = 3'000'000;
  Threads threads;
  for (const auto& [fd, seed] : {std::pair{a_, 1}, std::pair{b_, 2}}) {
    threads.start([fd = fd, seed = seed] { send_pattern(fd, kTotal, seed); });
  }
  for (const auto& [fd, seed] : {std::pair{a_, 2}, std::pair{b_, 1}}) {
    threads.start([fd = fd, seed = seed] {
      expect_pattern(kTotal, seed,
                     [&](void* to, std::size_t n) { return take_by_poll(fd, to, n); });
    });
  }
}

TEST_F(RsocketThreads, WhatOneCallSendsStaysInOnePiece) {
  make_pair();
  constexpr int kSenders = 4;
  constexpr int kRecords = 400;
  constexpr std::size_t kBytes = 9'001;  // more than is left of the ring now and then
  Threads threads;
  for (int i = 0; i < kSenders; ++i) {
    threads.start([this, i] {
      const std::string record(kBytes, static_cast<char>('a' + i));
      for (int n = 0; n < kRecords; ++n) {
        ASSERT_EQ(rsend(a_, record.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
      }
    });
  }
  std::array<int, kSenders> seen{};
  std::string record(kBytes, 0);
  for (int n = 0; n < kSenders * kRecords; ++n) {
    ASSERT_EQ(rrecv(b_, record.data(), kBytes, MSG_WAITALL), static_cast<ssize_t>(kBytes));
    ASSERT_EQ(record, std::string(kBytes, record[0])) << "record " << n;
    ++seen[static_cast<std::size_t>(record[0] - 'a')];
  }
  for (const int count : seen) EXPECT_EQ(count, kRecords);
}

// One reads by rrecv(), two wait in rpoll(): each small message wakes a reader, the end wakes all.
TEST_F(RsocketThreads, SleepersOfBothKindsShareAStream) {
  make_pair();
  constexpr int kMessages = 2000;
  std::atomic<int> got{0};
  {
    Threads threads;
    const auto count = [&](auto take) {
      char octet = 0;
      while (take(&octet) == 1) ++got;
    };
    threads.start([&] { count([&](char* to) { return rrecv(b_, to, 1, 0); }); });
    for (int i = 0; i < 2; ++i) {
      threads.start([&] { count([&](char* to) { return take_by_poll(b_, to, 1); }); });
    }
    for (int i = 0; i < kMessages; ++i) {
      ASSERT_EQ(rsend(a_, "x", 1, 0), 1);
      // Mostly one at a time, so that they sleep in between.
      while (i % 4 != 0 && got.load() <= i - 3) std::this_thread::yield();
    }
    ASSERT_EQ(rshutdown(a_, SHUT_WR), 0);
  }
  EXPECT_EQ(got.load(), kMessages);
}

// Reader, poller and a sender without room, all on a_. `end` brings their sleep to an end.
template <class End>
void sleep_until(int fd, End end) {
  std::atomic<int> begun{0};
  Threads threads;
  threads.start([&] {
    char octet = 0;
    ++begun;
    EXPECT_LE(rrecv(fd, &octet, 1, 0), 0);
  });
  threads.start([&] {
    pollfd one{fd, POLLIN, 0};
    ++begun;
    EXPECT_NE(rpoll(&one, 1, -1), 0);
  });
  threads.start([&] {
    const std::string much(3'000'000, 'x');  // nobody reads it
    ++begun;
    EXPECT_LT(rsend(fd, much.data(), much.size(), MSG_NOSIGNAL), 3'000'000);
  });
  while (begun.load() < 3) std::this_thread::yield();
  end();
}

TEST_F(RsocketThreads, EndOfThePeerWakesAll) {
  for (int turn = 0; turn < 5; ++turn) {
    make_pair();
    sleep_until(a_, [&] { rclose(std::exchange(b_, -1)); });
    rclose(std::exchange(a_, -1));
  }
}

TEST_F(RsocketThreads, CloseUnderSleepersWakesThem) {
  for (int turn = 0; turn < 5; ++turn) {
    make_pair();
    sleep_until(a_, [&] {
      std::thread other([&] { rclose(std::exchange(b_, -1)); });
      rclose(std::exchange(a_, -1));
      other.join();
    });
  }
}

TEST_F(RsocketThreads, CloseWakesThoseWhoWaitForDatagrams) {
  const int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(rbind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
  Threads threads;
  threads.start([fd] {
    char octet = 0;
    EXPECT_LE(rrecv(fd, &octet, 1, 0), 0);
  });
  threads.start([fd] {
    pollfd one{fd, POLLIN, 0};
    EXPECT_EQ(rpoll(&one, 1, -1), 1);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // they may be asleep
  EXPECT_EQ(rclose(fd), 0);
}

TEST_F(RsocketThreads, SeveralAccept) {
  constexpr int kClients = 12;
  std::atomic<int> served{0};
  Threads threads;
  for (int i = 0; i < 3; ++i) {
    threads.start([&] {
      for (int n = 0; n < kClients / 3; ++n) {
        const int fd = raccept(listener_, nullptr, nullptr);
        ASSERT_GE(fd, 0) << std::strerror(errno);
        char octet = 0;
        EXPECT_EQ(rrecv(fd, &octet, 1, 0), 1);
        ++served;
        rclose(fd);
      }
    });
  }
  for (int i = 0; i < kClients; ++i) {
    threads.start([&] {
      const int fd = connect_one();
      ASSERT_GE(fd, 0);
      EXPECT_EQ(rsend(fd, "x", 1, 0), 1);
      char octet = 0;
      EXPECT_EQ(rrecv(fd, &octet, 1, 0), 0);
      rclose(fd);
    });
  }
}

// Whoever asks about a listener leaves those asleep in raccept() their wake-up.
TEST_F(RsocketThreads, AcceptIsWokenThoughAnotherPolls) {
  constexpr int kClients = 3000;
  std::atomic<bool> over{false};
  std::atomic<int> accepted{0};
  Threads threads;
  threads.start([&] {
    while (!over) {
      pollfd one{listener_, POLLIN, 0};
      EXPECT_GE(rpoll(&one, 1, 0), 0);
    }
  });
  threads.start([&] {
    for (int i = 0; i < kClients; ++i) {
      const int fd = raccept(listener_, nullptr, nullptr);
      ASSERT_GE(fd, 0) << std::strerror(errno);
      ++accepted;
      rclose(fd);
    }
  });
  for (int i = 0; i < kClients; ++i) {
    const int fd = connect_one();
    char octet = 0;
    ASSERT_EQ(rrecv(fd, &octet, 1, 0), 0);  // accepted and closed
    rclose(fd);
  }
  over = true;
}

}  // namespace
