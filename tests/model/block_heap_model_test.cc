// The heap of device memory against a naive one: a map of segments and a bit for each block.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "../sim/rng.h"
#include "../sim/seeds.h"
#include "base/block_heap.h"

namespace weft {
namespace {

using testing::for_each_seed;
using testing::Rng;

constexpr std::uint64_t kBlock = BlockHeap::kBlockBytes;

struct Held {
  BlockHeap::Owner owner;
  std::uint64_t first;  // block
  std::uint64_t blocks;
  std::uint64_t bytes;
};

class Model {
 public:
  explicit Model(std::uint64_t blocks) : taken_(blocks, false) {}

  // Whether any aligned run of free blocks is long enough.
  [[nodiscard]] bool has_room(std::uint64_t blocks, std::uint64_t align_blocks) const {
    for (std::uint64_t at = 0; at + blocks <= taken_.size(); at += align_blocks) {
      if (is_free(at, blocks)) return true;
    }
    return false;
  }
  [[nodiscard]] bool is_free(std::uint64_t first, std::uint64_t blocks) const {
    for (std::uint64_t i = first; i < first + blocks; ++i) {
      if (i >= taken_.size() || taken_[i]) return false;
    }
    return true;
  }
  void take(BlockHeap::Handle handle, const Held& held) {
    ASSERT_TRUE(is_free(held.first, held.blocks)) << "handed out twice";
    ASSERT_TRUE(held_.emplace(handle, held).second) << "a handle that is in use";
    mark(held, true);
  }
  void give(BlockHeap::Handle handle) {
    mark(held_.at(handle), false);
    held_.erase(handle);
  }
  [[nodiscard]] const std::map<BlockHeap::Handle, Held>& held() const { return held_; }

 private:
  void mark(const Held& held, bool taken) {
    for (std::uint64_t i = 0; i < held.blocks; ++i) taken_[held.first + i] = taken;
  }
  std::vector<bool> taken_;
  std::map<BlockHeap::Handle, Held> held_;
};

// One heap, one model, four owners.
class Session {
 public:
  Session(std::uint64_t seed, BlockHeap::Policy policy)
      : rng_(seed),
        blocks_(rng_.size(1, 700)),
        heap_(blocks_ * kBlock + 100, policy),
        model_(blocks_) {
    for (auto& owner : owners_) owner = heap_.add_owner();
  }
  void step() {
    const std::uint32_t choice = rng_.u32(0, 99);
    if (choice < 55) return allocate();
    if (choice < 90) return free_one();
    if (choice < 95) return misuse();
    if (choice < 97) return drop_owner();
    look();
  }
  [[nodiscard]] bool consistent() const { return heap_.consistent(); }

 private:
  void allocate() {
    const BlockHeap::Owner owner = owners_[rng_.size(0, owners_.size() - 1)];
    const std::uint64_t bytes =
        rng_.u32(0, 9) == 0 ? rng_.size(1, blocks_ * kBlock + 600) : rng_.size(1, 20 * kBlock);
    const unsigned align = rng_.u32(0, 3) == 0 ? rng_.u32(0, 13) : 0;
    const std::uint64_t need = (bytes + kBlock - 1) / kBlock;
    const std::uint64_t align_blocks =
        std::max<std::uint64_t>(1, (std::uint64_t{1} << align) / kBlock);
    const auto handle = heap_.allocate(owner, bytes, align);
    ASSERT_EQ(handle.has_value(), model_.has_room(need, align_blocks));
    if (!handle) {
      ASSERT_EQ(handle.error(), Error::kNoMemory);
      return;
    }
    const auto extent = heap_.extent(owner, *handle);
    ASSERT_TRUE(extent);
    ASSERT_EQ(extent->bytes, bytes);
    ASSERT_EQ(extent->offset % (align_blocks * kBlock), 0U);
    model_.take(*handle, {owner, extent->offset / kBlock, need, bytes});
  }
  [[nodiscard]] std::pair<BlockHeap::Handle, Held> pick() {
    auto at = model_.held().begin();
    std::advance(at, rng_.size(0, model_.held().size() - 1));
    return *at;
  }
  void free_one() {
    if (model_.held().empty()) return;
    const auto [handle, held] = pick();
    ASSERT_TRUE(heap_.free(held.owner, handle));
    model_.give(handle);
    ASSERT_FALSE(heap_.free(held.owner, handle)) << "freed twice";
    ASSERT_FALSE(heap_.extent(held.owner, handle)) << "a stale handle";
  }
  void misuse() {
    ASSERT_FALSE(heap_.free(owners_[0], rng_.u32(0, 50)));
    ASSERT_EQ(heap_.allocate(owners_[0], 0).error(), Error::kInvalidArgument);
    ASSERT_EQ(heap_.allocate(99, 1).error(), Error::kInvalidArgument);
    ASSERT_EQ(heap_.allocate(owners_[0], 1, BlockHeap::kMaxAlignLog2 + 1).error(),
              Error::kInvalidArgument);
    if (model_.held().empty()) return;
    const auto [handle, held] = pick();
    for (const auto other : owners_) {
      if (other == held.owner) continue;
      ASSERT_EQ(heap_.free(other, handle).error(), Error::kNotFound) << "another owner's segment";
      ASSERT_EQ(heap_.extent(other, handle).error(), Error::kNotFound);
    }
  }
  void drop_owner() {
    auto& owner = owners_[rng_.size(0, owners_.size() - 1)];
    std::vector<BlockHeap::Handle> gone;
    for (const auto& [handle, held] : model_.held()) {
      if (held.owner == owner) gone.push_back(handle);
    }
    ASSERT_EQ(heap_.remove_owner(owner), gone.size());
    for (const auto handle : gone) model_.give(handle);
    ASSERT_EQ(heap_.allocate(owner, 1).error(), Error::kInvalidArgument);
    owner = heap_.add_owner();
  }
  void look() {
    std::uint64_t asked = 0;
    for (const auto& [handle, held] : model_.held()) asked += held.bytes;
    const auto stats = heap_.stats();
    ASSERT_EQ(stats.asked_bytes, asked);
    ASSERT_EQ(stats.segments, model_.held().size());
    const std::uint64_t block = rng_.size(0, blocks_ + 1);
    const auto holder = heap_.holder_of(block * kBlock + 17);
    ASSERT_EQ(holder.has_value(), block < blocks_ && !model_.is_free(block, 1));
    if (!holder) return;
    const Held& held = model_.held().at(*holder);
    ASSERT_TRUE(held.first <= block && block < held.first + held.blocks);
  }

