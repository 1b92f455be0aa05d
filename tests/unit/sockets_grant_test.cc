// The machines of a granted ring on real memory, between threads and between processes, with the
// kernel's stream beside the ring.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "os/clock.h"
#include "sockets/grant/grant_reader.h"
#include "sockets/grant/grant_writer.h"

namespace weft::sockets {
namespace {

constexpr std::uint64_t kRingBytes = 4096;

// In memory that a child of fork() shares.
struct Direction {
  GrantShared shared;
  GrantOwn own;
  std::atomic<std::uint64_t> told{0};  // octets that calls have returned as sent
  std::atomic<std::uint64_t> read_to{0};
  std::atomic<bool> reader_ended{false};
  std::array<std::uint8_t, kRingBytes> ring;
};

std::uint8_t octet_at(std::uint64_t position) {
  return static_cast<std::uint8_t>((position * 2654435761U) >> 13U);
}

// On a busy machine a yield may take as long as the turns of all others: so waits are counted in
// time, not in yields.
constexpr std::int64_t kMomentNs = 200'000;

class GrantedRing : public ::testing::Test {
 protected:
  void SetUp() override {
    void* at =
        mmap(nullptr, sizeof(Direction), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    direction_ = new (at) Direction{};
    GrantMemory::reset(direction_->shared);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair_.data()), 0);
  }
  void TearDown() override {
    for (const int fd : pair_) {
      if (fd >= 0) close(fd);
    }
    munmap(direction_, sizeof(Direction));
  }

  GrantMemory memory() const {
    return {direction_->shared, direction_->own, direction_->ring.data(), kRingBytes};
  }

  static std::int64_t told_by(ssize_t result) {
    if (result >= 0) return result;
    return errno == EAGAIN ? kGrantWouldBlock : kGrantError;
  }

  std::int64_t write(GrantCall how, const std::uint8_t* octets, std::uint64_t bytes) {
    GrantMemory m = memory();
    m.set_source(octets);
    GrantWriter call(how, bytes, true);
    for (;;) {
      take_step();
      std::int64_t answer = 0;
      switch (call.step(m)) {
        case GrantNeed::kStep: continue;
        case GrantNeed::kDone: return call.result();
        case GrantNeed::kLock: pthread_mutex_lock(&lock_); break;
        case GrantNeed::kUnlock: pthread_mutex_unlock(&lock_); break;
        case GrantNeed::kSendRing: answer = send_ring(call.from(), call.to()); break;
        case GrantNeed::kSend:
          answer = told_by(send(pair_[0], octets + call.done(), call.left(), MSG_NOSIGNAL));
          break;
        default: break;
      }
      call.answer(answer);
    }
  }

