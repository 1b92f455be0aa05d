// The channel under the socket that a program sees: readiness by edges, late and forged signals,
// ends that die, and a peer that writes nonsense into the shared memory.
#include "sockets/socket_channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace weft::sockets {
namespace {

constexpr std::size_t kHeader = 4096;  // of the memory file, before the rings
constexpr int kPatienceMs = 20000;

// End 0 is a Channel. End 1 is another, or the test itself, by hand.
class Ends : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Channel::create("weft-socket,test", parts_));
    a_ = Channel::attach(parts_.memory, 0, parts_.pair[0]);
    ASSERT_NE(a_, nullptr);
    a_->mirror();
  }
  void TearDown() override {
    if (a_ != nullptr) a_->release();
    if (b_ != nullptr) b_->release();
    if (page_ != nullptr) munmap(page_, kHeader);
    Channel::discard(parts_);
  }

  void attach_other() {
    b_ = Channel::attach(parts_.memory, 1, parts_.pair[1]);
    ASSERT_NE(b_, nullptr);
    b_->mirror();
  }
  void map_by_hand() {
    void* at = mmap(nullptr, kHeader, PROT_READ | PROT_WRITE, MAP_SHARED, parts_.memory, 0);
    ASSERT_NE(at, MAP_FAILED);
    page_ = static_cast<RingPage*>(at);
  }
  // Octets from end 1, whatever they are, by the rules of socket_channel.h; `counted` as by a
  // writer that has had the time to.
  void put_by_hand(std::uint64_t count, bool counted) {
    RingHalf& half = page_->half[1];
    half.written += count;
    if (half.reader_waits.exchange(0) == 0) return;
    ASSERT_EQ(write(parts_.pair[1], "", 1), 1);
    if (counted) ++half.signals;
  }

  static ssize_t read_from(Channel& channel, std::size_t most, bool wait = false) {
    std::vector<std::uint8_t> out(most);
    const iovec part{out.data(), out.size()};
    return channel.receive(&part, 1, 0, wait);
  }
  static ssize_t write_to(Channel& channel, std::string_view text, bool wait = false) {
    const iovec part{const_cast<char*>(text.data()), text.size()};
    return channel.transmit(&part, 1, wait);
  }

  Channel::Parts parts_;
  Channel* a_ = nullptr;
  Channel* b_ = nullptr;
  RingPage* page_ = nullptr;
};

// An epoll instance that tells of edges only, as nginx and the relay use it.
class Edges {
 public:
  explicit Edges(int fd) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    EXPECT_EQ(epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event), 0);
  }
  ~Edges() { close(epoll_); }
  Edges(const Edges&) = delete;
  Edges& operator=(const Edges&) = delete;
  bool wait(int limit_ms) const {
    epoll_event event{};
    return epoll_wait(epoll_, &event, 1, limit_ms) > 0;
  }

 private:
  int epoll_;
};

// What this end has read is its own business: the copy in the shared memory is for the writer.
TEST_F(Ends, WhatThePeerWritesOverOurCursorIsNoOctet) {
  map_by_hand();
  put_by_hand(3, true);
  EXPECT_EQ(read_from(*a_, 10), 3);
  page_->half[1].read = page_->half[1].written - 1;
  EXPECT_EQ(a_->unread(), 0U);
  EXPECT_EQ(read_from(*a_, 10), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Ends, SignalThatIsCountedLateCostsNoEdge) {
  map_by_hand();
  const Edges edges(parts_.pair[0]);
  put_by_hand(5, false);
  ASSERT_TRUE(edges.wait(kPatienceMs));
  EXPECT_EQ(read_from(*a_, 100), 5);
  EXPECT_EQ(read_from(*a_, 100), -1);
  EXPECT_EQ(errno, EAGAIN);
  ++page_->half[1].signals;  // the writer has had its turn
  ASSERT_FALSE(edges.wait(0));
  put_by_hand(7, true);
  EXPECT_TRUE(edges.wait(kPatienceMs)) << "octets came, and the program was not told";
  EXPECT_EQ(read_from(*a_, 100), 7);
}

TEST_F(Ends, SignalThatIsCountedLateIsTakenBackInTheEnd) {
  map_by_hand();
  put_by_hand(5, false);
  EXPECT_EQ(read_from(*a_, 100), 5);
  ++page_->half[1].signals;
  EXPECT_EQ(read_from(*a_, 100), -1);
  pollfd one{parts_.pair[0], POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 0), 0) << "readable with nothing to read, for ever";
}

