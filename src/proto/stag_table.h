// The STag table: which memory a peer, or a local SGE, may reach. RFC 5041 7, RFC 5042 6.
//
// Readers (find, resolve, Pin) run on any thread without a lock, while one writer at a time (the
// owner serializes add, allocate, bind, revoke, ...) changes the table. Invalidation waits until
// nobody is touching the memory, so it is final when it returns. A writer that must not wait with
// its lock held calls revoke() until that says so.
//
// STags cannot be guessed: the index is a keyed permutation of the slot number, the 8-bit key is
// random, and a freed slot waits behind all other free slots before it is used again (but for
// reuse_at_once()).
#pragma once

#include <weft/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/arena.h"
#include "base/cache_line.h"
#include "base/profile.h"
#include "base/result.h"
#include "base/seq.h"
#include "proto/marked.h"

namespace weft::proto {

// A stream that asks for memory, and its protection domain. Numbers are never 0.
struct StreamId {
  std::uint32_t pd = 0;
  std::uint32_t stream = 0;
};

using weft::MemoryFault;

struct MemorySpec {
  std::uint8_t* addr = nullptr;
  std::uint64_t length = 0;  // bytes
  std::uint64_t base = 0;    // TO of the first byte
  Access access = Access::kNone;
  std::uint32_t pd = 0;
  std::uint32_t stream = 0;  // 0: any stream of the domain
};

// Memory that is not memory: what is placed there goes to a function. `set` stores `count` octets
// at tagged offset `to`; anything but 0 is a fault of bounds. With `may_wait` it may also say
// kStoreLater: it has stored none of them, and is to be asked again. Nothing more is read from the
// peer until then. Not on transports that feed().
struct MemoryMethod {
  int (*set)(void* context, std::uint64_t to, const std::uint8_t* octets, std::size_t count);
  void* context = nullptr;
  bool may_wait = false;
  // The other way, for memory with kGives: fills `octets` with `count` of them from `to` on. 0,
  // kStoreLater (whatever may_wait says), or anything else for a failure.
  int (*get)(void* context, std::uint64_t to, std::uint8_t* octets, std::size_t count) = nullptr;
};
inline constexpr int kStoreLater = -1;
// MemorySpec::addr is the address of a MemoryMethod. Such memory is written to by store(). With
// kGives it may be a source too, by fetch().
inline constexpr Access kByMethod = static_cast<Access>(1U << 31U);
inline constexpr Access kGives = static_cast<Access>(1U << 30U);

// The outcome for octets that were to be stored.
enum class Stored : std::uint8_t {
  kAll,
  kLater,    // not all: the rest is to come again
  kRefused,  // the method's fault
};

struct MemoryEntry;
[[nodiscard]] Stored store_by_method(const MemoryEntry& entry, std::uint64_t to,
                                     MarkedOctets& payload, std::size_t size);

// One cache line, so that streams using different entries do not disturb each other.
struct alignas(kCacheLineBytes) MemoryEntry {
  std::atomic<std::uint32_t> stag{0};  // 0: not valid; written last when enabling, first when not
  std::atomic<std::uint32_t> pins{0};  // accesses in progress
  MemorySpec spec;                     // pd 0: the slot is free

  // The writer's.
  bool is_window = false;
  std::array<std::uint8_t, 3> keys{};  // the current one and those before it
  std::uint32_t windows = 0;           // bound to this region. Free slot: the next in the queue
  MemoryEntry* region = nullptr;       // of a window, until all access by its last bind has ended
};
static_assert(profile::kSmall || sizeof(void*) != 8 || sizeof(MemoryEntry) == kCacheLineBytes);

// Holds one entry against invalidation. Movable value; empty by default.
class Pin {
 public:
  Pin() = default;
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  Pin(Pin&& o) noexcept : entry_(o.entry_), stag_(o.stag_) { o.entry_ = nullptr; }
  Pin& operator=(Pin&& o) noexcept {
    if (this != &o) {
      release();
      entry_ = o.entry_;
      stag_ = o.stag_;
      o.entry_ = nullptr;
    }
    return *this;
  }
  ~Pin() { release(); }

