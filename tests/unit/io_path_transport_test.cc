#include "io/path_transport.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <thread>

#include "shm_ring_testing.h"

namespace weft::io {
namespace {

using Way = PathTransport::Way;
using Bytes = std::vector<std::uint8_t>;

// Two ends of a connection that have a ring. A socket pair stands for TCP: what matters here is its
// end and its readiness.
struct Path {
  PathTransport a, b;

  static std::unique_ptr<Path> make() {
    std::array<int, 2> ends;
    shm::RingPair pair = shm::RingPair::make();
    if (!pair.whole() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) {
      return nullptr;
    }
    std::unique_ptr<Path> path(
        new Path{PathTransport(os::Fd(ends[0])), PathTransport(os::Fd(ends[1]))});
    path->a.add_ring(std::move(*pair.initiator));
    path->b.add_ring(std::move(*pair.responder));
    for (PathTransport* t : {&path->a, &path->b}) {
      t->send_by(Way::kRing);
      t->receive_by(Way::kRing);
    }
    return path;
  }
};

std::ptrdiff_t send(PathTransport& t, std::span<const std::uint8_t> bytes) {
  const Slice slice{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  return t.send({&slice, 1});
}
std::ptrdiff_t receive(PathTransport& t, Bytes& out, std::size_t most = 1000) {
  out.resize(most);
  const Slice slice{out.data(), out.size()};
  const std::ptrdiff_t n = t.receive({&slice, 1});
  out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return n;
}

// As a lane has it: edge-triggered, in somebody's epoll.
class Watch {
 public:
  explicit Watch(Transport& t) : transport_(t), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    add(t.fd(), t.events(false));
    if (t.bell() >= 0) add(t.bell(), EPOLLIN | EPOLLET);
    (void)reports();  // what is there at first
  }
  [[nodiscard]] bool reports(int timeout_ms = 0) const {
    std::array<epoll_event, 2> events{};
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == transport_.fd()) transport_.reported();
    }
    return count > 0;
  }

 private:
  void add(int fd, std::uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) abort();
  }

  Transport& transport_;
  os::Fd epoll_;
};

TEST(PathTransport, ChangesOverInEachDirectionByItself) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  p->a.send_by(Way::kTcp);
  p->b.receive_by(Way::kTcp);
  Bytes got;
  EXPECT_STREQ(p->a.path(), "tcp");
  EXPECT_EQ(send(p->a, Bytes{1, 2}), 2);
  EXPECT_EQ(send(p->b, Bytes{3}), 1);
  EXPECT_EQ(receive(p->b, got), 2);
  EXPECT_EQ(receive(p->a, got), 1);
  p->a.send_by(Way::kRing);
  p->b.receive_by(Way::kRing);
  EXPECT_STREQ(p->a.path(), "ring");
  EXPECT_EQ(send(p->a, Bytes{4, 5, 6}), 3);
  EXPECT_EQ(receive(p->b, got), 3);
  EXPECT_EQ(got, (Bytes{4, 5, 6}));
  EXPECT_EQ(receive(p->b, got), -EAGAIN);
}

TEST(PathTransport, SettledEndIsToldOnceForEachTimeItIsEmptied) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  const Watch watch(p->b);
  ASSERT_FALSE(p->b.settle());
  Bytes got;
  for (int turn = 0; turn < 1000; ++turn) {
    ASSERT_EQ(send(p->a, Bytes{1}), 1);
    ASSERT_EQ(send(p->a, Bytes{2}), 1);
    ASSERT_TRUE(watch.reports()) << turn;
    ASSERT_FALSE(watch.reports());
    ASSERT_EQ(receive(p->b, got), 2);
    ASSERT_EQ(receive(p->b, got), -EAGAIN);
  }
}

TEST(PathTransport, AttendedEndIsNotWoken) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  const Watch watch(p->b);
  p->b.attend();
  EXPECT_EQ(send(p->a, Bytes{1}), 1);
  EXPECT_FALSE(watch.reports());
  EXPECT_TRUE(p->b.settle()) << "there is something already";
  Bytes got;
  EXPECT_EQ(receive(p->b, got), 1);
  EXPECT_EQ(receive(p->b, got), -EAGAIN);
  EXPECT_EQ(send(p->a, Bytes{1}), 1);
  EXPECT_TRUE(watch.reports());
}

TEST(PathTransport, BlockedSenderIsToldOfRoom) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  const Watch watch(p->a);
  ASSERT_FALSE(p->a.settle());
  const Bytes much(2 * shm::kRingBytesMin);
  EXPECT_EQ(send(p->a, much), shm::kRingBytesMin);
  EXPECT_EQ(send(p->a, much), -EAGAIN);
  EXPECT_FALSE(p->a.may_have_room());
  Bytes got;
  p->b.attend();
  EXPECT_EQ(receive(p->b, got, shm::kRingBytesMin), shm::kRingBytesMin);
  EXPECT_TRUE(watch.reports());
  EXPECT_TRUE(p->a.may_have_room());
  EXPECT_EQ(send(p->a, Bytes(100)), 100);
}