// The writer may share its core with the reader: who turns there keeps it from counting.
TEST_F(Ends, BlockedReaderSleepsOverASignalThatIsNotCounted) {
  map_by_hand();
  put_by_hand(5, false);
  EXPECT_EQ(read_from(*a_, 100), 5);
  pollfd one{parts_.pair[0], POLLIN, 0};
  static_cast<void>(read_from(*a_, 100));
  EXPECT_EQ(poll(&one, 1, 0), 0) << "the signal keeps the socket readable";
  timeval limit{0, 20'000};
  ASSERT_EQ(setsockopt(parts_.pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
  EXPECT_EQ(read_from(*a_, 100, true), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Ends, WriterThatDiesBeforeItCountsASignalEndsTheStream) {
  map_by_hand();
  put_by_hand(5, false);
  EXPECT_EQ(read_from(*a_, 100), 5);
  close(parts_.pair[1]);
  parts_.pair[1] = -1;
  EXPECT_EQ(read_from(*a_, 100), 0);
  EXPECT_EQ(read_from(*a_, 100, true), 0);
}

TEST_F(Ends, PeerThatWritesNonsenseIsAReset) {
  map_by_hand();
  page_->half[1].written = ~0ULL / 2;
  EXPECT_EQ(read_from(*a_, 100), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(a_->unread(), 0U);
  page_->half[0].read = 1;  // more than was ever written
  EXPECT_EQ(write_to(*a_, "x"), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(Ends, FileThatCouldShrinkIsRefused) {
  const int file = memfd_create("weft-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, kHeader + 2 * 262144), 0);
  EXPECT_EQ(Channel::attach(file, 1, parts_.pair[1]), nullptr);
  EXPECT_EQ(errno, EPROTO);
  close(file);
}

TEST_F(Ends, HalfCloseLetsTheOtherDirectionGoOn) {
  attach_other();
  a_->shut(SHUT_WR);
  EXPECT_EQ(read_from(*b_, 10), 0);
  EXPECT_EQ(write_to(*b_, "still there"), 11);
  EXPECT_EQ(read_from(*a_, 100), 11);
  EXPECT_EQ(write_to(*a_, "x"), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(Ends, UnreadOctetsOfAnEndThatLeavesAreAReset) {
  attach_other();
  ASSERT_EQ(write_to(*b_, "never read"), 10);
  a_->leave();
  EXPECT_EQ(read_from(*b_, 10), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(read_from(*b_, 10), 0);
}

// Both by edges only, with rings that fill: a lost edge in either direction stops them.
TEST_F(Ends, NoEdgeIsLostInMillionsOfOctets) {
  attach_other();
  constexpr std::uint64_t kTotal = 3'000'000;
  bool reader_stuck = false;
  bool writer_stuck = false;
  bool equal = true;
  std::thread reader([&] {
    const Edges edges(a_->socket());
    std::array<std::uint8_t, 3001> buffer{};
    for (std::uint64_t got = 0; got < kTotal && !reader_stuck;) {
      const iovec part{buffer.data(), 1 + got % buffer.size()};
      const ssize_t n = a_->receive(&part, 1, 0, false);
      if (n < 0) reader_stuck = !edges.wait(kPatienceMs);
      for (ssize_t i = 0; i < n; ++i) {
        equal = equal &&
                buffer[static_cast<std::size_t>(i)] == (got + static_cast<std::uint64_t>(i)) % 251;
      }
      if (n > 0) got += static_cast<std::uint64_t>(n);
    }
  });
  {
    const Edges edges(b_->socket());
    std::array<std::uint8_t, 40'000> buffer{};
    std::uint64_t put = 0;
    std::size_t turn = 0;
    while (put < kTotal && !writer_stuck) {
      // Mostly small, so that the reader is often faster; now and then more than fits.
      const std::size_t size =
          std::min<std::uint64_t>(++turn % 64 == 0 ? buffer.size() : 1 + turn % 97, kTotal - put);
      for (std::size_t i = 0; i < size; ++i) buffer[i] = static_cast<std::uint8_t>((put + i) % 251);
      const iovec part{buffer.data(), size};
      const ssize_t n = b_->transmit(&part, 1, false);
      if (n < 0) writer_stuck = !edges.wait(kPatienceMs);
      if (n > 0) put += static_cast<std::uint64_t>(n);
    }
  }
  reader.join();
  EXPECT_FALSE(reader_stuck);
  EXPECT_FALSE(writer_stuck);
  EXPECT_TRUE(equal);
}

}  // namespace
}  // namespace weft::sockets