  // True if the entry was valid under this very STag; then it stays so until release().
  bool acquire(MemoryEntry& entry, Stag stag) noexcept {
    release();
    entry.pins.fetch_add(1, std::memory_order_seq_cst);
    if (entry.stag.load(std::memory_order_seq_cst) != stag.value) {
      entry.pins.fetch_sub(1, std::memory_order_release);
      return false;
    }
    entry_ = &entry;
    stag_ = stag;
    return true;
  }
  void release() noexcept {
    if (entry_ == nullptr) return;
    entry_->pins.fetch_sub(1, std::memory_order_release);
    entry_ = nullptr;
  }
  [[nodiscard]] const MemoryEntry* entry() const noexcept { return entry_; }
  [[nodiscard]] bool holds(Stag stag) const noexcept { return entry_ != nullptr && stag_ == stag; }
  [[nodiscard]] bool holds_any() const noexcept { return entry_ != nullptr; }
  // The STag of the entry that it holds, or held last.
  [[nodiscard]] Stag stag() const noexcept { return stag_; }

 private:
  MemoryEntry* entry_ = nullptr;
  Stag stag_;
};

// Where a reader found an STag last. Slots stay where they are as long as the table lives, so it
// may be of no use but is never wrong. For one table.
struct StagHint {
  Stag stag;
  MemoryEntry* entry = nullptr;
};

// Moves the first `size` octets of `payload` to tagged offset `to`, which resolve() found at `at`.
// What has been stored is no longer in `payload`.
[[nodiscard]] inline Stored store(const MemoryEntry& entry, std::uint64_t to, std::uint8_t* at,
                                  MarkedOctets& payload, std::size_t size) {
  if (has(entry.spec.access, kByMethod)) [[unlikely]] {
    return store_by_method(entry, to, payload, size);
  }
  payload.move_to(at, size);
  return Stored::kAll;
}

// Octets of memory that is by method, from tagged offset `to` on. kAll: `out` is filled.
// REQUIRES: kByMethod and kGives; resolve() allowed the range.
[[nodiscard]] Stored fetch(const MemoryEntry& entry, std::uint64_t to, std::span<std::uint8_t> out);

class StagTable {
 public:
  // `secret` keys the permutation; `random` gives bits nobody can guess (called by writers only).
  // REQUIRES: entries_max <= 2^24. Without memory for the index, add() gives kNoMemory.
  using RandomFn = std::uint32_t (*)();
  // `memory`: the caller's, of memory_needed() octets, which outlives the table; none: the heap.
  StagTable(std::uint64_t secret, RandomFn random, std::uint32_t entries_max,
            std::optional<Arena> memory = {});
  static constexpr std::size_t memory_needed(std::uint32_t entries_max) noexcept {
    const std::size_t chunks = chunk_count(entries_max);
    return arena_bytes<std::atomic<MemoryEntry*>>(chunks) +
           chunks * arena_bytes<MemoryEntry>(kChunkEntries);
  }
  ~StagTable();
  StagTable(const StagTable&) = delete;
  StagTable& operator=(const StagTable&) = delete;

  // --- any thread ---

  // False: there was no memory for the index.
  [[nodiscard]] bool has_index() const noexcept { return chunks_ != nullptr; }

  // The slot of this STag, valid or not; null if there never was one.
  [[nodiscard]] MemoryEntry* find(Stag stag) const noexcept;

  // Pins `stag` (if `pin` does not hold it already) and checks [to, to + length) for `need`. On
  // success `at` is the address of the first byte; it is good until the pin is released. A caller
  // that asks for the same STag again and again keeps a `hint`.
  // REQUIRES: length > 0.
  [[nodiscard]] MemoryFault resolve(Stag stag, std::uint64_t to, std::uint64_t length, Access need,
                                    StreamId who, Pin& pin, std::uint8_t*& at,
                                    StagHint* hint = nullptr) const noexcept;

  // --- one writer at a time ---

  //   kLimitExceeded   the table is full
  //   kNoMemory
  [[nodiscard]] Result<Stag> add(const MemorySpec& spec);

