// A bad link for datagrams: when they leave, and which of them do not.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "io/datagram_link.h"
#include "os/clock.h"
#include "os/fd.h"
#include "os/lock.h"

namespace weft::io {
namespace {

using namespace std::chrono_literals;

// A socket, and one to which it sends.
class UdpEnds {
 public:
  UdpEnds() : from_(::socket(AF_INET, SOCK_DGRAM, 0)), to_(::socket(AF_INET, SOCK_DGRAM, 0)) {
    at_.sin_family = AF_INET;
    at_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(to_.get(), reinterpret_cast<sockaddr*>(&at_), sizeof at_), 0);
    socklen_t length = sizeof at_;
    EXPECT_EQ(::getsockname(to_.get(), reinterpret_cast<sockaddr*>(&at_), &length), 0);
  }

  [[nodiscard]] int from() const { return from_.get(); }
  void close() { from_.reset(); }

  void send(DatagramLink& link, std::uint8_t number, std::size_t size = 100) {
    std::vector<std::uint8_t> octets(size, number);
    iovec piece{octets.data(), octets.size()};
    msghdr message{};
    message.msg_name = &at_;
    message.msg_namelen = sizeof at_;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    link.send(message);
  }

  // The first octet of the next one; -1: none comes.
  int receive(int limit_ms = 30'000) {
    pollfd one{to_.get(), POLLIN, 0};
    if (::poll(&one, 1, limit_ms) != 1) return -1;
    std::array<std::uint8_t, 2000> octets;
    return ::recv(to_.get(), octets.data(), octets.size(), 0) > 0 ? octets[0] : -1;
  }

 private:
  os::Fd from_, to_;
  sockaddr_in at_{};
};

TEST(DatagramLink, IsNoneWhereTheLinkIsGood) {
  UdpEnds ends;
  EXPECT_EQ(make_datagram_link({}, ends.from()), nullptr);
  LinkTrouble trouble;
  trouble.rules.push_back({LinkRule::What::kCut, 100});
  trouble.rules.push_back({LinkRule::What::kFlip, 100});
  EXPECT_EQ(make_datagram_link(trouble, ends.from()), nullptr);
}

TEST(DatagramLink, SendsLaterAndInOrderAndBeyondTheEndOfItsSocket) {
  UdpEnds ends;
  LinkTrouble trouble;
  trouble.delay = 20ms;
  trouble.jitter = 5ms;
  auto link = make_datagram_link(trouble, ends.from());
  ASSERT_NE(link, nullptr);
  const Instant begin = os::now();
  for (std::uint8_t i = 0; i < 10; ++i) ends.send(*link, i);
  link.reset();
  ends.close();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ends.receive(), i);
  EXPECT_GE(os::now() - begin, 20ms);
}

TEST(DatagramLink, LosesTheSameOnesForASeed) {
  const auto lost = [](std::uint64_t seed) {
    UdpEnds ends;
    LinkTrouble trouble;
    trouble.loss_percent = 10;
    trouble.seed = seed;
    const auto link = make_datagram_link(trouble, ends.from());
    std::vector<bool> out(200, true);
    for (std::uint8_t i = 0; i < out.size(); ++i) ends.send(*link, i);
    constexpr std::uint8_t kLast = 255;
    for (int got = -1; got != kLast;) {
      ends.send(*link, kLast);
      got = ends.receive(100);
      for (; got >= 0 && got != kLast; got = ends.receive(100))
        out[static_cast<std::size_t>(got)] = false;
    }
    return out;
  };
  const auto first = lost(1);
  const auto count = std::ranges::count(first, true);
  EXPECT_GT(count, 5);
  EXPECT_LT(count, 50);
  EXPECT_EQ(lost(1), first);
  EXPECT_NE(lost(2), first);
}

TEST(DatagramLink, LosesWhatFindsAFullQueue) {
  LinkTrouble trouble;
  trouble.delay = 500ms;
  trouble.bits_per_second = 4'000'000;  // so that 500 datagrams have room
  for (int attempt = 0; attempt < 20; ++attempt) {
    UdpEnds ends;
    const auto link = make_datagram_link(trouble, ends.from());
    const Instant begin = os::now();
    for (int i = 0; i < 500; ++i) ends.send(*link, 1, 1000);
    for (int i = 0; i < 500; ++i) ends.send(*link, 2, 1000);
    if (os::now() - begin >= 450ms) continue;  // a busy machine: the first ones have left
    std::array<int, 3> received{};
    for (int got = ends.receive(); got >= 0; got = ends.receive(1000))
      ++received.at(static_cast<std::size_t>(got));
    EXPECT_EQ(received[1], 500);
    EXPECT_EQ(received[2], 0);
    return;
  }
  FAIL() << "a thousand datagrams were not handed over in 450 ms";
}

TEST(DatagramLink, NamesTheOctetOfAStall) {
  UdpEnds ends;
  LinkTrouble trouble;
  trouble.rules.push_back({LinkRule::What::kStall, 250, true, 0ns, 1ms, 7});
  os::Mutex mutex;
  std::vector<std::uint64_t> octets;
  trouble.on_rule = [&](const LinkRule& rule, std::uint64_t octet, bool possible) {
    EXPECT_TRUE(possible && rule.name == 7);
    const os::MutexLock lock(mutex);
    octets.push_back(octet);
  };
  const auto link = make_datagram_link(trouble, ends.from());
  for (std::uint8_t i = 0; i < 6; ++i) ends.send(*link, i);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(ends.receive(), i);
  const auto told = [&] {
    const os::MutexLock lock(mutex);
    return octets;
  };
  for (int i = 0; i < 30'000 && told().size() < 2; ++i) ::poll(nullptr, 0, 1);
  EXPECT_EQ(told(), (std::vector<std::uint64_t>{250, 500}));
}

}  // namespace
}  // namespace weft::io