TEST(PathTransport, AttendedBlockedSenderSeesRoomAndIsToldAfterItSettles) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  const Watch watch(p->a);
  p->a.attend();
  EXPECT_EQ(send(p->a, Bytes(2 * shm::kRingBytesMin)), shm::kRingBytesMin);
  ASSERT_FALSE(p->a.settle());
  Bytes got;
  p->b.attend();
  EXPECT_EQ(receive(p->b, got, shm::kRingBytesMin), shm::kRingBytesMin);
  EXPECT_TRUE(watch.reports());
}

// Not to be mistaken for room: else it would try again until the peer reads.
TEST(PathTransport, BlockedSenderWithSomethingToReadReturns) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  const Watch watch(p->a);
  ASSERT_FALSE(p->a.settle());
  EXPECT_EQ(send(p->b, Bytes{1, 2}), 2);
  EXPECT_EQ(send(p->a, Bytes(2 * shm::kRingBytesMin)), shm::kRingBytesMin);
  EXPECT_EQ(send(p->a, Bytes(1)), -EAGAIN);
  EXPECT_TRUE(watch.reports()) << "the octets to read";
  Bytes got;
  EXPECT_EQ(receive(p->a, got), 2);
  EXPECT_EQ(receive(p->a, got), -EAGAIN);
  EXPECT_EQ(receive(p->b, got, shm::kRingBytesMin), shm::kRingBytesMin);
  EXPECT_TRUE(watch.reports()) << "room";
}

TEST(PathTransport, ReaderWithRoomToWriteAndNothingToReadReturns) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  const Watch watch(p->a);
  ASSERT_FALSE(p->a.settle());
  EXPECT_EQ(send(p->a, Bytes(2 * shm::kRingBytesMin)), shm::kRingBytesMin);
  Bytes got;
  p->b.attend();
  EXPECT_EQ(receive(p->b, got, shm::kRingBytesMin), shm::kRingBytesMin);
  EXPECT_TRUE(watch.reports());
  EXPECT_EQ(receive(p->a, got), -EAGAIN);
  EXPECT_TRUE(p->a.may_have_room());
  EXPECT_EQ(send(p->b, Bytes{1}), 1);
  EXPECT_TRUE(watch.reports()) << "it still waits for octets";
}

TEST(PathTransport, EndOfTcpComesBehindWhatIsInTheRing) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  const Watch watch(p->b);
  ASSERT_FALSE(p->b.settle());
  EXPECT_EQ(send(p->a, Bytes{1, 2, 3}), 3);
  p->a.shutdown_send();
  EXPECT_TRUE(watch.reports());
  Bytes got;
  EXPECT_EQ(receive(p->b, got, 2), 2);
  EXPECT_EQ(receive(p->b, got, 2), 1);
  EXPECT_EQ(receive(p->b, got, 2), 0);
  EXPECT_EQ(receive(p->b, got, 2), 0);
  // The other direction goes on.
  EXPECT_EQ(send(p->b, Bytes{7}), 1);
  EXPECT_EQ(receive(p->a, got), 1);
}

TEST(PathTransport, PollerSeesTheEndAtOnceAndASilentOneInTheEnd) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  Bytes got;
  p->b.attend();
  EXPECT_EQ(receive(p->b, got), -EAGAIN);
  p->a.shutdown_send();
  EXPECT_EQ(receive(p->b, got), 0);
  // A peer that is killed says nothing in the ring.
  auto q = Path::make();
  ASSERT_NE(q, nullptr);
  q->b.attend();
  const int looks = [&] {
    for (int turn = 0; turn < 100'000; ++turn) {
      if (turn == 10) q->a.close(false);
      if (receive(q->b, got) == 0) return turn;
    }
    return -1;
  }();
  EXPECT_GE(looks, 10);
}

TEST(PathTransport, SettlingSeesAnEndWhoseEventWasTakenWhilePolling) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  const Watch watch(p->b);
  Bytes got;
  p->b.attend();
  p->a.close(false);
  (void)watch.reports();
  EXPECT_TRUE(p->b.settle());
  EXPECT_EQ(receive(p->b, got), 0);
}

TEST(PathTransport, EndBehindTheLastOctetsOnTcpIsLookedFor) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  p->a.send_by(Way::kTcp);
  p->b.receive_by(Way::kTcp);
  const Watch watch(p->b);
  EXPECT_EQ(send(p->a, Bytes{1, 2, 3}), 3);
  p->a.close(false);
  ASSERT_TRUE(watch.reports());
  ASSERT_FALSE(watch.reports()) << "one event for both";
  Bytes got;
  EXPECT_EQ(receive(p->b, got), 3);
  EXPECT_FALSE(p->b.short_read_is_all());
  EXPECT_EQ(receive(p->b, got), 0);
}

