// A ring whose octets nobody reads: TCP has no room for them, or its process calls exec.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <thread>

#include "os/clock.h"
#include "sockets_lanes_testing.h"

namespace weft::sockets::granted {
namespace {

// TCP is full of octets that were sent by calls that are not seen.
class FullTcp : public Lanes {
 protected:
  // With "ring" in the ring, for which the spiller's next ticks find no room.
  void fill() {
    const GrantMemory m = lane_of(a_)->rings.out();
    while (!put_and_fill(m)) {
      // On a busy machine the spiller was quicker.
      ASSERT_EQ(get(b_), "ring");
      os::nap(20'000'000);
    }
    while (m.load(GrantWord::kOwedFrom) == m.load(GrantWord::kOwedTo)) os::nap(1'000'000);
  }
  // `count` octets by calls that are not seen. What they were, behind those that filled TCP.
  std::string drain(std::size_t count) {
    std::string out;
    std::array<char, 65536> room{};
    for (std::size_t got = 0; got < filled_ + count;) {
      pollfd one{b_, POLLIN, 0};
      if (::poll(&one, 1, 30'000) != 1) break;
      const ssize_t n = ::recv(b_, room.data(), room.size(), 0);
      if (n <= 0) break;
      for (ssize_t i = 0; i < n; ++i, ++got)
        if (got >= filled_) out += room.at(static_cast<std::size_t>(i));
    }
    return out;
  }

 private:
  bool put_and_fill(const GrantMemory& m) {
    put_in_ring("ring");
    const WritersGuard guard(lane_of(a_)->rings.lock(), this_thread());  // the spiller goes by
    if (m.load(GrantWord::kRing) == 0) return false;
    const std::string some(65536, 'x');
    for (ssize_t n = 1; n > 0; filled_ += static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
      n = ::send(a_, some.data(), some.size(), MSG_DONTWAIT);
    EXPECT_EQ(errno, EAGAIN);
    return true;
  }

  std::size_t filled_ = 0;
};

TEST_F(FullTcp, GetsWhatItHadNoRoomForOnceItHas) {
  join_both();
  fill();
  EXPECT_EQ(drain(4), "ring");
}

TEST_F(FullTcp, SendThatWaitsDoesSoBehindThat) {
  join_both();
  fill();
  std::thread reader([this] {
    os::nap(100'000'000);
    EXPECT_EQ(drain(8), "ringmore");
  });
  EXPECT_EQ(put(a_, "more"), 4);
  reader.join();
}

// An exec that fails leaves the socket to the program, which may read them and end in order.
TEST_F(Lanes, ExecThatFailsMakesNoResetOfALaterClose) {
  join_both();
  put_in_ring("unread");
  const auto number = static_cast<unsigned>(b_);
  leave_range(number, number, [](int) { return How::kMayClose; });
  linger is{};
  socklen_t length = sizeof is;
  ASSERT_EQ(getsockopt(b_, SOL_SOCKET, SO_LINGER, &is, &length), 0);
  EXPECT_EQ(is.l_onoff, 0);
  EXPECT_EQ(get(b_), "unread");
}

}  // namespace
}  // namespace weft::sockets::granted
