// A peer that shares the memory and writes anything into it at any moment. What it may do: end the
// connection, and garble the bytes it sends. The memory is watched from outside: our end reads into
// and writes from buffers between pages that can't be touched.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "shm/ring.h"
#include "shm_ring_testing.h"

namespace weft::shm {
namespace {

// A buffer whose neighbors are pages without rights: an access outside ends the test.
class Guarded {
 public:
  explicit Guarded(std::size_t pages) : size_(pages * kPage), whole_(size_ + 2 * kPage) {
    base_ = static_cast<std::uint8_t*>(
        mmap(nullptr, whole_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + kPage, size_, PROT_READ | PROT_WRITE) != 0) abort();
  }
  ~Guarded() { munmap(base_, whole_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  // Ends at the border, so that one octet too many is seen.
  [[nodiscard]] Slice last(std::size_t size) const { return {base_ + kPage + size_ - size, size}; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::size_t size_, whole_;
  std::uint8_t* base_;
};

std::uint64_t seed() {
  const char* given = std::getenv("WEFT_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
}

// The memory of a ring whose other end is ours, and which the test writes as it likes.
struct Hostile {
  RingMemory memory;
  Ring victim;
  os::Fd bell;

  static std::unique_ptr<Hostile> make() {
    auto made = RingMemory::create(kRingBytesMin);
    if (!made) return nullptr;
    auto taken = RingMemory::adopt(os::Fd(dup(made->fd())), kRingBytesMin);
    std::array<int, 2> ends;
    if (!taken || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) {
      return nullptr;
    }
    Ring victim(std::move(*taken), os::Fd(ends[0]), 1);
    if (!victim.secure()) return nullptr;
    return std::unique_ptr<Hostile>(
        new Hostile{std::move(*made), std::move(victim), os::Fd(ends[1])});
  }
  [[nodiscard]] RingSide& mine() const { return memory.side(0); }
  [[nodiscard]] RingSide& its() const { return memory.side(1); }
};

Result<std::size_t> receive_all(Ring& ring, const Guarded& to, std::size_t size) {
  const Slice part = to.last(size);
  return ring.receive({&part, 1});
}
Result<std::size_t> send_all(Ring& ring, const Guarded& from, std::size_t size) {
  const Slice part = from.last(size);
  return ring.send({&part, 1});
}

Error error_of(const Result<std::size_t>& result) {
  return result ? Error::kBusy : result.error();  // kBusy stands for: none
}

TEST(HostileRing, HeadBeyondTheBufferEndsTheConnectionForGood) {
  for (const std::uint32_t head : {kRingBytesMin + 1, 0x80000000U, 0xffffffffU}) {
    auto h = Hostile::make();
    ASSERT_NE(h, nullptr);
    const Guarded to(64);
    h->mine().head = head;
    EXPECT_TRUE(h->victim.maybe_readable());
    EXPECT_EQ(error_of(receive_all(h->victim, to, 64 * 4096)), Error::kProtocol);
    h->mine().head = 0;
    EXPECT_EQ(error_of(receive_all(h->victim, to, 100)), Error::kProtocol);
    EXPECT_EQ(error_of(send_all(h->victim, to, 100)), Error::kProtocol);
  }
}

TEST(HostileRing, HeadAtTheEndOfTheBufferIsLegal) {
  auto h = Hostile::make();
  ASSERT_NE(h, nullptr);
  const Guarded to(64);
  h->mine().head = kRingBytesMin;
  EXPECT_EQ(receive_all(h->victim, to, 64 * 4096).value_or(0), kRingBytesMin);
}

TEST(HostileRing, TailThatRunsAheadOrFallsBackEndsTheConnection) {
  for (const std::uint32_t tail : {1U, 0xffffffffU, 0U - kRingBytesMin - 1}) {
    auto h = Hostile::make();
    ASSERT_NE(h, nullptr);
    const Guarded from(64);
    h->mine().tail = tail;  // nothing has been sent yet
    Result<std::size_t> sent = 0;
    for (int turn = 0; turn < 4 && sent; ++turn) sent = send_all(h->victim, from, 64 * 4096);
    // A tail behind us by less than the buffer looks like a peer that has not read.
    const bool can_be_true = 0U - tail <= kRingBytesMin;
    EXPECT_EQ(sent.has_value(), can_be_true) << tail;
  }
}

TEST(HostileRing, PositionsBeyondTheBufferGiveNothingToReadOrToWriteInPlace) {
  for (const std::uint32_t wrong : {kRingBytesMin + 1, 0x80000000U, 0xffffffffU}) {
    auto h = Hostile::make();
    ASSERT_NE(h, nullptr);
    const Guarded to(64);
    h->mine().head = wrong;
    EXPECT_TRUE(h->victim.view().empty());
    EXPECT_EQ(error_of(receive_all(h->victim, to, 100)), Error::kProtocol);
    h->mine().head = 10;
    EXPECT_TRUE(h->victim.view().empty());
    EXPECT_TRUE(h->victim.room().empty());
  }
  auto h = Hostile::make();
  ASSERT_NE(h, nullptr);
  const Guarded from(64);
  h->mine().tail = 0x80000000U;
  while (!h->victim.room().empty()) h->victim.commit(h->victim.room().size());
  EXPECT_EQ(error_of(send_all(h->victim, from, 100)), Error::kProtocol);
}

// What has been shown may be taken back, or grow: what was shown counts.
TEST(HostileRing, HeadThatMovesBetweenTheViewAndItsEnd) {
  auto h = Hostile::make();
  ASSERT_NE(h, nullptr);
  const Guarded to(64);
  h->mine().head = 100;
  EXPECT_EQ(h->victim.view().size(), 100U);
  h->mine().head = 40;
  h->victim.consume(100);
  EXPECT_EQ(h->its().tail, 100U);
  EXPECT_TRUE(h->victim.view().empty());
  EXPECT_EQ(error_of(receive_all(h->victim, to, 100)), Error::kProtocol);
}

TEST(HostileRing, OurOwnPositionsAreNotReadBack) {
  auto h = Hostile::make();
  ASSERT_NE(h, nullptr);
  const Guarded bytes(64);
  EXPECT_EQ(send_all(h->victim, bytes, 1000).value_or(0), 1000U);
  h->its().head = 0xdeadbeef;
  h->its().tail = 0xdeadbeef;
  EXPECT_EQ(send_all(h->victim, bytes, 1000).value_or(0), 1000U);
  EXPECT_EQ(h->its().head.load(), 2000U);
  h->mine().head = 10;
  EXPECT_EQ(receive_all(h->victim, bytes, 1000).value_or(0), 10U);
  EXPECT_EQ(h->its().tail.load(), 10U);
}

TEST(HostileRing, BellThatIsNeverReadDoesNotHoldUsUp) {
  auto h = Hostile::make();
  ASSERT_NE(h, nullptr);
  const Guarded bytes(1);
  for (int turn = 0; turn < 100'000; ++turn) {
    h->mine().waiting = 3;
    h->mine().tail = h->its().head.load();
    ASSERT_EQ(send_all(h->victim, bytes, 1).value_or(0), 1U);
  }
}

TEST(HostileRing, BellThatRingsAllTheTimeDoesNotKeepUs) {
  auto h = Hostile::make();
  ASSERT_NE(h, nullptr);
  const std::array<char, 4096> noise{};
  while (write(h->bell.get(), noise.data(), noise.size()) > 0) {
  }
  for (int turn = 0; turn < 1000; ++turn) {
    ASSERT_TRUE(h->victim.prepare_sleep(true) || true);
    ASSERT_TRUE(h->victim.cancel_sleep());
    static_cast<void>(!write(h->bell.get(), noise.data(), noise.size()));
  }
}

// Relaxed stores of single octets and words all over, at full speed, on another CPU.
#ifndef __SANITIZE_THREAD__  // it is a data race, by intention
TEST(HostileRing, ScribblesOverEverythingWhileWeSendAndReceive) {
  const std::uint64_t start = seed();
  SCOPED_TRACE("WEFT_SEED=" + std::to_string(start));
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    auto h = Hostile::make();
    ASSERT_NE(h, nullptr);
    const Guarded in(40);
    const Guarded out(40);
    std::atomic<bool> stop{false};
    std::thread scribbler([&, round] {
      std::mt19937_64 random(start + static_cast<std::uint64_t>(round));
      auto* const control = reinterpret_cast<volatile std::uint8_t*>(&h->mine());
      // Some rounds keep the positions possible for a while, so that bytes flow at all.
      const bool plausible = round % 2 == 0;
      while (!stop) {
        const std::uint64_t r = random();
        h->memory.buffer(r & 1U)[(r >> 8U) % kRingBytesMin] = static_cast<std::uint8_t>(r >> 40U);
        if (plausible) {
          h->mine().head = h->its().tail.load() + static_cast<std::uint32_t>(r % kRingBytesMin);
          h->mine().tail = h->its().head.load();
          h->mine().waiting = static_cast<std::uint32_t>(r & 3U);
          if ((r & 0xfffffU) == 0) control[(r >> 20U) % (2 * sizeof(RingSide))] = 0xff;
        } else {
          control[(r >> 20U) % (2 * sizeof(RingSide))] = static_cast<std::uint8_t>(r);
        }
      }
    });
    std::mt19937_64 random(~start + static_cast<std::uint64_t>(round));
    for (int turn = 0; turn < 3000; ++turn) {
      const auto got = receive_all(h->victim, in, random() % (40 * 4096));
      const auto sent = send_all(h->victim, out, random() % (40 * 4096));
      EXPECT_LE(h->victim.unread_by_peer(), kRingBytesMin);
      static_cast<void>(h->victim.prepare_sleep(turn % 2 == 0));
      ASSERT_TRUE(h->victim.cancel_sleep());
      if (!got && !sent) break;
    }
    stop = true;
    scribbler.join();
  }
}
#endif

}  // namespace
}  // namespace weft::shm