  // A slot for a window, not valid until bound. The STag's key may be changed at each bind.
  [[nodiscard]] Result<Stag> allocate_window(std::uint32_t pd);

  // Makes the window valid as `stag` (same index as allocated, any key).
  // `spec.pd` is ignored: that of the window stays. With kZeroBased `spec.base` is ignored and 0.
  //   kNotFound         no such window, or no such region that is valid
  //   kBusy             the window is valid now, or access by its last bind is under way:
  //                     invalidate it first
  //   kPermission       the region lacks kBindWindow, or kLocalWrite for a window that can be
  //                     written, or is of another domain
  //   kInvalidArgument  empty or outside the region, or the key did not change
  [[nodiscard]] Status bind(Stag stag, Stag region, const MemorySpec& spec);

  // Ends access under this STag; the slot stays allocated. Does not wait: false while access that
  // began before is under way (no new one begins). Then ask again; other changes of the table may
  // come between. Not an error if the STag was invalid already.
  // REQUIRES: the calling thread holds no Pin on it.
  //   kNotFound   no such slot, or the key is not the current one
  //   kBusy       windows are bound to it
  [[nodiscard]] Result<bool> revoke(Stag stag);

  // Frees the slot for (late) reuse. REQUIRES: revoke() said true, and nothing has made the STag
  // valid since.
  void give_back(Stag stag);

  // revoke() until it says true: spins while others touch the memory.   kNotFound, kBusy
  [[nodiscard]] Status invalidate(Stag stag);

  // Invalidates, and gives back the slot.   kNotFound, kBusy
  [[nodiscard]] Status remove(Stag stag);

#ifdef WEFT_PROFILE_SMALL
  static constexpr bool reuses_ = false;
#else
  // For tests: a slot that is given back is the next one, and a region in it has the same STag.
  void reuse_at_once() noexcept { reuses_ = true; }
#endif

  [[nodiscard]] std::uint32_t used() const noexcept { return used_; }

 private:
  static constexpr std::uint32_t kChunkEntries = profile::kStagChunk;
  static constexpr std::uint32_t kIndexBits = 24;
  static constexpr std::uint32_t kFreeMin =
      profile::kStagReuseDelay;  // a freed slot waits behind so many others
  static constexpr std::size_t kRounds = 4;

  static constexpr std::size_t chunk_count(std::uint32_t entries_max) noexcept {
    const std::size_t count = (std::size_t{entries_max} + kChunkEntries - 1) / kChunkEntries;
    return count == 0 ? 1 : count;
  }
  [[nodiscard]] bool pin_entry(Stag stag, Pin& pin, StagHint* hint) const noexcept;
  [[nodiscard]] std::uint32_t permute(std::uint32_t slot) const noexcept;
  [[nodiscard]] std::uint32_t unpermute(std::uint32_t index) const noexcept;
  [[nodiscard]] MemoryEntry& entry_at(std::uint32_t slot) const noexcept;
  [[nodiscard]] MemoryEntry* current(Stag stag) const noexcept;
  [[nodiscard]] Result<std::uint32_t> take_slot();
  [[nodiscard]] bool add_chunk();
  void give_slot(std::uint32_t slot);
  std::uint8_t renew_key(std::uint32_t slot);

  const RandomFn random_;
  const std::uint32_t entries_max_;
  std::array<std::uint64_t, kRounds> round_keys_;
  std::uint32_t used_ = 0;
  std::uint32_t slots_made_ = 0;
  // Free slots, first in, first out, linked through their entries.
  std::uint32_t free_head_ = 0;
  std::uint32_t free_tail_ = 0;
  std::uint32_t free_count_ = 0;
#ifndef WEFT_PROFILE_SMALL
  bool reuses_ = false;
#endif
  // By slot / kChunkEntries. Zeroed lazily by the allocator: what is not used costs no memory.
  std::atomic<MemoryEntry*>* chunks_ = nullptr;
  std::optional<Arena> memory_;  // what is left of the caller's; none: the heap
};

}  // namespace weft::proto