  Rng rng_;
  std::uint64_t blocks_;
  BlockHeap heap_;
  Model model_;
  std::array<BlockHeap::Owner, 4> owners_{};
};

class BlockHeapModel : public ::testing::TestWithParam<BlockHeap::Policy> {};

TEST_P(BlockHeapModel, AgreesWithANaiveHeap) {
  for_each_seed(60, [&](std::uint64_t seed) {
    Session session(seed, GetParam());
    for (int i = 0; i < 1500; ++i) {
      session.step();
      if (::testing::Test::HasFatalFailure()) return;
      if (i % 50 == 0) {
        ASSERT_TRUE(session.consistent());
      }
    }
    ASSERT_TRUE(session.consistent());
  });
}
INSTANTIATE_TEST_SUITE_P(Policies, BlockHeapModel,
                         ::testing::Values(BlockHeap::Policy::kFast, BlockHeap::Policy::kTight));

TEST(BlockHeap, MergesBothNeighborsWhenASegmentIsFreed) {
  BlockHeap heap(10 * kBlock);
  const auto owner = heap.add_owner();
  std::vector<BlockHeap::Handle> handles;
  for (int i = 0; i < 10; ++i) handles.push_back(*heap.allocate(owner, kBlock));
  EXPECT_EQ(heap.allocate(owner, 1).error(), Error::kNoMemory);
  for (const std::size_t i : {3U, 5U, 4U}) EXPECT_TRUE(heap.free(owner, handles[i]));
  EXPECT_EQ(heap.stats().gaps, 1U);
  EXPECT_TRUE(heap.allocate(owner, 3 * kBlock));
  EXPECT_TRUE(heap.consistent());
}

TEST(BlockHeap, AnOwnerStopsAtItsLimit) {
  BlockHeap heap(10 * kBlock);
  const auto owner = heap.add_owner(2 * kBlock);
  EXPECT_TRUE(heap.allocate(owner, 2 * kBlock));
  EXPECT_EQ(heap.allocate(owner, 1).error(), Error::kLimitExceeded);
  EXPECT_TRUE(heap.allocate(heap.add_owner(), 8 * kBlock));
}

TEST(BlockHeap, TakesTheWholeAreaInOnePiece) {
  // Gaps beyond the last class but one, where a list holds different sizes.
  constexpr std::uint64_t kArea = std::uint64_t{3} << 30U;
  BlockHeap heap(kArea);
  const auto owner = heap.add_owner();
  const auto all = heap.allocate(owner, kArea);
  ASSERT_TRUE(all);
  EXPECT_TRUE(heap.free(owner, *all));
  EXPECT_TRUE(heap.allocate(owner, kArea / 3 * 2));
  EXPECT_EQ(heap.allocate(owner, kArea / 2).error(), Error::kNoMemory);
  EXPECT_TRUE(heap.consistent());
}

}  // namespace
}  // namespace weft