  std::int64_t send_ring(std::uint64_t from, std::uint64_t to) {
    std::vector<std::uint8_t> octets(to - from);
    for (std::uint64_t i = from; i < to; ++i) octets[i - from] = direction_->ring[i % kRingBytes];
    return told_by(send(pair_[0], octets.data(), octets.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }

  std::int64_t read(std::uint8_t* octets, std::uint64_t bytes, GrantReader::Options options) {
    GrantMemory m = memory();
    m.set_target(octets);
    GrantReader call(bytes, options);
    int spins = 0;
    for (;;) {
      take_step();
      std::int64_t answer = 0;
      switch (call.step(m)) {
        case GrantNeed::kStep: continue;
        case GrantNeed::kDone:
          if (call.by_ring()) ++by_ring_;
          return call.result();
        case GrantNeed::kReceiveNow: answer = receive(octets, bytes, options, MSG_DONTWAIT); break;
        case GrantNeed::kReceive: answer = receive(octets, bytes, options, 0); break;
        case GrantNeed::kSpin:
          answer = ++spins < 200 ? 1 : 0;
          if (spins == 100) std::this_thread::yield();
          break;
        case GrantNeed::kCountReceived: answer = static_cast<std::int64_t>(received_); break;
        default: break;
      }
      call.answer(answer);
    }
  }

  std::int64_t receive(std::uint8_t* octets, std::uint64_t bytes, GrantReader::Options options,
                       int flags) {
    const int peek = options.peeks ? MSG_PEEK : 0;
    const std::int64_t result = told_by(recv(pair_[1], octets, bytes, flags | peek));
    if (result > 0 && !options.peeks) received_ += static_cast<std::uint64_t>(result);
    return result;
  }

  // By a call that the protocol does not see. The kernel's count tells of it afterwards.
  std::int64_t read_unseen(std::uint8_t* octets, std::uint64_t bytes) {
    const std::int64_t result = told_by(recv(pair_[1], octets, bytes, 0));
    if (result > 0) {
      received_ += static_cast<std::uint64_t>(result);
      memory().add(GrantWord::kTcpRead, static_cast<std::uint64_t>(result));
    }
    return result;
  }

  void write_all(std::uint64_t total, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::uint8_t> octets(3 * kRingBytes);
    for (std::uint64_t at = 0; at < total;) {
      const std::uint64_t most = random() % 8 == 0 ? octets.size() : 200;
      const std::uint64_t bytes = std::min(1 + random() % most, total - at);
      for (std::uint64_t i = 0; i < bytes; ++i) octets[i] = octet_at(at + i);
      const std::int64_t sent = write(GrantCall::kSend, octets.data(), bytes);
      if (sent == kGrantError) return;
      if (sent > 0) at += static_cast<std::uint64_t>(sent);
      direction_->told = at;
      if (random() % 16 == 0) await_reader(at);
    }
  }

  // Twelve sends, of which some find TCP empty, with take-backs between them.
  void write_some(std::uint64_t total) {
    std::vector<std::uint8_t> octets(total / 12);
    for (std::uint64_t at = 0; at < total;) {
      for (std::uint64_t i = 0; i < octets.size(); ++i) octets[i] = octet_at(at + i);
      const std::int64_t sent = write(GrantCall::kSend, octets.data(), octets.size());
      if (sent <= 0) return;
      at += static_cast<std::uint64_t>(sent);
      direction_->told = at;
      const std::int64_t until = os::monotonic_ns() + kMomentNs;
      while (direction_->read_to < at && !child_ended_ && os::monotonic_ns() < until)
        std::this_thread::yield();
      if (at % (4 * octets.size()) == 0) static_cast<void>(write(GrantCall::kSpill, nullptr, 0));
    }
  }

  // A ring is granted only while TCP is empty.
  void await_reader(std::uint64_t at) {
    std::int64_t until = os::monotonic_ns() + kMomentNs;
    while (direction_->read_to < at && !direction_->reader_ended) {
      std::this_thread::yield();
      if (os::monotonic_ns() < until) continue;
      static_cast<void>(write(GrantCall::kSpill, nullptr, 0));
      until = os::monotonic_ns() + kMomentNs;
    }
  }

  // How many octets came until the end, or `total`; they are the right ones.
  std::uint64_t read_all(std::uint64_t total, std::uint64_t seed, bool unseen_too) {
    std::mt19937_64 random(seed);
    std::vector<std::uint8_t> octets(2 * kRingBytes);
    std::uint64_t at = 0;
    while (at < total) {
      const std::uint64_t bytes = 1 + random() % octets.size();
      const bool unseen = unseen_too && random() % 16 == 0;
      const GrantReader::Options options{.keeps = random() % 2 == 0, .peeks = random() % 16 == 0};
      const std::int64_t got =
          unseen ? read_unseen(octets.data(), bytes) : read(octets.data(), bytes, options);
      if (got == 0 || got == kGrantError) break;
      for (std::int64_t i = 0; i < got; ++i) {
        const std::uint64_t position = at + static_cast<std::uint64_t>(i);
        if (octets[static_cast<std::size_t>(i)] == octet_at(position)) continue;
        ADD_FAILURE() << "octet " << position << " is wrong";
        direction_->reader_ended = true;
        return at;
      }
      if (unseen || !options.peeks) at += static_cast<std::uint64_t>(got);
      direction_->read_to = at;
    }
    direction_->reader_ended = true;
    return at;
  }

  // In a child: before the step of that number a signal comes.
  void take_step() {
    if (signal_ != 0 && steps_left_-- == 0) raise(signal_);
  }

  // `run` in a child, to which the signal comes before its n-th step. False: it ended before that.
  // While it is killed, or stopped for a while, `beside` runs here.
  template <class Run, class Beside>
  bool interrupted(int signal, int step, Run run, Beside beside) {
    const pid_t child = fork();
    if (child == 0) {
      signal_ = signal;
      steps_left_ = step;
      run();
      _exit(0);
    }
    bool came = false;
    std::thread watcher([&] {
      int status = 0;
      for (waitpid(child, &status, WUNTRACED); WIFSTOPPED(status);
           waitpid(child, &status, WUNTRACED)) {
        came = true;
        usleep(500);
        kill(child, SIGCONT);
      }
      came = came || WIFSIGNALED(status);
      child_ended_ = true;
    });
    beside();
    watcher.join();
    child_ended_ = false;
    return came;
  }

  void begin_again() {
    for (int& fd : pair_) {
      if (fd >= 0) close(fd);
      fd = -1;
    }
    received_ = 0;
    new (direction_) Direction{};
    GrantMemory::reset(direction_->shared);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair_.data()), 0);
  }

