#include "shm/ring.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <numeric>
#include <thread>

#include "../support/ring_mappings.h"
#include "shm_ring_testing.h"

namespace weft::shm {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes patterned(std::uint64_t from, std::size_t size) {
  Bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = pattern(from + i);
  return out;
}

using test::ring_mappings;

bool is_ringing(const Ring& ring) {
  pollfd p{ring.bell(), POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

std::size_t open_descriptors() {
  const auto folder = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
}

TEST(Ring, CarriesBytesInBothDirections) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  EXPECT_FALSE(pair.initiator->maybe_readable());
  const Bytes there = patterned(0, 100);
  const Bytes back = patterned(1000, 77);
  EXPECT_EQ(send_bytes(*pair.responder, there), there.size());
  EXPECT_EQ(send_bytes(*pair.initiator, back), back.size());
  EXPECT_TRUE(pair.initiator->maybe_readable());
  EXPECT_EQ(receive_bytes(*pair.initiator, 1000), there);
  EXPECT_EQ(receive_bytes(*pair.responder, 1000), back);
  EXPECT_FALSE(pair.initiator->maybe_readable());
  EXPECT_TRUE(receive_bytes(*pair.initiator, 1000).empty());
}

TEST(Ring, GathersAndScattersPieces) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  Bytes data = patterned(0, 300);
  const std::array<Slice, 3> from{{{data.data(), 1}, {data.data() + 1, 0}, {data.data() + 1, 299}}};
  ASSERT_EQ(pair.responder->send(from), 300U);
  Bytes a(7);
  Bytes b(500);
  const std::array<Slice, 2> to{{{a.data(), a.size()}, {b.data(), b.size()}}};
  ASSERT_EQ(pair.initiator->receive(to), 300U);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), data.begin()));
  EXPECT_TRUE(std::equal(data.begin() + 7, data.end(), b.begin()));
}

TEST(Ring, TakesExactlyItsSizeAndThenNothing) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  const Bytes data = patterned(0, kRingBytesMin + 1);
  EXPECT_EQ(send_bytes(*pair.responder, data), kRingBytesMin);
  EXPECT_EQ(send_bytes(*pair.responder, data), 0U);
  EXPECT_EQ(pair.responder->unread_by_peer(), kRingBytesMin);
  EXPECT_EQ(receive_bytes(*pair.initiator, 1).size(), 1U);
  EXPECT_EQ(send_bytes(*pair.responder, data), 1U);
  EXPECT_EQ(receive_bytes(*pair.initiator, 2 * kRingBytesMin).size(), kRingBytesMin);
  EXPECT_EQ(pair.responder->unread_by_peer(), 0U);
}

TEST(Ring, KeepsTheStreamOverManyWrapsInPiecesOfAnySize) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  std::uint64_t sent = 0;
  std::uint64_t read = 0;
  // Sizes that fall on every place around the end of the buffer.
  for (std::size_t turn = 0; read < 40ULL * kRingBytesMin; ++turn) {
    sent += send_bytes(*pair.responder, patterned(sent, 1 + (turn * 7919) % 50000));
    const Bytes got = receive_bytes(*pair.initiator, 1 + (turn * 104729) % 60000);
    ASSERT_EQ(got, patterned(read, got.size()));
    read += got.size();
  }
}

// Writes in place as much as there is room for, up to `most` octets.
std::size_t write_in_place(Ring& ring, std::uint64_t from, std::size_t most) {
  const std::span<std::uint8_t> room = ring.room();
  const std::size_t n = std::min(room.size(), most);
  for (std::size_t i = 0; i < n; ++i) room[i] = pattern(from + i);
  if (n != 0) ring.commit(n);
  return n;
}

Bytes read_in_place(Ring& ring, std::size_t most) {
  const std::span<const std::uint8_t> seen = ring.view();
  const std::size_t n = std::min(seen.size(), most);
  Bytes out(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(n));
  if (n != 0) ring.consume(n);
  return out;
}

TEST(Ring, KeepsTheStreamWhoeverWritesAndReadsInPlace) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  std::uint64_t sent = 0;
  std::uint64_t read = 0;
  for (std::size_t turn = 0; read < 40ULL * kRingBytesMin; ++turn) {
    const std::size_t out = 1 + (turn * 7919) % 50000;
    const std::size_t in = 1 + (turn * 104729) % 60000;
    sent += turn % 3 == 0 ? send_bytes(*pair.responder, patterned(sent, out))
                          : write_in_place(*pair.responder, sent, out);
    const Bytes got =
        turn % 5 == 0 ? receive_bytes(*pair.initiator, in) : read_in_place(*pair.initiator, in);
    ASSERT_EQ(got, patterned(read, got.size()));
    read += got.size();
  }
}

