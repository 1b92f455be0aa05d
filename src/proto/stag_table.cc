#include "proto/stag_table.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <limits>
#include <new>

#include "base/cpu_pause.h"
#include "base/mixed_bits.h"

namespace weft::proto {

namespace {

constexpr std::uint32_t kHalfBits = 12;
constexpr std::uint32_t kHalfMask = (1U << kHalfBits) - 1;

// The round function of the permutation. A secret odd multiplier, then the bits that depend on all
// of the input: one multiplication, because resolve() pays for four rounds.
inline std::uint32_t round_bits(std::uint32_t half, std::uint64_t key) {
  const std::uint64_t x = (half + (key >> 32U)) * (key | 1U);
  return static_cast<std::uint32_t>((x >> 52U) ^ (x >> 36U)) & kHalfMask;
}

}  // namespace

StagTable::StagTable(std::uint64_t secret, RandomFn random, std::uint32_t entries_max,
                     std::optional<Arena> memory)
    : random_(random), entries_max_(entries_max), memory_(memory) {
  assert(entries_max <= 1U << kIndexBits);
  for (std::uint64_t& key : round_keys_) key = next_mixed(secret);
  static_assert(std::atomic<MemoryEntry*>::is_always_lock_free &&
                    sizeof(std::atomic<MemoryEntry*>) == sizeof(MemoryEntry*),
                "zero octets are an atomic null pointer");
  const std::size_t count = chunk_count(entries_max);
  if (memory_) {
    chunks_ = memory_->make<std::atomic<MemoryEntry*>>(count);
  } else if (profile::kHeap) {
    chunks_ = static_cast<std::atomic<MemoryEntry*>*>(
        std::calloc(count, sizeof(std::atomic<MemoryEntry*>)));
  }
}

StagTable::~StagTable() {
  if (memory_ || !profile::kHeap) return;
  for (std::uint32_t slot = 0; slot < slots_made_; slot += kChunkEntries) {
    delete[] chunks_[slot / kChunkEntries].load(std::memory_order_relaxed);
  }
  std::free(chunks_);
}

// --- STag and slot ---

std::uint32_t StagTable::permute(std::uint32_t slot) const noexcept {
  std::uint32_t left = slot >> kHalfBits;
  std::uint32_t right = slot & kHalfMask;
  for (const std::uint64_t key : round_keys_) {
    const std::uint32_t next = left ^ round_bits(right, key);
    left = right;
    right = next;
  }
  return left << kHalfBits | right;
}

std::uint32_t StagTable::unpermute(std::uint32_t index) const noexcept {
  std::uint32_t left = index >> kHalfBits;
  std::uint32_t right = index & kHalfMask;
  for (std::size_t round = kRounds; round-- > 0;) {
    const std::uint32_t next = right ^ round_bits(left, round_keys_[round]);
    right = left;
    left = next;
  }
  return left << kHalfBits | right;
}

MemoryEntry& StagTable::entry_at(std::uint32_t slot) const noexcept {
  return chunks_[slot / kChunkEntries].load(std::memory_order_relaxed)[slot % kChunkEntries];
}

MemoryEntry* StagTable::find(Stag stag) const noexcept {
  const std::uint32_t slot = unpermute(stag.index());
  if (slot >= entries_max_ || chunks_ == nullptr) return nullptr;
  MemoryEntry* chunk = chunks_[slot / kChunkEntries].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : chunk + slot % kChunkEntries;
}

// The slot in use whose current key this is. The writer's.
MemoryEntry* StagTable::current(Stag stag) const noexcept {
  MemoryEntry* entry = find(stag);
  if (entry == nullptr || entry->spec.pd == 0 || entry->keys[0] != stag.key()) return nullptr;
  return entry;
}

// --- any thread ---

bool StagTable::pin_entry(Stag stag, Pin& pin, StagHint* hint) const noexcept {
  if (stag.value == 0) return false;
  const bool known = hint != nullptr && hint->stag == stag && hint->entry != nullptr;
  MemoryEntry* entry = known ? hint->entry : find(stag);
  if (entry == nullptr || !pin.acquire(*entry, stag)) return false;
  if (!known && hint != nullptr) *hint = {stag, entry};
  return true;
}

MemoryFault StagTable::resolve(Stag stag, std::uint64_t to, std::uint64_t length, Access need,
                               StreamId who, Pin& pin, std::uint8_t*& at,
                               StagHint* hint) const noexcept {
  assert(length > 0);
  if (!pin.holds(stag) && !pin_entry(stag, pin, hint)) return MemoryFault::kInvalidStag;
  const MemorySpec& spec = pin.entry()->spec;
  if (spec.pd != who.pd || (spec.stream != 0 && spec.stream != who.stream)) {
    return MemoryFault::kNotOfStream;
  }
  if (!has(spec.access, need)) return MemoryFault::kNoRight;
  // A source of Sends and Writes needs no right, but octets to read.
  if (need == Access::kNone && has(spec.access, kByMethod) && !has(spec.access, kGives)) {
    return MemoryFault::kNoRight;
  }
  if (length - 1 > std::numeric_limits<std::uint64_t>::max() - to) return MemoryFault::kWrap;
  const std::uint64_t offset = to - spec.base;
  if (to < spec.base || offset > spec.length || length > spec.length - offset) {
    return MemoryFault::kBounds;
  }
  at = spec.addr + offset;
  return MemoryFault::kNone;
}

// --- one writer at a time ---

bool StagTable::add_chunk() {
  auto* chunk = memory_ || !profile::kHeap ? memory_->make<MemoryEntry>(kChunkEntries)
                                           : new (std::nothrow) MemoryEntry[kChunkEntries];
  if (chunk == nullptr) return false;
  chunks_[slots_made_ / kChunkEntries].store(chunk, std::memory_order_release);
  return true;
}

Result<std::uint32_t> StagTable::take_slot() {
  if (chunks_ == nullptr) return fail(Error::kNoMemory);
  const bool can_grow = slots_made_ < entries_max_;
  const std::uint32_t waits = reuses_ ? 0 : kFreeMin;
  if (can_grow && free_count_ <= waits && (slots_made_ % kChunkEntries != 0 || add_chunk())) {
    ++used_;
    return slots_made_++;
  }
  if (free_count_ == 0) return fail(can_grow ? Error::kNoMemory : Error::kLimitExceeded);
  const std::uint32_t slot = free_head_;
  MemoryEntry& entry = entry_at(slot);
  free_head_ = entry.windows;
  entry.windows = 0;
  --free_count_;
  ++used_;
  return slot;
}

void StagTable::give_slot(std::uint32_t slot) {
  MemoryEntry& entry = entry_at(slot);
  entry.spec = {};
  entry.is_window = false;
  entry.windows = 0;
  if (reuses_) {
    entry.windows = free_head_;
    free_head_ = slot;
  } else {
    (free_count_ == 0 ? free_head_ : entry_at(free_tail_).windows) = slot;
    free_tail_ = slot;
  }
  ++free_count_;
  --used_;
}

// A key this slot has not had lately; and STag 0 is never made, it means "none".
std::uint8_t StagTable::renew_key(std::uint32_t slot) {
  auto& keys = entry_at(slot).keys;
  const bool zero_allowed = permute(slot) != 0;
  auto key = static_cast<std::uint8_t>(random_());
  while (std::ranges::find(keys, key) != keys.end() || (key == 0 && !zero_allowed)) ++key;
  keys = {key, keys[0], keys[1]};
  return key;
}

Result<Stag> StagTable::add(const MemorySpec& spec) {
  assert(spec.pd != 0);
  const auto slot = take_slot();
  if (!slot) return fail(slot.error());
  MemoryEntry& entry = entry_at(*slot);
  entry.spec = spec;
  const std::uint8_t before = entry.keys[0];  // 0: perhaps it has had none
  const Stag stag = Stag::of(permute(*slot), reuses_ && before != 0 ? before : renew_key(*slot));
  entry.stag.store(stag.value, std::memory_order_release);
  return stag;
}

Result<Stag> StagTable::allocate_window(std::uint32_t pd) {
  assert(pd != 0);
  const auto slot = take_slot();
  if (!slot) return fail(slot.error());
  MemoryEntry& entry = entry_at(*slot);
  entry.spec.pd = pd;
  entry.is_window = true;
  return Stag::of(permute(*slot), renew_key(*slot));
}

Status StagTable::bind(Stag stag, Stag region_stag, const MemorySpec& spec) {
  MemoryEntry* window = find(stag);
  if (window == nullptr || !window->is_window) return fail(Error::kNotFound);
  if (window->stag.load(std::memory_order_relaxed) != 0 || window->region != nullptr) {
    return fail(Error::kBusy);
  }
  MemoryEntry* region = current(region_stag);
  if (region == nullptr || region->is_window ||
      region->stag.load(std::memory_order_relaxed) != region_stag.value) {
    return fail(Error::kNotFound);
  }
  const bool writable =
      has(spec.access, Access::kRemoteWrite) || has(spec.access, Access::kRemoteAtomic);
  const Access need = writable ? Access::kBindWindow | Access::kLocalWrite : Access::kBindWindow;
  const MemorySpec& whole = region->spec;
  if (!has(whole.access, need) || whole.pd != window->spec.pd) return fail(Error::kPermission);
  const std::uintptr_t offset =
      reinterpret_cast<std::uintptr_t>(spec.addr) - reinterpret_cast<std::uintptr_t>(whole.addr);
  if (spec.length == 0 || offset > whole.length || spec.length > whole.length - offset ||
      stag.key() == window->keys[0] || stag.value == 0) {
    return fail(Error::kInvalidArgument);
  }
  const std::uint32_t pd = window->spec.pd;
  window->spec = spec;
  window->spec.pd = pd;
  if (has(spec.access, Access::kZeroBased)) window->spec.base = 0;
  window->keys = {stag.key(), window->keys[0], window->keys[1]};
  window->region = region;
  ++region->windows;
  window->stag.store(stag.value, std::memory_order_release);
  return {};
}

Result<bool> StagTable::revoke(Stag stag) {
  MemoryEntry* entry = current(stag);
  if (entry == nullptr) return fail(Error::kNotFound);
  if (entry->windows != 0) return fail(Error::kBusy);
  // Sequentially consistent, as Pin::acquire is: either it sees the STag gone, or we see its pin.
  entry->stag.store(0, std::memory_order_seq_cst);
  if (entry->pins.load(std::memory_order_seq_cst) != 0) return false;
  // Only now: a region that has no windows any more may go, and its memory with it.
  if (entry->region != nullptr) --entry->region->windows;
  entry->region = nullptr;
  return true;
}

void StagTable::give_back(Stag stag) {
  assert(current(stag) != nullptr && find(stag)->stag.load(std::memory_order_relaxed) == 0);
  give_slot(unpermute(stag.index()));
}

Status StagTable::invalidate(Stag stag) {
  for (;;) {
    const Result<bool> ended = revoke(stag);
    if (!ended) return fail(ended.error());
    if (*ended) return {};
    cpu_pause();
  }
}

Status StagTable::remove(Stag stag) {
  if (const Status done = invalidate(stag); !done) return done;
  give_back(stag);
  return {};
}

Stored fetch(const MemoryEntry& entry, std::uint64_t to, std::span<std::uint8_t> out) {
  const auto& method = *reinterpret_cast<const MemoryMethod*>(entry.spec.addr);
  const int result = method.get(method.context, to, out.data(), out.size());
  if (result == kStoreLater) return Stored::kLater;
  return result == 0 ? Stored::kAll : Stored::kRefused;
}

Stored store_by_method(const MemoryEntry& entry, std::uint64_t to, MarkedOctets& payload,
                       std::size_t size) {
  const auto& method = *reinterpret_cast<const MemoryMethod*>(entry.spec.addr);
  std::uint8_t run[kMarkerInterval];
  while (size != 0) {
    MarkedOctets rest = payload;
    std::size_t n = std::min(rest.front().size(), size);
    const std::uint8_t* octets = rest.front().data();
    if (n == size) {
      rest.drop(n);
    } else {  // a marker is due
      n = std::min(size, sizeof run);
      rest.move_to(run, n);
      octets = run;
    }
    const int result = method.set(method.context, to, octets, n);
    if (result == kStoreLater && method.may_wait) return Stored::kLater;
    if (result != 0) return Stored::kRefused;
    payload = rest;
    to += n;
    size -= n;
  }
  return Stored::kAll;
}

}  // namespace weft::proto
