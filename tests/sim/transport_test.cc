// What a stream may ask of a transport, and a transport of a stream: taking apart from releasing,
// batches prepared meanwhile, memory revoked at any moment.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/crc32c.h"
#include "endpoint.h"

namespace weft::testing {
namespace {

using proto::StreamState;
using proto::TxBatch;

constexpr std::uint32_t kBig = 3U << 20U;  // several batches

proto::StreamParams plain_params(bool initiator) {
  proto::StreamParams p;
  p.initiator = initiator;
  p.ird = p.ord = 4;
  p.max_ulpdu = 16398;
  return p;
}

class TransportTest : public ::testing::Test {
 protected:
  TransportTest() : me_({.arena_bytes = 4U << 20U, .queue_depth = 16, .secret = 1}) {
    me_.start(plain_params(true));
  }
  void post_write(std::uint64_t id, std::uint32_t size) {
    me_.post_send(SendOp::kWrite, SendFlags::kSignaled, id, me_.arena().data(), size, Stag{0x500});
  }
  [[nodiscard]] std::uint32_t pins(Stag stag) const { return me_.table().find(stag)->pins.load(); }
  // What the peer would read.
  std::vector<std::uint8_t> take(std::size_t n) {
    TxBatch* batch = me_.stream().gather();
    std::vector<std::uint8_t> out;
    if (batch == nullptr) return out;
    n = std::min(n, batch->bytes - batch->sent);
    for (std::size_t s = batch->slice_next; out.size() != n; ++s) {
      const Slice& slice = batch->slices[s];
      const std::size_t piece = std::min(n - out.size(), slice.size);
      out.insert(out.end(), slice.data, slice.data + piece);
    }
    me_.stream().sent(n);
    return out;
  }
  // A peer that answers with what is no FPDU of ours: opcode 15.
  void receive_violation() {
    std::uint8_t bad[] = {0, 2, 0x41, 0x4f, 0, 0, 0, 0};
    store_crc(bad + 4, crc32c({bad, 4}));
    me_.stream().feed(bad);
  }

