// A link that is worse than TCP: when its octets leave, and what becomes of them.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "io/link_schedule.h"
#include "io/link_transport.h"
#include "io/path_transport.h"
#include "io/tcp_transport.h"

namespace weft::io {
namespace {

using namespace std::chrono_literals;
using What = LinkRule::What;

LinkRule rule(What what, std::uint64_t at, bool repeats = false, Duration length = 0ns) {
  LinkRule out;
  out.what = what;
  out.at = at;
  out.repeats = repeats;
  out.length = length;
  return out;
}

// How many octets leave together, one piece after another, and when.
struct Leaving {
  std::size_t size;
  std::int64_t due_ns;
  bool operator==(const Leaving&) const = default;
};
std::vector<Leaving> leave(LinkSchedule& link, std::size_t octets, Instant now) {
  std::vector<Leaving> out;
  while (octets != 0) {
    const auto piece = link.next(octets, now);
    out.push_back({piece.size, piece.due.ns});
    octets -= piece.size;
    if (piece.cut) break;
  }
  return out;
}

TEST(LinkSchedule, AGoodLinkSendsAtOnce) {
  LinkSchedule link({}, Instant{5});
  EXPECT_EQ(leave(link, 100, Instant{7}), (std::vector<Leaving>{{100, 7}}));
}

TEST(LinkSchedule, DelayAndRateAddUp) {
  LinkTrouble trouble;
  trouble.delay = 1ms;
  trouble.bits_per_second = 8'000'000;  // an octet each us
  LinkSchedule link(trouble, Instant{0});
  EXPECT_EQ(leave(link, 1000, Instant{0}), (std::vector<Leaving>{{1000, 2'000'000}}));
  // The line is busy until 1 ms.
  EXPECT_EQ(leave(link, 500, Instant{100'000}), (std::vector<Leaving>{{500, 2'500'000}}));
  EXPECT_EQ(leave(link, 100, Instant{9'000'000}), (std::vector<Leaving>{{100, 10'100'000}}));
}

TEST(LinkSchedule, JitterIsBoundedKeepsTheOrderAndComesFromTheSeed) {
  LinkTrouble trouble;
  trouble.delay = 10us;
  trouble.jitter = 90us;
  trouble.seed = 4;
  LinkSchedule one(trouble, Instant{0}), again(trouble, Instant{0});
  trouble.seed = 5;
  LinkSchedule other(trouble, Instant{0});
  std::int64_t last = 0;
  bool differs = false;
  for (int i = 0; i < 500; ++i) {
    const Instant now{i * 1000};
    const auto due = leave(one, 10, now)[0].due_ns;
    EXPECT_GE(due, last);
    EXPECT_GE(due, now.ns + 10'000);
    EXPECT_LE(due, now.ns + 100'000);
    EXPECT_EQ(leave(again, 10, now)[0].due_ns, due);
    differs |= leave(other, 10, now)[0].due_ns != due;
    last = due;
  }
  EXPECT_TRUE(differs);
}

TEST(LinkSchedule, StallsStandBehindTheirOctets) {
  LinkTrouble trouble;
  trouble.rules = {rule(What::kStall, 100, true, 1ms)};
  LinkSchedule link(trouble, Instant{0});
  EXPECT_EQ(leave(link, 250, Instant{0}),
            (std::vector<Leaving>{{100, 0}, {100, 1'000'000}, {50, 2'000'000}}));
  const auto struck = link.take_struck();
  ASSERT_EQ(struck.size(), 2U);
  EXPECT_EQ(struck[0].octet, 100U);
  EXPECT_EQ(struck[1].octet, 200U);
  EXPECT_FALSE(link.has_struck());
}

TEST(LinkSchedule, StallsByTimeHoldWhatFallsIntoThem) {
  LinkTrouble trouble;
  LinkRule one = rule(What::kStall, 0, true, 10ms);
  one.period = 100ms;
  trouble.rules = {one};
  LinkSchedule link(trouble, Instant{0});
  const auto due = [&](std::int64_t ms) {
    return leave(link, 1, Instant{ms * 1'000'000})[0].due_ns / 1'000'000;
  };
  EXPECT_EQ(due(5), 5);  // none at the beginning
  EXPECT_EQ(due(99), 99);
  EXPECT_EQ(due(100), 110);
  EXPECT_EQ(due(104), 110);
  EXPECT_EQ(due(110), 110);
  EXPECT_EQ(due(305), 310);
  EXPECT_EQ(link.take_struck().size(), 1U);
}

TEST(LinkSchedule, ACutComesBehindItsOctetAndAFlipIsOfItsOctet) {
  LinkTrouble trouble;
  trouble.rules = {rule(What::kCut, 300), rule(What::kFlip, 120, true)};
  LinkSchedule link(trouble, Instant{0});
  std::vector<std::size_t> flips;
  std::size_t at = 0;
  for (bool cut = false; !cut;) {
    const auto piece = link.next(1000, Instant{0});
    if (piece.flipped) flips.push_back(at);
    at += piece.size;
    cut = piece.cut;
  }
  EXPECT_EQ(at, 300U);
  EXPECT_EQ(flips, (std::vector<std::size_t>{120, 240}));
}

// Two ends of a connection; a socket pair stands for TCP.
struct Ends {
  std::unique_ptr<Transport> near, far;

  explicit Ends(LinkTrouble trouble, bool crc = true) {
    std::array<int, 2> ends;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) abort();
    near = std::make_unique<TcpTransport>(os::Fd(ends[0]));
    far = std::make_unique<TcpTransport>(os::Fd(ends[1]));
    put_on_bad_link(near, std::move(trouble), {crc, false});
  }
  ~Ends() {
    near->close(false);
    far->close(false);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
};

std::vector<std::uint8_t> numbers(std::size_t count) {
  std::vector<std::uint8_t> out(count);
  std::iota(out.begin(), out.end(), std::uint8_t{0});
  return out;
}

// Sends all, waiting for room as a lane does.
void send_all(Transport& to, std::vector<std::uint8_t> octets) {
  for (std::size_t at = 0; at < octets.size();) {
    const Slice slice{octets.data() + at, octets.size() - at};
    const std::ptrdiff_t sent = to.send({&slice, 1});
    if (sent == -EAGAIN) {
      pollfd room{to.bell(), POLLIN, 0};
      ASSERT_EQ(poll(&room, 1, 10'000), 1);
      std::uint64_t count = 0;
      ASSERT_EQ(read(to.bell(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
      continue;
    }
    ASSERT_GT(sent, 0);
    at += static_cast<std::size_t>(sent);
  }
}

// All that comes until the end, or until there are so many.
std::vector<std::uint8_t> receive_all(Transport& from, std::size_t most) {
  std::vector<std::uint8_t> out(most);
  std::size_t got = 0;
  while (got < most) {
    const Slice slice{out.data() + got, most - got};
    const std::ptrdiff_t n = from.receive({&slice, 1});
    if (n == -EAGAIN) {
      pollfd there{from.fd(), POLLIN, 0};
      if (poll(&there, 1, 10'000) != 1) break;
      continue;
    }
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  out.resize(got);
  return out;
}

TEST(LinkTransport, AllArrivesInOrderAndTheBellTellsOfRoom) {
  LinkTrouble trouble;
  trouble.delay = 200us;
  trouble.jitter = 500us;
  trouble.rules = {rule(What::kStall, 100'000, true, 300us)};
  Ends ends(trouble);
  const auto octets = numbers(3'000'000);
  std::thread sender([&] { send_all(*ends.near, octets); });
  EXPECT_EQ(receive_all(*ends.far, octets.size()), octets);
  sender.join();
  EXPECT_EQ(ends.near->unacknowledged(), 0U);
}

TEST(LinkTransport, ACloseComesBehindWhatWasTaken) {
  LinkTrouble trouble;
  trouble.delay = 5ms;
  Ends ends(trouble);
  send_all(*ends.near, numbers(1000));
  EXPECT_GT(ends.near->unacknowledged(), 0U);
  ends.near->close(false);
  EXPECT_EQ(receive_all(*ends.far, 2000), numbers(1000));
}

// A delay that no clock can hold, and one that is none.
TEST(LinkSchedule, DelaysAreWithinLimits) {
  LinkTrouble trouble;
  trouble.delay = trouble.jitter = Duration::max();
  LinkSchedule longest(trouble, Instant{0});
  for (int i = 0; i < 3; ++i) {
    const auto due = Instant{leave(longest, 10, Instant{0})[0].due_ns};
    EXPECT_GE(due, Instant{0} + 24h);
    EXPECT_LE(due, Instant{0} + 48h);
  }
  trouble.delay = trouble.jitter = -5ms;
  LinkSchedule none(trouble, Instant{5});
  EXPECT_EQ(leave(none, 100, Instant{7}), (std::vector<Leaving>{{100, 7}}));
}

// A reset, too: the octets are only late.
TEST(LinkTransport, AResetComesBehindWhatWasTaken) {
  LinkTrouble trouble;
  trouble.delay = 5ms;
  Ends ends(trouble);
  send_all(*ends.near, numbers(1000));
  ends.near->close(true);
  EXPECT_EQ(receive_all(*ends.far, 2000), numbers(1000));
}

// Has room for all there is.
class Sponge final : public Transport {
 public:
  [[nodiscard]] std::ptrdiff_t send(std::span<const Slice> slices) override {
    std::size_t out = 0;
    for (const Slice& slice : slices) out += slice.size;
    return static_cast<std::ptrdiff_t>(out);
  }
  [[nodiscard]] std::ptrdiff_t receive(std::span<const Slice> /*slices*/) override {
    return -EAGAIN;
  }
  [[nodiscard]] int fd() const noexcept override { return -1; }
  [[nodiscard]] std::uint32_t events(bool /*blocked*/) const noexcept override { return 0; }
  void shutdown_send() noexcept override {}
  void close(bool /*reset*/) noexcept override {}
  [[nodiscard]] PeerLiveness liveness() const override { return {}; }
  [[nodiscard]] std::uint64_t unacknowledged() const override { return 0; }
  [[nodiscard]] const char* path() const noexcept override { return "tcp"; }
};

TEST(LinkTransport, TheBellRingsThoughAllHasLeftAtOnce) {
  std::unique_ptr<Transport> transport = std::make_unique<Sponge>();
  LinkTrouble trouble;
  trouble.rules = {rule(What::kStall, 1'000'000'000, false, 1ms)};
  put_on_bad_link(transport, trouble, {true, false});
  auto octets = numbers(1'000'000);
  const Slice slice{octets.data(), octets.size()};
  const std::ptrdiff_t sent = transport->send({&slice, 1});
  ASSERT_GT(sent, 0);
  ASSERT_LT(sent, 1'000'000);
  pollfd room{transport->bell(), POLLIN, 0};
  EXPECT_EQ(poll(&room, 1, 10'000), 1);
  transport->close(false);
}

// Octets of a child that ends leave as the link lets them. The child has a thread for that, though
// its parent's has been made before.
TEST(LinkTransport, TheEndOfTheProcessWaitsForWhatWasTaken) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no threads in a child";
#endif
  LinkTrouble trouble;
  trouble.delay = 1ms;
  Ends before(trouble);
  send_all(*before.near, numbers(10));
  ASSERT_EQ(receive_all(*before.far, 10).size(), 10U);
  std::array<int, 2> ends;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  constexpr std::size_t kOctets = 200'000;
  const pid_t child = fork();
  if (child == 0) {
    LinkTrouble slow;
    slow.bits_per_second = 1'000'000;
    std::unique_ptr<Transport> near = std::make_unique<TcpTransport>(os::Fd(ends[0]));
    put_on_bad_link(near, slow, {true, false});
    auto octets = numbers(kOctets);
    const Slice slice{octets.data(), octets.size()};
    std::exit(near->send({&slice, 1}) == static_cast<std::ptrdiff_t>(kOctets) ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  ::close(ends[0]);
  TcpTransport far{os::Fd(ends[1])};
  EXPECT_EQ(receive_all(far, 2 * kOctets), numbers(kOctets));
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  far.close(false);
}

TEST(LinkTransport, BehindACutNothingComesAndBothSidesSeeIt) {
  LinkTrouble trouble;
  trouble.rules = {rule(What::kCut, 700)};
  Ends ends(trouble);
  auto octets = numbers(1000);
  const Slice slice{octets.data(), octets.size()};
  EXPECT_EQ(ends.near->send({&slice, 1}), 700);
  octets.resize(700);
  EXPECT_EQ(receive_all(*ends.far, 1000), octets);
  pollfd end{ends.near->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, 10'000), 1);
  EXPECT_EQ(ends.near->send({&slice, 1}), -ECONNRESET);
  EXPECT_EQ(ends.near->receive({&slice, 1}), -ECONNRESET);
}

TEST(LinkTransport, AFlipChangesOneBitIfThereIsACrc) {
  for (const bool crc : {true, false}) {
    LinkTrouble trouble;
    std::mutex mutex;
    std::condition_variable told;
    std::vector<bool> possible;
    trouble.rules = {rule(What::kFlip, 10)};
    trouble.on_rule = [&](const LinkRule&, std::uint64_t octet, bool can) {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(octet, 10U);
      possible.push_back(can);
      told.notify_one();
    };
    Ends ends(trouble, crc);
    auto octets = numbers(20);
    send_all(*ends.near, octets);
    if (crc) octets[10] ^= 1U;
    EXPECT_EQ(receive_all(*ends.far, 20), octets);
    std::unique_lock lock(mutex);
    EXPECT_TRUE(told.wait_for(lock, 10s, [&] { return !possible.empty(); }));
    EXPECT_EQ(possible, std::vector<bool>{crc});
  }
}

TEST(LinkTransport, ATransportThatMayLeaveTcpStaysAsItIs) {
  std::array<int, 2> ends;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  const os::Fd other(ends[1]);
  std::unique_ptr<Transport> transport = std::make_unique<PathTransport>(os::Fd(ends[0]));
  const Transport* const before = transport.get();
  LinkTrouble trouble;
  trouble.delay = 1ms;
  put_on_bad_link(transport, trouble, {true, false});
  EXPECT_EQ(transport.get(), before);
  put_on_bad_link(transport, trouble, {true, true});
  EXPECT_NE(transport.get(), before);
  EXPECT_EQ(transport->movable(), before);
  transport->close(false);
}

}  // namespace
}  // namespace weft::io