TEST(Ring, PlaceAndViewEndWithTheBufferAndWithWhatIsThere) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  EXPECT_TRUE(pair.initiator->view().empty());
  EXPECT_EQ(write_in_place(*pair.responder, 0, 2 * kRingBytesMin), kRingBytesMin);
  EXPECT_TRUE(pair.responder->room().empty());
  EXPECT_EQ(read_in_place(*pair.initiator, 100), patterned(0, 100));
  EXPECT_EQ(pair.initiator->view().size(), kRingBytesMin - 100);
  EXPECT_EQ(pair.responder->room().size(), 100U);
  EXPECT_EQ(write_in_place(*pair.responder, kRingBytesMin, 60), 60U);
  EXPECT_EQ(read_in_place(*pair.initiator, kRingBytesMin).size(), kRingBytesMin - 100);
  EXPECT_EQ(read_in_place(*pair.initiator, 100), patterned(kRingBytesMin, 60));
  EXPECT_TRUE(pair.initiator->view().empty());
}

TEST(Ring, WhatIsWrittenInPlaceWakesAPeerThatSleeps) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  ASSERT_TRUE(pair.initiator->prepare_sleep(false));
  EXPECT_EQ(write_in_place(*pair.responder, 0, 10), 10U);
  EXPECT_TRUE(is_ringing(*pair.initiator));
  EXPECT_TRUE(pair.initiator->cancel_sleep());
  while (write_in_place(*pair.responder, 0, kRingBytesMin) != 0) {
  }
  ASSERT_TRUE(pair.responder->prepare_sleep(true, false));
  EXPECT_FALSE(read_in_place(*pair.initiator, kRingBytesMin / 4).empty());
  EXPECT_FALSE(is_ringing(*pair.responder));
  EXPECT_FALSE(read_in_place(*pair.initiator, kRingBytesMin / 2).empty());
  EXPECT_TRUE(is_ringing(*pair.responder));
}

// The positions count to 2^32 and begin again: octets before and after must be told apart.
TEST(Ring, GoesOnWhenThePositionsBeginAgain) {
  RingPair pair = RingPair::make(kRingBytesMax);
  ASSERT_TRUE(pair.whole());
  Bytes block(kRingBytesMax);
  std::uint64_t moved = 0;
  for (; moved < (1ULL << 32U) + kRingBytesMax; moved += kRingBytesMax - 512) {
    const std::span<std::uint8_t> part(block.data(), kRingBytesMax - 512);
    part.front() = pattern(moved);
    part.back() = pattern(moved + 1);
    ASSERT_EQ(send_bytes(*pair.responder, part), part.size());
    const Slice to{block.data(), block.size()};
    ASSERT_EQ(pair.initiator->receive({&to, 1}), part.size());
    ASSERT_EQ(part.front(), pattern(moved));
    ASSERT_EQ(part.back(), pattern(moved + 1));
  }
}

TEST(Ring, RingsOnlyForAPeerThatSleeps) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  EXPECT_EQ(send_bytes(*pair.responder, patterned(0, 10)), 10U);
  EXPECT_FALSE(is_ringing(*pair.initiator));
  EXPECT_FALSE(pair.initiator->prepare_sleep(false)) << "there is something to read";
  EXPECT_EQ(receive_bytes(*pair.initiator, 100).size(), 10U);
  ASSERT_TRUE(pair.initiator->prepare_sleep(false));
  EXPECT_FALSE(is_ringing(*pair.initiator));
  EXPECT_EQ(send_bytes(*pair.responder, patterned(0, 10)), 10U);
  EXPECT_TRUE(is_ringing(*pair.initiator));
  EXPECT_TRUE(pair.initiator->cancel_sleep());
  EXPECT_FALSE(is_ringing(*pair.initiator));
  // Nothing is left behind: the next octets ring nobody.
  EXPECT_EQ(send_bytes(*pair.responder, patterned(0, 10)), 10U);
  EXPECT_FALSE(is_ringing(*pair.initiator));
}

TEST(Ring, WakesAWriterWhenHalfIsFree) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  ASSERT_EQ(send_bytes(*pair.responder, patterned(0, kRingBytesMin)), kRingBytesMin);
  ASSERT_TRUE(pair.responder->prepare_sleep(true));
  EXPECT_EQ(receive_bytes(*pair.initiator, kRingBytesMin / 2 - 1).size(), kRingBytesMin / 2 - 1);
  EXPECT_FALSE(is_ringing(*pair.responder));
  EXPECT_EQ(receive_bytes(*pair.initiator, 1).size(), 1U);
  EXPECT_TRUE(is_ringing(*pair.responder));
  EXPECT_TRUE(pair.responder->cancel_sleep());
}

