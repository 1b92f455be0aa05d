#include "base/block_heap.h"

#include <bit>
#include <cassert>

namespace weft {

BlockHeap::BlockHeap(std::uint64_t area_bytes, Policy policy)
    : policy_(policy), area_blocks_(static_cast<std::uint32_t>(area_bytes / kBlockBytes)) {
  assert(area_bytes >= kBlockBytes && area_bytes <= kMaxBytes);
  owners_.emplace_back();  // kNoOwner holds the border
  // The gap in front of the first segment belongs to this node.
  Segment& border = new_slot();
  places_.push_back(border);
  set_gap(border, area_blocks_);
}

BlockHeap::~BlockHeap() {
  for (auto& list : gaps_) list.clear();
  for (OwnerEntry& owner : owners_) owner.segments.clear();
  places_.clear();
  tree_.clear();
}

std::uint32_t BlockHeap::class_of(std::uint32_t blocks) {
  if (blocks < kExactClasses) return blocks;
  const unsigned doubling = static_cast<unsigned>(std::bit_width(blocks)) - 1;
  if (doubling >= kLargeDoubling) return kLargeClass;
  const std::uint32_t quarter = (blocks >> (doubling - 2)) & 3U;
  return kExactClasses + (doubling - kFirstDoubling) * 4 + quarter;
}

// The first size class whose gaps all hold `blocks`. The last class has no such promise.
std::uint32_t BlockHeap::class_that_holds(std::uint32_t blocks) {
  const std::uint32_t own = class_of(blocks);
  const bool is_smallest =
      blocks < kExactClasses || own == kLargeClass || class_of(blocks - 1) != own;
  return is_smallest ? own : own + 1;
}

std::uint32_t BlockHeap::next_class_with_gaps(std::uint32_t from) const {
  for (std::size_t word = from / 64; word < classes_with_gaps_.size(); ++word) {
    std::uint64_t bits = classes_with_gaps_[word];
    if (word == from / 64) bits &= ~std::uint64_t{0} << (from % 64);
    if (bits != 0) {
      return static_cast<std::uint32_t>(word * 64 + static_cast<unsigned>(std::countr_zero(bits)));
    }
  }
  return kClasses;
}

BlockHeap::Segment* BlockHeap::any_in(std::uint32_t gap_class, std::uint32_t blocks) {
  for (Segment& segment : gaps_[gap_class]) {
    if (segment.gap_blocks >= blocks) return &segment;
  }
  return nullptr;
}

BlockHeap::Segment* BlockHeap::smallest_in(std::uint32_t gap_class, std::uint32_t blocks) {
  Segment* best = nullptr;
  for (Segment& segment : gaps_[gap_class]) {
    if (segment.gap_blocks < blocks) continue;
    if (best == nullptr || segment.gap_blocks < best->gap_blocks) best = &segment;
    if (best->gap_blocks == blocks) break;
  }
  return best;
}

BlockHeap::Segment* BlockHeap::find_gap(std::uint32_t blocks) {
  const std::uint32_t own = class_of(blocks);
  if (policy_ == Policy::kTight) {
    if (Segment* found = smallest_in(own, blocks)) return found;
    const std::uint32_t next = next_class_with_gaps(own + 1);
    return next < kClasses ? smallest_in(next, blocks) : nullptr;
  }
  const std::uint32_t sure = next_class_with_gaps(class_that_holds(blocks));
  if (sure < kLargeClass) return &gaps_[sure].front();
  if (sure == kLargeClass) {
    if (Segment* found = any_in(kLargeClass, blocks)) return found;
  }
  return own == kLargeClass ? nullptr : any_in(own, blocks);
}

BlockHeap::Place BlockHeap::find_place(std::uint32_t blocks, std::uint32_t align_blocks) {
  const std::uint64_t with_slack = std::uint64_t{blocks} + align_blocks - 1;
  Segment* before =
      with_slack <= area_blocks_ ? find_gap(static_cast<std::uint32_t>(with_slack)) : nullptr;
  if (before == nullptr) {
    return align_blocks > 1 ? find_exact_place(blocks, align_blocks) : Place{};
  }
  const std::uint32_t start = before->first + before->blocks;
  return {before, (start + align_blocks - 1) / align_blocks * align_blocks};
}

// Searches every gap for one that fits exactly at this alignment. Slow: only when memory is short.
BlockHeap::Place BlockHeap::find_exact_place(std::uint32_t blocks, std::uint32_t align_blocks) {
  for (std::uint32_t c = next_class_with_gaps(class_of(blocks)); c < kClasses;
       c = next_class_with_gaps(c + 1)) {
    for (Segment& segment : gaps_[c]) {
      const std::uint64_t start = segment.first + segment.blocks;
      const std::uint64_t first = (start + align_blocks - 1) / align_blocks * align_blocks;
      if (first + blocks <= start + segment.gap_blocks) {
        return {&segment, static_cast<std::uint32_t>(first)};
      }
    }
  }
  return {};
}

void BlockHeap::set_gap(Segment& segment, std::uint32_t blocks) {
  if (segment.gap_blocks != 0) {
    const std::uint32_t old = class_of(segment.gap_blocks);
    gaps_[old].erase(gaps_[old].iterator_to(segment));
    if (gaps_[old].empty()) classes_with_gaps_[old / 64] &= ~(std::uint64_t{1} << (old % 64));
  }
  segment.gap_blocks = blocks;
  if (blocks == 0) return;
  const std::uint32_t now = class_of(blocks);
  gaps_[now].push_front(segment);  // the memory freed last is the warmest
  classes_with_gaps_[now / 64] |= std::uint64_t{1} << (now % 64);
}

BlockHeap::Segment& BlockHeap::new_slot() {
  if (!unused_slots_.empty()) {
    Segment& segment = slots_[unused_slots_.back()];
    unused_slots_.pop_back();
    return segment;
  }
  Segment& segment = slots_.emplace_back();
  segment.index = static_cast<std::uint32_t>(slots_.size() - 1);
  return segment;
}

BlockHeap::Handle BlockHeap::handle_of(const Segment& segment) {
  return std::uint64_t{segment.generation} << 32U | segment.index;
}

// Cuts the gap of `place.before` in up to three: free, `segment`, free.
void BlockHeap::link(Segment& segment, const Place& place, std::uint32_t blocks) {
  Segment& before = *place.before;
  const std::uint32_t start = before.first + before.blocks;
  const std::uint32_t end = start + before.gap_blocks;
  segment.first = place.first;
  segment.blocks = blocks;
  const auto next = std::next(places_.iterator_to(before));
  // The neighbor in the list is the neighbor in the tree, which saves the descent.
  tree_.insert_before(next == places_.end() ? tree_.end() : tree_.iterator_to(*next), segment);
  places_.insert(next, segment);
  set_gap(before, place.first - start);
  set_gap(segment, end - place.first - blocks);
}

// Its blocks and the gap behind it become part of the gap in front.
void BlockHeap::unlink(Segment& segment) {
  const auto at = places_.iterator_to(segment);
  Segment& before = *std::prev(at);
  const std::uint32_t freed = segment.blocks + segment.gap_blocks;
  set_gap(segment, 0);
  set_gap(before, before.gap_blocks + freed);
  places_.erase(at);
  tree_.erase(tree_.iterator_to(segment));
}

BlockHeap::OwnerEntry* BlockHeap::owner_entry(Owner owner) {
  if (owner == kNoOwner || owner >= owners_.size() || !owners_[owner].known) return nullptr;
  return &owners_[owner];
}

BlockHeap::Owner BlockHeap::add_owner(std::uint64_t limit_bytes) {
  Owner owner = 0;
  if (!unused_owners_.empty()) {
    owner = unused_owners_.back();
    unused_owners_.pop_back();
  } else {
    owner = static_cast<Owner>(owners_.size());
    owners_.emplace_back();
  }
  owners_[owner].known = true;
  owners_[owner].limit_blocks = limit_bytes / kBlockBytes;
  return owner;
}

std::size_t BlockHeap::remove_owner(Owner owner) {
  OwnerEntry* entry = owner_entry(owner);
  if (entry == nullptr) return 0;
  const std::size_t count = entry->segments.size();
  while (!entry->segments.empty()) {
    const Status freed = free(owner, handle_of(entry->segments.front()));
    assert(freed);
    static_cast<void>(freed);
  }
  entry->known = false;
  unused_owners_.push_back(owner);
  return count;
}

Result<BlockHeap::Handle> BlockHeap::allocate(Owner owner, std::uint64_t bytes,
                                              unsigned align_log2) {
  OwnerEntry* entry = owner_entry(owner);
  if (bytes == 0 || align_log2 > kMaxAlignLog2 || entry == nullptr) {
    return fail(Error::kInvalidArgument);
  }
  if (bytes > std::uint64_t{area_blocks_} * kBlockBytes) return fail(Error::kNoMemory);
  const auto blocks = static_cast<std::uint32_t>((bytes + kBlockBytes - 1) / kBlockBytes);
  if (entry->held_blocks + blocks > entry->limit_blocks) return fail(Error::kLimitExceeded);
  const std::uint64_t align_bytes = std::uint64_t{1} << align_log2;
  const auto align_blocks =
      static_cast<std::uint32_t>(align_bytes <= kBlockBytes ? 1 : align_bytes / kBlockBytes);
  const Place place = find_place(blocks, align_blocks);
  if (place.before == nullptr) return fail(Error::kNoMemory);

  Segment& segment = new_slot();
  ++segment.generation;
  segment.owner = owner;
  segment.asked_bytes = bytes;
  link(segment, place, blocks);
  entry->segments.push_back(segment);
  entry->held_blocks += blocks;
  held_blocks_ += blocks;
  asked_bytes_ += bytes;
  return handle_of(segment);
}

const BlockHeap::Segment* BlockHeap::find(Owner owner, Handle handle) const {
  const auto index = static_cast<std::uint32_t>(handle);
  const auto generation = static_cast<std::uint32_t>(handle >> 32U);
  if (index >= slots_.size() || generation % 2 == 0) return nullptr;
  const Segment& segment = slots_[index];
  if (segment.generation != generation || segment.owner != owner) return nullptr;
  return &segment;
}

Status BlockHeap::free(Owner owner, Handle handle) {
  const Segment* found = find(owner, handle);
  if (found == nullptr) return fail(Error::kNotFound);
  Segment& segment = slots_[found->index];
  OwnerEntry& entry = owners_[owner];
  entry.segments.erase(entry.segments.iterator_to(segment));
  entry.held_blocks -= segment.blocks;
  held_blocks_ -= segment.blocks;
  asked_bytes_ -= segment.asked_bytes;
  unlink(segment);
  ++segment.generation;
  segment.owner = kNoOwner;
  unused_slots_.push_back(segment.index);
  return {};
}

Result<BlockHeap::Extent> BlockHeap::extent(Owner owner, Handle handle) const {
  const Segment* segment = find(owner, handle);
  if (segment == nullptr) return fail(Error::kNotFound);
  return Extent{std::uint64_t{segment->first} * kBlockBytes, segment->asked_bytes};
}

Result<BlockHeap::Handle> BlockHeap::holder_of(std::uint64_t offset) const {
  if (offset / kBlockBytes >= area_blocks_) return fail(Error::kNotFound);
  const auto block = static_cast<std::uint32_t>(offset / kBlockBytes);
  auto after = tree_.upper_bound(block);
  if (after == tree_.begin()) return fail(Error::kNotFound);
  const Segment& segment = *--after;
  if (block - segment.first >= segment.blocks) return fail(Error::kNotFound);
  return handle_of(segment);
}

BlockHeap::Stats BlockHeap::stats() const {
  Stats out;
  out.area_bytes = std::uint64_t{area_blocks_} * kBlockBytes;
  out.asked_bytes = asked_bytes_;
  out.held_bytes = held_blocks_ * kBlockBytes;
  out.segments = tree_.size();
  for (const Segment& segment : places_) {
    if (segment.gap_blocks == 0) continue;
    ++out.gaps;
    out.largest_gap_bytes =
        std::max(out.largest_gap_bytes, std::uint64_t{segment.gap_blocks} * kBlockBytes);
  }
  return out;
}

bool BlockHeap::consistent() const {
  std::uint64_t at = 0;
  std::uint64_t held = 0;
  std::size_t gaps = 0;
  auto node = tree_.begin();
  for (const Segment& segment : places_) {
    if (segment.first != at) return false;
    if (segment.blocks != 0) {
      if (node == tree_.end() || &*node != &segment || !owners_[segment.owner].known) return false;
      ++node;
    }
    at += std::uint64_t{segment.blocks} + segment.gap_blocks;
    held += segment.blocks;
    gaps += segment.gap_blocks != 0 ? 1U : 0U;
    // A segment right behind a gap's end must begin there: `at` says so in the next round.
  }
  for (std::uint32_t c = 0; c < kClasses; ++c) {
    const bool marked = (classes_with_gaps_[c / 64] >> (c % 64) & 1U) != 0;
    if (marked == gaps_[c].empty()) return false;
    for (const Segment& segment : gaps_[c]) {
      if (segment.gap_blocks == 0 || class_of(segment.gap_blocks) != c || gaps-- == 0) return false;
    }
  }
  return at == area_blocks_ && node == tree_.end() && gaps == 0 && held == held_blocks_;
}

}  // namespace weft
