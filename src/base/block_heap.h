// The allocator of a fixed area of device memory, after the heap that OPIOM kept for the on-board
// memory of a Myrinet adapter.
//
// It deals in offsets only; the area itself belongs to the caller. The unit is a block of 512
// octets. Allocated segments are nodes of an AVL tree and of a list, both in the order of their
// place. A free segment has no node of its own: it is the gap behind an allocated one and hangs on
// that node, so that freeing merges both neighbors in constant time. Gaps are found by size class;
// the largest share one list.
//
// Users get handles, never places. Each segment has an owner; a handle used by another owner is
// refused, and an owner that goes gives everything back.
//
// Not thread-safe: the caller serializes. No system call, no clock.
#pragma once

#include <weft/result.h>

#include <array>
#include <boost/intrusive/avl_set.hpp>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <deque>
#include <vector>

namespace weft {

class BlockHeap {
 public:
  static constexpr std::uint64_t kBlockBytes = 512;
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40U;  // of the area
  static constexpr unsigned kMaxAlignLog2 = 21;                        // a huge page

  // The gap that a search prefers.
  enum class Policy : std::uint8_t {
    kFast,   // any gap that is large enough, found in constant time where one class fits whole
    kTight,  // the smallest gap that is large enough; searches the lists of two classes
  };

  using Handle = std::uint64_t;  // never 0; not reused before 2^32 other uses of its slot
  using Owner = std::uint32_t;

  // Where a segment lies. `offset` is a multiple of kBlockBytes.
  struct Extent {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;  // as asked for
  };
  struct Stats {
    std::uint64_t area_bytes = 0;
    std::uint64_t asked_bytes = 0;  // what the users asked for
    std::uint64_t held_bytes = 0;   // ... rounded up to blocks
    std::uint64_t largest_gap_bytes = 0;
    std::size_t segments = 0;
    std::size_t gaps = 0;
  };

  // REQUIRES: kBlockBytes <= area_bytes <= kMaxBytes. A last part of a block is not used.
  explicit BlockHeap(std::uint64_t area_bytes, Policy policy = Policy::kFast);
  BlockHeap(const BlockHeap&) = delete;
  BlockHeap& operator=(const BlockHeap&) = delete;
  ~BlockHeap();

  // A new owner, who may hold up to `limit_bytes` (in blocks).
  [[nodiscard]] Owner add_owner(std::uint64_t limit_bytes = kMaxBytes);
  // Frees all that the owner holds, and forgets the owner. Returns how many segments that were; 0
  // for an owner that is not known.
  std::size_t remove_owner(Owner owner);

  // A segment of `bytes`, whose offset is a multiple of 2^align_log2 (and of a block).
  //   kInvalidArgument  0 bytes, an alignment above kMaxAlignLog2, or no such owner
  //   kLimitExceeded    the owner's limit would be passed
  //   kNoMemory         no gap is large enough
  [[nodiscard]] Result<Handle> allocate(Owner owner, std::uint64_t bytes, unsigned align_log2 = 0);

  //   kNotFound    no such segment (any more), or it is another owner's; nothing changed
  [[nodiscard]] Status free(Owner owner, Handle handle);
  [[nodiscard]] Result<Extent> extent(Owner owner, Handle handle) const;

  // The segment that holds the octet at `offset`.   kNotFound: that octet is free
  [[nodiscard]] Result<Handle> holder_of(std::uint64_t offset) const;

  // Walks all gaps for largest_gap_bytes: for reports, not for the data path.
  [[nodiscard]] Stats stats() const;

  // Walks everything and compares tree, lists and sums: for tests.
  [[nodiscard]] bool consistent() const;

