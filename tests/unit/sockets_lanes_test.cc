// Lanes of the granted way, both ends in this process, at moments that programs meet by chance.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

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

  // By a call that is not seen.
  void reset_b() {
    const linger now{1, 0};
    ASSERT_EQ(setsockopt(b_, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    ASSERT_EQ(close(b_), 0);
    forget_closed(b_);
    b_ = -1;
  }

  int a_ = -1;
  int b_ = -1;
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
  reader.named_by = this_thread();  // as of a wait that has told of them
  // The writer's steps, as far as the mark.
  GrantMemory m = lane_of(a_)->memory_out();
  const std::uint64_t take = m.load(GrantWord::kTake);
  m.store(GrantWord::kTakenFrom, take >> 1U);
  m.store(GrantWord::kTakenTo, m.load(GrantWord::kPosition));
  m.store(GrantWord::kTakenAt, m.load(GrantWord::kSent));
  ASSERT_TRUE(m.swap(GrantWord::kTake, take, take | kTaken));
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