TEST(PathTransport, OctetsOnTcpBesideTheRingAreAViolation) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  p->a.send_by(Way::kTcp);
  EXPECT_EQ(send(p->a, Bytes{1}), 1);
  Bytes got;
  EXPECT_EQ(receive(p->b, got), -EPROTO);
  EXPECT_EQ(receive(p->b, got), -EPROTO);
}

// The peer has gone back to TCP, and its word of that is in the ring.
TEST(PathTransport, OctetsOnTcpStayThereUntilTheRingSaysThatTheyMay) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  Bytes got;
  for (const bool attended : {false, true}) {
    if (attended) p->b.attend();
    p->a.send_by(Way::kRing);
    p->b.receive_by(Way::kRing);
    EXPECT_EQ(send(p->a, Bytes{1}), 1);
    p->a.send_by(Way::kTcp);
    EXPECT_EQ(send(p->a, Bytes{2, 3}), 2);
    p->b.reported();
    if (!attended) {
      EXPECT_TRUE(p->b.settle());
    }
    EXPECT_EQ(receive(p->b, got), 1);
    p->b.receive_by(Way::kTcp);
    EXPECT_EQ(receive(p->b, got), 2);
    EXPECT_EQ(got, (Bytes{2, 3}));
  }
}

// The event for them has come before, and none comes again.
TEST(PathTransport, OctetsReportedBesideTheRingAreLookedForWhenItHasGone) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  const Watch watch(p->b);
  ASSERT_FALSE(p->b.settle());
  p->a.send_by(Way::kTcp);
  EXPECT_EQ(send(p->a, Bytes{2, 3}), 2);
  ASSERT_TRUE(watch.reports());
  p->b.receive_by(Way::kTcp);
  p->b.drop_ring();
  EXPECT_FALSE(p->b.short_read_is_all()) << "of the ring it was";
  ASSERT_FALSE(watch.reports());
  EXPECT_TRUE(p->b.settle()) << "nobody sleeps over them";
  Bytes got;
  EXPECT_EQ(receive(p->b, got), 2);
  EXPECT_TRUE(p->b.short_read_is_all());
  EXPECT_FALSE(p->b.settle());
}

TEST(PathTransport, OctetsReadBehindTheRingAreNotLookedForAgain) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  p->a.send_by(Way::kTcp);
  EXPECT_EQ(send(p->a, Bytes{2, 3}), 2);
  p->b.receive_by(Way::kTcp);
  p->b.drop_ring();
  Bytes got;
  EXPECT_EQ(receive(p->b, got), 2);
  EXPECT_TRUE(p->b.short_read_is_all());
  EXPECT_FALSE(p->b.settle());
}

TEST(PathTransport, GoesBackToTcpAndLeavesNothing) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  for (PathTransport* t : {&p->a, &p->b}) t->drop_ring();
  EXPECT_FALSE(p->a.has_ring());
  const Watch watch(p->b);
  EXPECT_EQ(send(p->a, Bytes{1}), 1);
  EXPECT_TRUE(watch.reports());
  Bytes got;
  EXPECT_EQ(receive(p->b, got), 1);
}

TEST(PathTransport, LosesNothingBetweenThreadsThatSleepInEpoll) {
  auto p = Path::make();
  ASSERT_NE(p, nullptr);
  constexpr std::uint64_t kTotal = 16ULL << 20U;
  constexpr int kMinuteMs = 60'000;
  std::thread writer([&] {
    const Watch watch(p->a);
    if (p->a.settle()) return;
    std::uint64_t sent = 0;
    Bytes block;
    while (sent < kTotal) {
      block.resize(std::min<std::uint64_t>(1 + (sent * 31) % 300'000, kTotal - sent));
      for (std::size_t i = 0; i < block.size(); ++i) block[i] = shm::pattern(sent + i);
      // Many slices, and a send that stops inside one.
      std::vector<Slice> slices;
      for (std::size_t at = 0; at < block.size(); at += 5000) {
        slices.push_back({block.data() + at, std::min<std::size_t>(5000, block.size() - at)});
      }
      const std::ptrdiff_t n = p->a.send(slices);
      if (n > 0) sent += static_cast<std::uint64_t>(n);
      if (n < static_cast<std::ptrdiff_t>(block.size()) && !watch.reports(kMinuteMs)) break;
    }
    EXPECT_EQ(sent, kTotal);
  });
  const Watch watch(p->b);
  std::uint64_t read = 0;
  Bytes got;
  bool good = !p->b.settle() || true;
  while (good && read < kTotal) {
    const std::ptrdiff_t n = receive(p->b, got, 1 + (read * 17) % 70'000);
    for (std::size_t i = 0; i < got.size(); ++i) good = good && got[i] == shm::pattern(read + i);
    read += got.size();
    if (n == -EAGAIN) good = good && watch.reports(kMinuteMs);
    if (n == 0) break;
  }
  EXPECT_TRUE(good);
  EXPECT_EQ(read, kTotal);
  if (read < kTotal) p->b.close(true);
  writer.join();
}

}  // namespace
}  // namespace weft::io