  std::atomic<bool> child_ended_{false};
  int signal_ = 0;
  int steps_left_ = 0;
  Direction* direction_ = nullptr;
  std::array<int, 2> pair_ = {-1, -1};
  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  std::uint64_t received_ = 0;
  std::uint64_t by_ring_ = 0;
};

TEST_F(GrantedRing, NoOctetIsLostBetweenRingAndTcpAndReadsThatNobodySees) {
  constexpr std::uint64_t kTotal = 8U << 20U;
  std::atomic<bool> ends = false;
  std::thread spiller([&] {
    while (!ends) {
      usleep(300);
      static_cast<void>(write(GrantCall::kSpill, nullptr, 0));
    }
  });
  std::thread writer([&] { write_all(kTotal, 1); });
  EXPECT_EQ(read_all(kTotal, 2, true), kTotal);
  shutdown(pair_[1], SHUT_RDWR);  // so that the writer ends, too, if that was wrong
  writer.join();
  ends = true;
  spiller.join();
  EXPECT_GT(by_ring_, 0U);
  EXPECT_GT(received_, 0U);
}

TEST_F(GrantedRing, WhatASendReturnedAsSentOutlivesItsKilledProcess) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pair_[1]);
      write_all(~std::uint64_t{0}, static_cast<std::uint64_t>(round));
      _exit(0);
    }
    close(pair_[0]);
    std::thread killer([&, pause = random() % 3000] {
      while (direction_->told == 0) usleep(50);
      usleep(static_cast<useconds_t>(pause));
      kill(child, SIGKILL);
    });
    const std::uint64_t got = read_all(~std::uint64_t{0}, random(), false);
    killer.join();
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_GE(got, direction_->told.load()) << "round " << round;
    pair_[0] = -1;
    begin_again();
  }
  EXPECT_GT(by_ring_, 0U);
}