TEST(Ring, WriterThatWaitsForDataOnlyIsNotWokenForRoom) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  ASSERT_EQ(send_bytes(*pair.responder, patterned(0, 1000)), 1000U);
  ASSERT_TRUE(pair.responder->prepare_sleep(false));
  EXPECT_EQ(receive_bytes(*pair.initiator, 1000).size(), 1000U);
  EXPECT_FALSE(is_ringing(*pair.responder));
}

TEST(Ring, SaysWhenThePeerIsGone) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  ASSERT_TRUE(pair.initiator->prepare_sleep(false));
  pair.responder.reset();
  EXPECT_TRUE(is_ringing(*pair.initiator));
  EXPECT_FALSE(pair.initiator->cancel_sleep());
  // Nobody reads: no signal, no error, the memory is still there.
  EXPECT_EQ(send_bytes(*pair.initiator, patterned(0, 10)), 10U);
}

TEST(Ring, SaysThatItSendsNoMore) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  EXPECT_FALSE(pair.initiator->peer_closed_hint());
  EXPECT_EQ(send_bytes(*pair.responder, patterned(0, 10)), 10U);
  pair.responder->close_sending();
  EXPECT_TRUE(pair.initiator->peer_closed_hint());
  EXPECT_EQ(receive_bytes(*pair.initiator, 100).size(), 10U) << "what was sent before is there";
}

TEST(Ring, LeavesNoDescriptorAndNoPage) {
  const std::size_t descriptors = open_descriptors();
  const std::size_t mappings = ring_mappings();
  {
    RingPair pair = RingPair::make();
    ASSERT_TRUE(pair.whole());
    // One socket for each end, and no descriptor of the memory.
    EXPECT_EQ(open_descriptors(), descriptors + 2);
    EXPECT_EQ(ring_mappings(), mappings + 2);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(ring_mappings(), mappings);
}

TEST(Ring, ChildOfForkHasNeitherTheMemoryNorTheBell) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  const pid_t child = fork();
  if (child == 0) {
    const bool gone = ring_mappings() == 0 && fcntl(pair.initiator->bell(), F_GETFD) < 0;
    pair.initiator.reset();  // must not touch what is at that address now
    pair.responder.reset();
    _exit(gone ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(send_bytes(*pair.responder, patterned(0, 10)), 10U);
  EXPECT_EQ(receive_bytes(*pair.initiator, 100), patterned(0, 10));
}

// Sleeps until the bell rings, as a poller does. False: nothing for a minute, which no machine
// takes: a wake-up was lost.
[[nodiscard]] bool sleep_for(Ring& ring, bool for_room) {
  if (!ring.prepare_sleep(for_room)) return true;
  pollfd p{ring.bell(), POLLIN, 0};
  constexpr int kMinuteMs = 60'000;
  const bool woken = poll(&p, 1, kMinuteMs) == 1;
  return ring.cancel_sleep() && woken;
}

TEST(Ring, LosesNoWakeUpBetweenThreadsThatSleepAtEveryTurn) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  constexpr std::uint64_t kTotal = 24ULL << 20U;
  std::thread writer([&] {
    std::uint64_t sent = 0;
    while (sent < kTotal) {
      const std::size_t size = std::min<std::uint64_t>(1 + (sent * 31) % 90000, kTotal - sent);
      const std::size_t n = send_bytes(*pair.responder, patterned(sent, size));
      sent += n;
      if (n < size && !sleep_for(*pair.responder, true)) break;
    }
    EXPECT_EQ(sent, kTotal);
  });
  std::uint64_t read = 0;
  while (read < kTotal) {
    const Bytes got = receive_bytes(*pair.initiator, 1 + (read * 17) % 70000);
    if (got != patterned(read, got.size())) break;
    read += got.size();
    if (got.empty() && !sleep_for(*pair.initiator, false)) break;
  }
  EXPECT_EQ(read, kTotal);
  if (read < kTotal) pair.initiator.reset();
  writer.join();
}

TEST(Ring, LosesNoWakeUpInAPingPongOfSleepers) {
  RingPair pair = RingPair::make();
  ASSERT_TRUE(pair.whole());
  constexpr int kTurns = 20000;
  const auto answer = [](Ring& ring, bool begins) {
    for (int turn = 0; turn < kTurns; ++turn) {
      if (begins && send_bytes(ring, patterned(0, 64)) != 64) return false;
      std::size_t got = 0;
      while (got < 64) {
        const std::size_t n = receive_bytes(ring, 64 - got).size();
        got += n;
        if (n == 0 && !sleep_for(ring, false)) return false;
      }
      if (!begins && send_bytes(ring, patterned(0, 64)) != 64) return false;
    }
    return true;
  };
  bool other_side = false;
  std::thread other([&] { other_side = answer(*pair.responder, false); });
  EXPECT_TRUE(answer(*pair.initiator, true));
  other.join();
  EXPECT_TRUE(other_side);
}

}  // namespace
}  // namespace weft::shm