 private:
  // Gaps of 1..63 blocks have a class each; then there are four classes to a doubling, up to
  // 2^20 blocks (512 MiB); the rest share the last one.
  static constexpr std::uint32_t kExactClasses = 64;
  static constexpr unsigned kFirstDoubling = 6;
  static constexpr unsigned kLargeDoubling = 20;
  static constexpr std::uint32_t kLargeClass =
      kExactClasses + (kLargeDoubling - kFirstDoubling) * 4;
  static constexpr std::uint32_t kClasses = kLargeClass + 1;
  static constexpr std::uint32_t kNoOwner = 0;

  using AvlHook = boost::intrusive::avl_set_member_hook<>;
  using ListHook = boost::intrusive::list_member_hook<>;

  struct Segment {
    AvlHook by_offset;  // in tree_
    ListHook by_place;  // in places_
    ListHook by_owner;  // in its owner's list
    ListHook by_gap;    // in gaps_, while there is a gap
    std::uint64_t asked_bytes = 0;
    std::uint32_t first = 0;       // block
    std::uint32_t blocks = 0;      // 0: the border in front of the area
    std::uint32_t gap_blocks = 0;  // free ones behind this segment
    std::uint32_t index = 0;       // of this slot
    std::uint32_t generation = 0;  // odd while allocated
    Owner owner = kNoOwner;
  };
  struct ByOffset {
    using type = std::uint32_t;
    type operator()(const Segment& segment) const { return segment.first; }
  };
  template <ListHook Segment::*kHook, bool kConstantSize>
  using ListOf =
      boost::intrusive::list<Segment, boost::intrusive::member_hook<Segment, ListHook, kHook>,
                             boost::intrusive::constant_time_size<kConstantSize>>;
  using Tree = boost::intrusive::avl_set<
      Segment, boost::intrusive::member_hook<Segment, AvlHook, &Segment::by_offset>,
      boost::intrusive::key_of_value<ByOffset>>;
  using OwnerList = ListOf<&Segment::by_owner, true>;

  struct OwnerEntry {
    OwnerList segments;
    std::uint64_t limit_blocks = 0;
    std::uint64_t held_blocks = 0;
    bool known = false;
  };

  // A place inside the gap behind `before`.
  struct Place {
    Segment* before = nullptr;
    std::uint32_t first = 0;
  };

  [[nodiscard]] static std::uint32_t class_of(std::uint32_t blocks);
  [[nodiscard]] static std::uint32_t class_that_holds(std::uint32_t blocks);
  [[nodiscard]] std::uint32_t next_class_with_gaps(std::uint32_t from) const;
  [[nodiscard]] Segment* find_gap(std::uint32_t blocks);
  [[nodiscard]] Segment* smallest_in(std::uint32_t gap_class, std::uint32_t blocks);
  [[nodiscard]] Segment* any_in(std::uint32_t gap_class, std::uint32_t blocks);
  [[nodiscard]] Place find_place(std::uint32_t blocks, std::uint32_t align_blocks);
  [[nodiscard]] Place find_exact_place(std::uint32_t blocks, std::uint32_t align_blocks);
  void set_gap(Segment& segment, std::uint32_t blocks);
  [[nodiscard]] Segment& new_slot();
  void link(Segment& segment, const Place& place, std::uint32_t blocks);
  void unlink(Segment& segment);
  [[nodiscard]] OwnerEntry* owner_entry(Owner owner);
  [[nodiscard]] const Segment* find(Owner owner, Handle handle) const;
  [[nodiscard]] static Handle handle_of(const Segment& segment);

  Policy policy_;
  std::uint32_t area_blocks_;
  std::uint64_t asked_bytes_ = 0;
  std::uint64_t held_blocks_ = 0;
  std::deque<Segment> slots_;  // a deque: nodes must not move
  std::vector<std::uint32_t> unused_slots_;
  std::deque<OwnerEntry> owners_;  // index: Owner
  std::vector<Owner> unused_owners_;
  std::array<ListOf<&Segment::by_gap, false>, kClasses> gaps_;
  std::array<std::uint64_t, (kClasses + 63) / 64> classes_with_gaps_{};
  ListOf<&Segment::by_place, true> places_;
  Tree tree_;
};

}  // namespace weft
