// Lanes of the granted way, both ends in this process, at moments that programs meet by chance.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/clock.h"
#include "sockets/granted/granted.h"
#include "sockets/granted/watched.h"

namespace {
int g_masked = 0;
}  // namespace

// In place of the C library's, to count.
extern "C" int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) {
  ++g_masked;
  return sigprocmask(how, set, before) == 0 ? 0 : errno;
}

namespace weft::sockets::granted {
namespace {

class Lanes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("WEFT_SOCKETS_BUSY_CALLS", "1", 1);
    own_memory();
  }

  void SetUp() override {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&at), &length), 0);
    a_ = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(a_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    b_ = accept(listener, nullptr, nullptr);
    ASSERT_GE(b_, 0);
    close(listener);
    ASSERT_EQ(sched_getaffinity(0, sizeof all_cores_, &all_cores_), 0);
    numbers::note_fresh(a_);
    numbers::note_fresh(b_);
  }
  void TearDown() override {
    for (const int fd : {a_, b_}) {
      leave_to_close(fd);
      close(fd);
    }
  }

  static ssize_t put(int fd, const std::string& text) {
    const auto plain = [&] { return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL); };
    return serve(fd, &Lane::sending, plain, [&](Lane& lane) {
      const iovec part{const_cast<char*>(text.data()), text.size()};
      return transmit(lane, fd, &part, 1, MSG_NOSIGNAL, plain);
    });
  }
  // The kernel's part is `asked`.
  template <class Asked>
  static ssize_t get(int fd, int flags, std::string& text, Asked asked) {
    std::array<char, 64> room{};
    const auto plain = [&] { return asked(room.data(), room.size()); };
    const ssize_t got = serve(fd, &Lane::receiving, plain, [&](Lane& lane) {
      const iovec part{room.data(), room.size()};
      return receive(lane, fd, &part, 1, flags, plain);
    });
    text.assign(room.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return got;
  }
  static std::string get(int fd) {
    std::string text;
    get(fd, 0, text, [fd](char* to, std::size_t room) { return ::recv(fd, to, room, 0); });
    return text;
  }

  static Lane* lane_of(int fd) { return numbers::find(fd)->lane.load(); }
  // Octets to and fro, until both ends may use the ring.
  void join_both() {
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(put(a_, "ping"), 4);
      ASSERT_EQ(get(b_), "ping");
      ASSERT_EQ(put(b_, "pong"), 4);
      ASSERT_EQ(get(a_), "pong");
    }
    for (const int fd : {a_, b_}) {
      ASSERT_NE(lane_of(fd), nullptr);
      ASSERT_TRUE(lane_of(fd)->joined_in.load());
      ASSERT_TRUE(lane_of(fd)->joined_out.load());
    }
  }
  // `text` from a to b, by the ring.
  void put_in_ring(const std::string& text) {
    lane_of(b_)->memory_in().store(GrantWord::kWindow, kWindowOpen);
    ASSERT_EQ(put(a_, text), static_cast<ssize_t>(text.size()));
  }

  // The writer's steps, as far as the mark.
  void begin_to_take_back() {
    GrantMemory m = lane_of(a_)->memory_out();
    const std::uint64_t take = m.load(GrantWord::kTake);
    m.store(GrantWord::kTakenFrom, take >> 1U);
    m.store(GrantWord::kTakenTo, m.load(GrantWord::kPosition));
    m.store(GrantWord::kTakenAt, m.load(GrantWord::kSent));
    ASSERT_TRUE(m.swap(GrantWord::kTake, take, take | kTaken));
  }

  // By a call that is not seen.
  void reset_b() {
    const linger now{1, 0};
    ASSERT_EQ(setsockopt(b_, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    ASSERT_EQ(close(b_), 0);
    forget_closed(b_);
    b_ = -1;
  }

  // This thread runs on the n-th core that the process may use. False: there are not two.
  bool run_on_core(int n) const {
    if (CPU_COUNT(&all_cores_) < 2) return false;
    std::size_t core = 0;
    for (int i = n; i >= 0; i -= CPU_ISSET(core++, &all_cores_) ? 1 : 0) {
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core - 1, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
  }

  int a_ = -1;
  int b_ = -1;
  cpu_set_t all_cores_{};
};

TEST_F(Lanes, NumberThatIsCopiedWhileItsLaneIsMadeHasNone) {
  leave_to_kernel(a_, Why::kShared);
  join::begin(a_, *numbers::find(a_));
  EXPECT_EQ(lane_of(a_), nullptr);
}

TEST_F(Lanes, LaneOfANumberThatIsTheKernelsGoesWhenTheNumberCloses) {
  leave_to_kernel(a_, Why::kShared);
  ASSERT_NE(lanes::make(a_, *numbers::find(a_)), nullptr);
  leave_to_close(a_);
  EXPECT_EQ(lane_of(a_), nullptr);
}

TEST_F(Lanes, WindowThatIsNeverToOpenStaysSo) {
  join_both();
  std::string text;
  const ssize_t got = get(b_, 0, text, [this](char*, std::size_t) -> ssize_t {
    // As another thread's call of an unknown option does, while this one sleeps.
    lane_of(b_)->memory_in().store(GrantWord::kWindow, kWindowNever);
    errno = EAGAIN;
    return -1;
  });
  EXPECT_EQ(got, -1);
  EXPECT_EQ(lane_of(b_)->memory_in().load(GrantWord::kWindow), kWindowNever);
}

TEST_F(Lanes, ResetBehindOctetsOfTheRingIsTold) {
  join_both();
  std::string text;
  ssize_t got = get(b_, MSG_DONTWAIT, text, [this](char*, std::size_t) -> ssize_t {
    put_in_ring("late");
    errno = ECONNRESET;
    return -1;
  });
  ASSERT_EQ(got, 4);
  EXPECT_EQ(text, "late");
  const auto end = [](char*, std::size_t) -> ssize_t { return 0; };
  got = get(b_, MSG_DONTWAIT, text, end);
  EXPECT_EQ(got, -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(get(b_, MSG_DONTWAIT, text, end), 0);
}

TEST_F(Lanes, ResetThatATakeBackHearsOfIsTold) {
  join_both();
  put_in_ring("unread");
  reset_b();
  spill(*lane_of(a_), os::monotonic_ns());
  std::string text;
  const auto asked = [this](char* to, std::size_t room) { return ::recv(a_, to, room, 0); };
  EXPECT_EQ(get(a_, 0, text, asked), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(get(a_, 0, text, asked), 0);
}

TEST_F(Lanes, ResetThatTheTakeBackOfASendHearsOfIsTold) {
  join_both();
  put_in_ring("unread");
  reset_b();
  EXPECT_EQ(put(a_, "more"), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(put(a_, "more"), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(Lanes, ReadOfWhatAWaitToldOfGetsItFromTheMiddleOfATakeBack) {
  join_both();
  put_in_ring("told");
  Lane& reader = *lane_of(b_);
  reader.nonblocking = true;
  reader.named_by = this_thread() + 1;  // a wait of another thread has told of them
  begin_to_take_back();
  std::string text;
  bool sent = false;
  const ssize_t got = get(b_, MSG_DONTWAIT, text, [&](char* to, std::size_t room) {
    const ssize_t n = ::recv(b_, to, room, MSG_DONTWAIT);
    const int error = errno;
    // They are sent just behind the first look.
    if (!std::exchange(sent, true)) {
      EXPECT_EQ(::send(a_, "told", 4, 0), 4);
    }
    errno = error;
    return n;
  });
  EXPECT_EQ(got, 4) << std::strerror(errno);
  EXPECT_EQ(text, "told");
}

TEST_F(Lanes, OctetsInTheMiddleOfATakeBackAreCounted) {
  join_both();
  put_in_ring("told");
  begin_to_take_back();
  std::thread writer([this] { EXPECT_EQ(::send(a_, "told", 4, 0), 4); });
  std::uint64_t bytes = 0;
  // It waits some milliseconds for a writer that does not run.
  for (int i = 0; i < 1000 && bytes == 0; ++i) bytes = await_taken_back(*lane_of(b_), b_);
  writer.join();
  EXPECT_EQ(bytes, 4U);
}

TEST_F(Lanes, LockOfAThreadThatHasEndedIsTakenOverThoughAProcessHasItsNumber) {
  join_both();
  lane_of(a_)->own->writer = static_cast<std::uint32_t>(getppid());
  EXPECT_EQ(put(a_, "ping"), 4);
  EXPECT_EQ(get(b_), "ping");
}

TEST_F(Lanes, SendBesideOneThatLeavesTheNumberToTheKernelLeavesNothingInTheRing) {
  join_both();
  put_in_ring("x");
  ASSERT_EQ(get(b_), "x");
  lane_of(b_)->memory_in().store(GrantWord::kWindow, kWindowOpen);
  lane_of(a_)->joined_out = false;  // as another thread does, which has found the ring empty
  ASSERT_EQ(put(a_, "more"), 4);
  EXPECT_EQ(unread(*lane_of(b_)), 0U);
  int bytes = 0;
  ASSERT_EQ(ioctl(b_, FIONREAD, &bytes), 0);
  EXPECT_EQ(bytes, 4);
}

TEST_F(Lanes, SegmentOfANumberThatWasLeftMeanwhileIsNotUsed) {
  ASSERT_EQ(put(a_, "x"), 1);
  Lane* lane = lane_of(a_);
  ASSERT_NE(lane, nullptr);
  const Use use(*lane, &Lane::visiting);
  leave_to_kernel(a_, Why::kShared);
  rendezvous::Made made;
  lane->segment = segments::make(lane->key, made);
  ASSERT_NE(lane->segment.load(), nullptr);
  join::go_on(*lane, a_, *numbers::find(a_), &Lane::visiting);
  EXPECT_FALSE(lane->joined_in.load());
  EXPECT_FALSE(lane->joined_out.load());
  EXPECT_EQ(lane->memory_in().load(GrantWord::kWindow), kWindowNever);
}

TEST_F(Lanes, WhatIsOwedWhenANumberIsLeftIsSentThoughSignalsCome) {
  join_both();
  put_in_ring("owed");
  const std::string filler(65536, 'f');
  std::size_t filled = 0;
  for (ssize_t n = 0; (n = ::send(a_, filler.data(), filler.size(), MSG_DONTWAIT)) > 0;) {
    filled += static_cast<std::size_t>(n);
  }
  struct sigaction act {};
  act.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &act, nullptr), 0);
  const pthread_t leaver = pthread_self();
  std::thread reader([this, leaver, filled, text = std::string(65536, ' ')]() mutable {
    for (int i = 0; i < 20; ++i) {
      pthread_kill(leaver, SIGUSR1);
      usleep(2000);
    }
    std::size_t got = 0;
    for (ssize_t n = 0; got < filled + 4 && (n = ::recv(b_, text.data(), text.size(), 0)) > 0;) {
      got += static_cast<std::size_t>(n);
    }
    EXPECT_EQ(got, filled + 4);
  });
  leave_to_kernel(a_, Why::kShared);
  shutdown(a_, SHUT_WR);
  reader.join();
}

TEST_F(Lanes, CallsFitASmallStack) {
  join_both();
  put_in_ring("ring");
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 20 * 1024), 0);
  pthread_t thread;
  const auto run = [](void* number) -> void* {
    const int fd = *static_cast<int*>(number);
    std::array<char, 8> room{};
    std::array<iovec, 2> parts{{{room.data(), 2}, {room.data() + 2, 6}}};
    const auto none = [] { return ssize_t{-1}; };
    Lane& lane = *lane_of(fd);
    static_cast<void>(receive(lane, fd, parts.data(), 2, MSG_WAITALL, none));
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &b_), 0);
  ASSERT_EQ(::send(a_, "kern", 4, 0), 4);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

// A stream in both ways and by calls that nobody sees. A gigabyte by WEFT_WINDOWS_MB=1024.
class Stream : public Lanes {
 protected:
  static char octet_at(std::uint64_t at) { return static_cast<char>((at * 2654435761U) >> 13U); }

  void write_all() {
    std::mt19937_64 random(1);
    std::string text;
    for (std::uint64_t at = 0; at < total_;) {
      const std::uint64_t most = random() % 16 == 0 ? 60'000 : 1'000;
      text.resize(std::min(1 + random() % most, total_ - at));
      for (std::size_t i = 0; i < text.size(); ++i) text[i] = octet_at(at + i);
      if (put(a_, text) != static_cast<ssize_t>(text.size())) return;
      at += text.size();
      // A ring is granted only while TCP is empty.
      if (random() % 8 != 0) continue;
      while (read_to_ < at && !over_) std::this_thread::yield();
    }
  }

  ssize_t read_some(std::uint64_t most, bool unseen) {
    const auto plain = [&] { return ::recv(b_, room_.data(), most, 0); };
    if (unseen) return plain();
    const GrantMemory m = lane_of(b_)->memory_in();
    const std::uint64_t before = m.load(GrantWord::kTcpRead);
    const ssize_t got = serve(b_, &Lane::receiving, plain, [&](Lane& lane) {
      const iovec part{room_.data(), most};
      return receive(lane, b_, &part, 1, 0, plain);
    });
    const bool ring = m.load(GrantWord::kTcpRead) == before;
    windows_ += ring && !by_ring_ ? 1 : 0;
    by_ring_ = ring;
    return got;
  }

  // False: what came is not what was sent.
  bool read_all() {
    std::mt19937_64 random(2);
    while (read_to_ < total_) {
      const bool unseen = random() % 64 == 0;
      unseen_ += unseen ? 1 : 0;
      const ssize_t got = read_some(1 + random() % room_.size(), unseen);
      if (got <= 0) return false;
      for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(got); ++i) {
        if (room_[i] != octet_at(read_to_ + i)) return false;
      }
      read_to_ += static_cast<std::uint64_t>(got);
    }
    return true;
  }

  std::uint64_t total_ = 8U << 20U;
  std::atomic<std::uint64_t> read_to_{0};
  std::atomic<bool> over_{false};
  std::vector<char> room_ = std::vector<char>(65536);
  std::uint64_t windows_ = 0;
  std::uint64_t unseen_ = 0;
  bool by_ring_ = false;
};

TEST_F(Stream, EachOctetComesOnceThroughManyWindowsAndReadsThatNobodySees) {
  join_both();
  if (const char* mb = std::getenv("WEFT_WINDOWS_MB"); mb != nullptr) {
    total_ = std::strtoull(mb, nullptr, 10) << 20U;
  }
  const bool apart = run_on_core(0);
  std::thread writer([this] {
    run_on_core(1);
    write_all();
  });
  EXPECT_TRUE(read_all()) << "behind octet " << read_to_;
  over_ = true;
  shutdown(b_, SHUT_RDWR);  // so that the writer ends, too, if that was wrong
  writer.join();
  sched_setaffinity(0, sizeof all_cores_, &all_cores_);
  std::printf("%llu windows, %llu reads that nobody saw\n",
              static_cast<unsigned long long>(windows_), static_cast<unsigned long long>(unseen_));
  EXPECT_TRUE(!apart || windows_ > 0);
}

TEST_F(Lanes, ReadsThatNobodySeesEndNoRing) {
  join_both();
  ASSERT_EQ(::send(a_, "", 0, 0), 0);
  lane_of(b_)->memory_in().store(GrantWord::kWindow, kWindowClosed);
  ASSERT_EQ(put(a_, "unseen"), 6);
  std::array<char, 8> room{};
  ASSERT_EQ(::recv(b_, room.data(), room.size(), 0), 6);
  lane_of(b_)->vain.reads = 64;                              // its writer has used no ring for long
  lane_of(b_)->segment.load()->cores[lane_of(a_)->end] = 0;  // it runs elsewhere, perhaps
  ASSERT_EQ(::send(a_, "next", 4, 0), 4);
  lane_of(a_)->memory_out().add(GrantWord::kSent, 4);
  ASSERT_EQ(get(b_), "next");
  const GrantMemory m = lane_of(a_)->memory_out();
  EXPECT_EQ(m.load(GrantWord::kTcpRead), m.load(GrantWord::kSent));
}

TEST_F(Lanes, ReaderOnItsWritersCoreDoesNotLookBeforeItSleeps) {
  join_both();
  Lane& lane = *lane_of(b_);
  lane.streak = 0;
  lane.memory_in().store(GrantWord::kWindow, kWindowClosed);
  const auto& cores = lane.segment.load()->cores;
  run_on_core(0);
  ASSERT_EQ(put(a_, "ping"), 4);
  std::string text;
  std::uint64_t window = kWindowNever;
  int asked = 0;
  const ssize_t got = get(b_, 0, text, [&](char* to, std::size_t room) {
    ++asked;
    window = lane.memory_in().load(GrantWord::kWindow);
    return ::recv(b_, to, room, 0);
  });
  sched_setaffinity(0, sizeof all_cores_, &all_cores_);
  EXPECT_EQ(cores.at(0).load(), cores.at(1).load());
  EXPECT_EQ(got, 4);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(window, kWindowClosed);
}

TEST_F(Lanes, PeerThatNeverComesCostsNoSignalMask) {
  ASSERT_EQ(put(a_, "x"), 1);
  ASSERT_NE(lane_of(a_), nullptr);
  ASSERT_FALSE(lane_of(a_)->settled.load());
  const int before = g_masked;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(put(a_, "x"), 1);
  EXPECT_EQ(g_masked, before);
}

TEST_F(Lanes, WaitForMoreThanItLooksAtClosesTheirWindows) {
  join_both();
  Lane& lane = *lane_of(b_);
  lane.memory_in().store(GrantWord::kWindow, kWindowOpen);
  lane.streak = kStreak;
  Watched watched;
  for (std::size_t i = 0; i < Watched::kMost; ++i) watched.add(lane, i);
  EXPECT_TRUE(keeps(lane));
  EXPECT_EQ(lane.memory_in().load(GrantWord::kWindow), kWindowOpen);
  watched.add(lane, Watched::kMost);
  EXPECT_FALSE(keeps(lane));
  EXPECT_EQ(lane.memory_in().load(GrantWord::kWindow), kWindowClosed);
}

}  // namespace
}  // namespace weft::sockets::granted