  mutable Endpoint me_;
};

TEST_F(TransportTest, WorkCompletesWhenItsMemoryIsReleasedNotWhenItIsTaken) {
  post_write(1, 5000);
  const std::size_t n = take(kBig).size();
  EXPECT_FALSE(me_.stream().tx_pending());
  EXPECT_TRUE(me_.sends.empty());
  EXPECT_EQ(pins(me_.whole()), 1U);
  EXPECT_FALSE(me_.stream().send_drained());
  me_.stream().released(n - 1);
  EXPECT_TRUE(me_.sends.empty());
  me_.stream().released(1);
  ASSERT_EQ(me_.sends.size(), 1U);
  EXPECT_EQ(me_.sends[0].status, WcStatus::kSuccess);
  EXPECT_EQ(pins(me_.whole()), 0U);
  EXPECT_TRUE(me_.stream().send_drained());
}

// How many FPDUs `octets` are, each with the CRC of what it carries. A wrong one ends the count.
std::size_t count_sound_fpdus(std::span<const std::uint8_t> octets) {
  std::size_t count = 0;
  while (octets.size() > kFpduLengthSize) {
    const std::size_t covered = fpdu_covered(load_be16(octets.data()));
    if (octets.size() < covered + kCrcSize) break;
    std::uint8_t expected[kCrcSize];
    store_crc(expected, crc32c(octets.first(covered)));
    if (std::memcmp(expected, octets.data() + covered, kCrcSize) != 0) break;
    octets = octets.subspan(covered + kCrcSize);
    ++count;
  }
  return octets.empty() ? count : 0;
}

TEST_F(TransportTest, OctetsThatLeaveAreThoseOfTheirCrc) {
  post_write(1, 60'000);
  std::vector<std::uint8_t> left;
  std::uint8_t value = 0;
  // The program changes its memory whenever the socket is full in the middle of an FPDU.
  while (me_.stream().tx_pending()) {
    const std::vector<std::uint8_t> some = take(7000);
    left.insert(left.end(), some.begin(), some.end());
    me_.stream().released(some.size());
    std::ranges::fill(me_.arena().first(60'000), ++value);
  }
  EXPECT_EQ(count_sound_fpdus(left), 4U);
}

TEST_F(TransportTest, SeveralBatchesAreInFlightAtOnce) {
  post_write(1, kBig);
  post_write(2, 100);
  std::vector<std::size_t> taken;
  while (me_.stream().tx_pending()) taken.push_back(take(kBig).size());
  EXPECT_GE(taken.size(), 3U);
  EXPECT_TRUE(me_.sends.empty());
  for (const std::size_t n : taken) {
    EXPECT_GE(pins(me_.whole()), 1U);
    me_.stream().released(n);
  }
  EXPECT_EQ(me_.sends.size(), 2U);
  EXPECT_EQ(pins(me_.whole()), 0U);
}

TEST_F(TransportTest, ABatchIsPreparedWhileTheFirstDrainsAndPinsNothing) {
  post_write(1, kBig);
  const std::size_t n = take(1000).size();
  me_.stream().released(n);
  EXPECT_EQ(pins(me_.whole()), 0U);
  me_.stream().prepare();
  EXPECT_EQ(pins(me_.whole()), 0U) << "memory must stay revocable while the socket is full";
  const std::uint64_t built = me_.stream().counters().tx_fpdus.get();
  me_.stream().prepare();
  EXPECT_EQ(me_.stream().counters().tx_fpdus.get(), built) << "one prepared batch is enough";
  me_.stream().released(take(kBig).size());
  EXPECT_NE(take(kBig).size(), 0U);
  EXPECT_EQ(me_.stream().counters().tx_fpdus.get(), built) << "the second was there already";
}

TEST_F(TransportTest, MemoryRevokedUnderAPreparedBatchIsNeverSent) {
  const Stag stag = me_.add_region(me_.arena().data(), kBig);
  proto::SendWqe* wqe = me_.new_send(SendOp::kWrite, SendFlags::kSignaled, 1);
  me_.add_sge(*wqe, stag, me_.arena().data(), kBig);
  me_.commit_send();
  me_.stream().released(take(1000).size());
  me_.stream().prepare();
  ASSERT_TRUE(me_.table().remove(stag).has_value());
  EXPECT_TRUE(take(kBig).empty());
  EXPECT_EQ(me_.stream().state(), StreamState::kError);
  EXPECT_TRUE(me_.stream().wants_reset());
  ASSERT_EQ(me_.sends.size(), 1U);
  EXPECT_EQ(me_.sends[0].status, WcStatus::kLocalProtection);
}

// The first of two Writes in one batch is complete, and its program deregisters the memory.
TEST_F(TransportTest, MemoryOfARequestThatIsCompleteMayGoWhileItsBatchIsUnderWay) {
  const Stag first = me_.add_region(me_.arena().data(), 5000);
  proto::SendWqe* wqe = me_.new_send(SendOp::kWrite, SendFlags::kSignaled, 1);
  me_.add_sge(*wqe, first, me_.arena().data(), 5000);
  me_.commit_send();
  post_write(2, 5000);
  me_.stream().released(take(6000).size());
  ASSERT_EQ(me_.sends.size(), 1U) << "the second is out in part";
  ASSERT_TRUE(me_.table().remove(first).has_value());
  me_.stream().released(take(kBig).size());
  EXPECT_EQ(me_.stream().state(), StreamState::kRts);
  ASSERT_EQ(me_.sends.size(), 2U);
  EXPECT_EQ(me_.sends[1].status, WcStatus::kSuccess);
}

// The application deregisters a region, and takes its pages away, of which an FPDU is out in part;
// then the peer breaks a rule. The rest of that FPDU cannot be read to finish it.
TEST_F(TransportTest, PagesThatAreGoneAreNotReadToFinishAnFpduBeforeATerminate) {
  void* pages = mmap(nullptr, kBig, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const Stag stag = me_.add_region(static_cast<std::uint8_t*>(pages), kBig);
  proto::SendWqe* wqe = me_.new_send(SendOp::kWrite, SendFlags::kSignaled, 1);
  me_.add_sge(*wqe, stag, pages, kBig);
  me_.commit_send();
  me_.stream().released(take(1000).size());
  ASSERT_TRUE(me_.table().remove(stag).has_value());
  ASSERT_EQ(munmap(pages, kBig), 0);
  receive_violation();
  EXPECT_TRUE(me_.stream().finished());
  EXPECT_TRUE(me_.stream().wants_reset());
  EXPECT_EQ(me_.stream().state(), StreamState::kError);
  EXPECT_EQ(me_.stream().gather(), nullptr);
  EXPECT_EQ(me_.sends.size(), 1U);
  EXPECT_TRUE(me_.down.has_value());
}

TEST_F(TransportTest, NothingIsFlushedWhileTheTransportStillReadsIt) {
  post_write(1, 5000);
  post_write(2, 5000);
  const std::size_t n = take(2000).size();
  receive_violation();
  EXPECT_EQ(me_.stream().state(), StreamState::kTerminate);
  EXPECT_TRUE(me_.sends.empty());
  EXPECT_FALSE(me_.down.has_value());
  // The rest of the FPDU in progress, then the Terminate.
  const std::size_t rest = take(kBig).size();
  EXPECT_GT(rest, 3000U);
  EXPECT_TRUE(me_.sends.empty());
  me_.stream().flush_posted();
  EXPECT_TRUE(me_.sends.empty());
  me_.stream().released(n + rest);
  ASSERT_EQ(me_.sends.size(), 2U);
  for (const auto& done : me_.sends) EXPECT_EQ(done.status, WcStatus::kFlushed);
  EXPECT_TRUE(me_.down.has_value());
}

TEST_F(TransportTest, ATransportThatIsGoneReleasesEverything) {
  post_write(1, kBig);
  (void)take(kBig);
  (void)take(5000);
  me_.stream().transport_lost(false);
  EXPECT_TRUE(me_.sends.empty());
  EXPECT_TRUE(me_.stream().finished());
  EXPECT_GE(pins(me_.whole()), 1U);
  me_.stream().transport_closed();
  EXPECT_EQ(me_.sends.size(), 1U);
  EXPECT_EQ(pins(me_.whole()), 0U);
  EXPECT_TRUE(me_.down.has_value());
}

TEST_F(TransportTest, ALocalInvalidateWaitsUntilWhatWasBuiltBeforeItIsReleased) {
  const Stag stag = me_.add_region(me_.arena().data(), 4096);
  proto::SendWqe* write = me_.new_send(SendOp::kWrite, SendFlags::kSignaled, 1);
  me_.add_sge(*write, stag, me_.arena().data(), 4096);
  me_.commit_send();
  proto::SendWqe* local = me_.new_send(SendOp::kLocalInvalidate, SendFlags::kSignaled, 2);
  local->remote_stag = stag;
  me_.commit_send();
  const std::size_t n = take(kBig).size();
  EXPECT_FALSE(me_.stream().tx_pending()) << "there is nothing to do before the release";
  EXPECT_EQ(me_.stream().gather(), nullptr);
  EXPECT_EQ(me_.table().find(stag)->stag.load(), stag.value);
  me_.stream().released(n);
  EXPECT_TRUE(me_.stream().tx_pending());
  EXPECT_EQ(me_.stream().gather(), nullptr);
  EXPECT_EQ(me_.table().find(stag)->stag.load(), 0U);
  EXPECT_EQ(me_.sends.size(), 2U);
}

// Behind our FIN nothing can be sent: a fault of the peer ends in a reset, without a Terminate.
TEST_F(TransportTest, AViolationBehindOurFinResetsWithoutATerminate) {
  me_.stream().close();
  EXPECT_TRUE(me_.stream().take_fin());
  receive_violation();
  EXPECT_EQ(me_.stream().state(), StreamState::kError);
  EXPECT_FALSE(me_.stream().tx_pending());
  EXPECT_EQ(me_.stream().gather(), nullptr);
  EXPECT_TRUE(me_.stream().finished());
  EXPECT_TRUE(me_.stream().wants_reset());
  EXPECT_EQ(me_.down->how, proto::StreamEnd::kOrderly) << "it was over before";
}

// After a pause only the CRCs of a small first batch are waited for.
// Payload whose CRC is sent is copied into the arena, which ends such a batch.
constexpr std::size_t kMostWithCrc = proto::kBatchArenaBytes - 17000;

TEST_F(TransportTest, BatchesGrowFromSmallAfterEveryPauseWhereCrcsAreComputed) {
  for (int pause = 0; pause < 2; ++pause) {
    post_write(1, kBig);
    std::size_t limit = proto::kBatchBytesFirst;
    while (me_.stream().tx_pending()) {
      const std::size_t n = take(kBig).size();
      me_.stream().released(n);
      if (!me_.stream().tx_pending()) break;  // the last is as large as what is left
      EXPECT_GE(n, std::min(limit, kMostWithCrc));
      EXPECT_LT(n, limit + 17000);
      limit = std::min(2 * limit, proto::kBatchBytes);
    }
    EXPECT_EQ(limit, proto::kBatchBytes);
    EXPECT_EQ(me_.stream().gather(), nullptr);
    me_.clock += std::chrono::milliseconds(1);
  }
}

// A program that posts the next message when the last one is complete makes no pause.
TEST_F(TransportTest, MessagesInARowAreWholeBatches) {
  constexpr std::size_t kMessage = 500'000;
  for (int i = 0; i < 4; ++i) {
    post_write(1, kMessage);
    std::size_t batches = 0;
    for (; me_.stream().tx_pending(); ++batches) {
      me_.stream().released(take(kBig).size());
    }
    EXPECT_EQ(me_.stream().gather(), nullptr);
    EXPECT_EQ(batches, i == 0 ? 4U : 2U) << "64, 128 and 256 KiB, the rest; then 256 at once";
    me_.clock += std::chrono::microseconds(5);
  }
}

TEST(TransportNoCrc, BatchesAreLargeAtOnceAndLargePayloadIsHardlyStaged) {
  Endpoint me({.arena_bytes = 4U << 20U, .queue_depth = 16, .secret = 1});
  Endpoint peer({.arena_bytes = 4U << 20U, .queue_depth = 16, .secret = 2});
  proto::StreamParams params = plain_params(true);
  params.crc = false;
  me.start(params);
  params.initiator = false;
  peer.start(params);
  std::vector<std::uint8_t> scratch(256U << 10U);
  // Moves everything; returns the most octets that a plan had outside of the target.
  const auto move = [&](std::size_t read_max) {
    std::size_t staged = 0;
    while (TxBatch* batch = me.stream().gather()) {
      std::vector<std::uint8_t> wire;
      for (std::size_t s = batch->slice_next; s < batch->slice_count; ++s) {
        wire.insert(wire.end(), batch->slices[s].data,
                    batch->slices[s].data + batch->slices[s].size);
      }
      me.stream().sent(wire.size());
      me.stream().released(wire.size());
      for (std::size_t at = 0; at < wire.size();) {
        proto::RxPlan plan;
        peer.stream().want(plan, scratch);
        const std::size_t n = std::min({plan.bytes, wire.size() - at, read_max});
        std::size_t left = n;
        for (std::size_t s = 0; left != 0; ++s) {
          const std::size_t piece = std::min(left, plan.slices[s].size);
          std::memcpy(plan.slices[s].data, wire.data() + at, piece);
          const auto* to = plan.slices[s].data;
          const bool in_place = to >= peer.arena().data() && to < peer.arena().data() + kBig;
          if (!in_place) staged = std::max(staged, piece);
          at += piece;
          left -= piece;
        }
        peer.stream().arrived(n);
      }
    }
    return staged;
  };
  const auto write = [&](std::uint32_t size) {
    me.post_send(SendOp::kWrite, SendFlags::kNone, 1, me.arena().data(), size, peer.whole(),
                 reinterpret_cast<std::uintptr_t>(peer.arena().data()));
  };
  write(500'000);
  EXPECT_GE(me.stream().gather()->bytes, 500'000U) << "nothing is summed, so nothing is waited for";
  EXPECT_GT(move(1U << 20U), 100'000U) << "the first message of all: nobody can know";
  write(500'000);
  EXPECT_LE(move(1U << 20U), 4096U);
  for (int small = 0; small < 10; ++small) write(64);
  (void)move(1U << 20U);
  proto::RxPlan plan;
  peer.stream().want(plan, scratch);
  EXPECT_EQ(plan.bytes, scratch.size()) << "small messages are read many at a time again";
  peer.stream().arrived(0);
}

// A batch that waited at an FPDU border fails: the Terminate takes its place in the stream, with
// its markers where the peer looks for them.
TEST(TransportMarkers, TerminateBehindABatchTakenBackHasItsMarkersInPlace) {
  Endpoint me({.arena_bytes = 1U << 20U, .queue_depth = 16, .secret = 1});
  Endpoint peer({.arena_bytes = 1U << 20U, .queue_depth = 16, .secret = 2});
  proto::StreamParams params = plain_params(true);
  params.tx_markers = true;
  params.max_ulpdu = 1442;
  me.start(params);
  params = plain_params(false);
  params.rx_markers = true;
  peer.start(params);
  const Stag source = me.add_region(me.arena().data(), 4096);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    proto::SendWqe* wqe = me.new_send(SendOp::kWrite, SendFlags::kSignaled, id);
    wqe->remote_stag = peer.whole();
    wqe->remote_to = reinterpret_cast<std::uintptr_t>(peer.arena().data());
    me.add_sge(*wqe, source, me.arena().data(), 700);
    me.commit_send();
  }
  std::vector<std::uint8_t> wire;
  const auto take_all = [&](std::size_t most) {
    TxBatch* batch = me.stream().gather();
    ASSERT_NE(batch, nullptr);
    std::size_t n = std::min(most, batch->bytes - batch->sent);
    const std::size_t taken = n;
    for (std::size_t s = batch->slice_next; n != 0; ++s) {
      const std::size_t piece = std::min(n, batch->slices[s].size);
      wire.insert(wire.end(), batch->slices[s].data, batch->slices[s].data + piece);
      n -= piece;
    }
    me.stream().sent(taken);
    me.stream().released(taken);
  };
  take_all(me.stream().gather()->fpdu_ends[0]);
  ASSERT_TRUE(me.table().remove(source).has_value());
  take_all(100000);
  EXPECT_EQ(me.stream().counters().terminates_sent.get(), 1U);
  peer.stream().feed(wire);
  EXPECT_EQ(peer.stream().counters().terminates_received.get(), 1U);
  EXPECT_TRUE(peer.violations.empty());
}

}  // namespace
}  // namespace weft::testing