TEST_F(GrantedRing, AWriterThatIsKilledOrStoppedBeforeAnyOfItsStepsLosesNothing) {
  constexpr std::uint64_t kTotal = 1200;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    int step = 0;
    for (bool came = true; came; ++step) {
      std::uint64_t got = 0;
      came = interrupted(
          signal, step,
          [this] {
            close(pair_[1]);
            write_some(kTotal);
          },
          [&, this] {
            close(pair_[0]);
            pair_[0] = -1;
            got = read_all(kTotal, static_cast<std::uint64_t>(step), false);
          });
      EXPECT_GE(got, direction_->told.load()) << "signal " << signal << ", step " << step;
      EXPECT_TRUE(got == kTotal || signal == SIGKILL) << "step " << step;
      begin_again();
    }
    EXPECT_GT(step, 50);
  }
  EXPECT_GT(by_ring_, 0U);
}

TEST_F(GrantedRing, AReaderThatIsKilledOrStoppedBeforeAnyOfItsStepsHoldsUpNobody) {
  constexpr std::uint64_t kTotal = 1200;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    int step = 0;
    for (bool came = true; came; ++step) {
      std::vector<std::uint8_t> rest(kTotal);
      std::uint64_t bytes = 0;
      came = interrupted(
          signal, step, [&, this] { read_all(kTotal, static_cast<std::uint64_t>(step), false); },
          [&, this] {
            write_some(kTotal);
            while (write(GrantCall::kSpill, nullptr, 0) != 0) {
            }
            if (signal == SIGSTOP) return;
            while (!child_ended_) usleep(50);
            // Another reader gets what is left, by calls that nobody sees.
            const ssize_t n = recv(pair_[1], rest.data(), rest.size(), MSG_DONTWAIT);
            bytes = n > 0 ? static_cast<std::uint64_t>(n) : 0;
          });
      EXPECT_EQ(direction_->told.load(), kTotal) << "signal " << signal << ", step " << step;
      const std::uint64_t first = kTotal - bytes;
      EXPECT_GE(first, direction_->read_to.load()) << "step " << step;
      for (std::uint64_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(rest[i], octet_at(first + i)) << "step " << step;
      }
      EXPECT_TRUE(signal == SIGKILL || direction_->read_to == kTotal) << "step " << step;
      begin_again();
    }
    EXPECT_GT(step, 5);
  }
}

TEST_F(GrantedRing, APositionThatWasNeverWrittenClosesTheWindowForGood) {
  direction_->shared.by_both[0] = 0;
  direction_->shared.by_writer[0] = kRingBytes + 1;
  std::uint8_t octet = 0;
  EXPECT_EQ(read(&octet, 1, {.waits = false}), kGrantWouldBlock);
  EXPECT_EQ(memory().load(GrantWord::kWindow), kWindowNever);
}

TEST_F(GrantedRing, PeekLeavesTheOctetsWhereTheyAre) {
  std::thread reader([&] {
    std::array<std::uint8_t, 8> octets{};
    EXPECT_EQ(read(octets.data(), 8, {.keeps = true, .peeks = true}), 3);
    EXPECT_EQ(read(octets.data(), 8, {.keeps = true}), 3);
    EXPECT_EQ(octets[2], 'c');
  });
  const std::array<std::uint8_t, 3> octets = {'a', 'b', 'c'};
  EXPECT_EQ(write(GrantCall::kSend, octets.data(), 3), 3);
  reader.join();
}

// As sendfile(2) does for each answer of a server: two system calls that it need not make.
TEST_F(GrantedRing, ASendThatFindsNothingInTheRingBlocksNoSignals) {
  GrantMemory m = memory();
  const std::uint8_t octet = 0;
  m.set_source(&octet);
  GrantWriter call(GrantCall::kSendInSignal, 1, false);
  int sends = 0;
  for (GrantNeed need = call.step(m); need != GrantNeed::kDone; need = call.step(m)) {
    EXPECT_NE(need, GrantNeed::kBlockSignals);
    if (need == GrantNeed::kStep) continue;
    sends += need == GrantNeed::kSend ? 1 : 0;
    call.answer(1);
  }
  EXPECT_EQ(sends, 1);
  EXPECT_EQ(call.result(), 1);
}

}  // namespace
}  // namespace weft::sockets
