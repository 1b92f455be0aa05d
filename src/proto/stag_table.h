// The STag table: which memory a peer, or a local SGE, may reach. RFC 5041 7, RFC 5042 6.
//
// Readers (find, resolve, Pin) run on any thread without a lock, while one writer at a time (the
// owner serializes add, allocate, bind, invalidate, remove) changes the table. Invalidation waits
// until nobody is touching the memory, so it is final when it returns.
//
// STags cannot be guessed: the index is a keyed permutation of the slot number, the 8-bit key is
// random, and a freed slot waits behind all other free slots before it is used again.
#pragma once

#include <weft/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/seq.h"

namespace weft::proto {

// Who asks: a stream and its protection domain. Numbers are never 0.
struct StreamId {
  std::uint32_t pd = 0;
  std::uint32_t stream = 0;
};

// Why memory may not be touched, in the order of the checks.
enum class MemoryFault : std::uint8_t {
  kNone,
  kInvalidStag,  // not known, wrong key, or not enabled
  kNotOfStream,  // of another protection domain or bound to another stream
  kNoRight,
  kWrap,    // TO + length passes 2^64
  kBounds,  // outside the region
};

struct MemorySpec {
  std::uint8_t* addr = nullptr;
  std::uint64_t length = 0;  // bytes
  std::uint64_t base = 0;    // TO of the first byte
  Access access = Access::kNone;
  std::uint32_t pd = 0;
  std::uint32_t stream = 0;  // 0: any stream of the domain
};

struct MemoryEntry {
  std::atomic<std::uint32_t> stag{0};  // 0: not valid; written last when enabling, first when not
  std::atomic<std::uint32_t> pins{0};  // accesses in progress
  MemorySpec spec;
  bool is_window = false;
  std::uint32_t windows = 0;       // bound to this region; the writer's
  MemoryEntry* region = nullptr;   // of a bound window; the writer's
};

// Holds one entry against invalidation. Movable value; empty when default-made.
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
  [[nodiscard]] bool holds(Stag stag) const noexcept {
    return entry_ != nullptr && stag_ == stag;
  }

 private:
  MemoryEntry* entry_ = nullptr;
  Stag stag_;
};

class StagTable {
 public:
  // `secret` keys the permutation; `random` gives bytes nobody can guess (called by writers only).
  using RandomFn = std::uint32_t (*)();
  StagTable(std::uint64_t secret, RandomFn random, std::uint32_t entries_max);
  ~StagTable();
  StagTable(const StagTable&) = delete;
  StagTable& operator=(const StagTable&) = delete;

  // --- any thread ---

  // The slot of this STag, valid or not; null if there never was one.
  [[nodiscard]] MemoryEntry* find(Stag stag) const noexcept;

  // Pins `stag` (if `pin` does not hold it already) and checks [to, to + length) for `need`. On
  // success `at` is the address of the first byte; it is good until the pin is released.
  // REQUIRES: length > 0.
  [[nodiscard]] MemoryFault resolve(Stag stag, std::uint64_t to, std::uint64_t length, Access need,
                                    StreamId who, Pin& pin, std::uint8_t*& at) const noexcept;

  // --- one writer at a time ---

  //   kLimitExceeded   the table is full
  //   kNoMemory
  [[nodiscard]] Result<Stag> add(const MemorySpec& spec);

  // A slot for a window, not valid until bound. The STag's key may be changed at each bind.
  [[nodiscard]] Result<Stag> allocate_window(std::uint32_t pd);

  // Makes the window valid as `stag` (same index as allocated, any key).
  //   kNotFound         no such window or region
  //   kBusy             the window is valid now: invalidate it first
  //   kPermission       the region lacks kBindWindow, the rights asked, or is of another domain
  //   kInvalidArgument  outside the region, or the key did not change
  [[nodiscard]] Status bind(Stag stag, Stag region, const MemorySpec& spec);

  // Ends all access under this STag before it returns; the slot stays allocated. Not an error if it
  // was invalid already.
  //   kNotFound   no such slot, or the key is not the current one
  //   kBusy       windows are bound to it
  [[nodiscard]] Status invalidate(Stag stag);

  // Invalidates and frees the slot for (late) reuse.   kNotFound, kBusy
  [[nodiscard]] Status remove(Stag stag);

  [[nodiscard]] std::uint32_t used() const noexcept { return used_; }

 private:
  static constexpr std::uint32_t kChunkEntries = 256;
  static constexpr std::uint32_t kIndexBits = 24;

  [[nodiscard]] std::uint32_t permute(std::uint32_t slot) const noexcept;
  [[nodiscard]] std::uint32_t unpermute(std::uint32_t index) const noexcept;
  [[nodiscard]] Result<std::uint32_t> take_slot();
  void end_access(MemoryEntry& entry);

  const std::uint64_t secret_;
  const RandomFn random_;
  const std::uint32_t entries_max_;
  std::uint32_t used_ = 0;
  std::uint32_t slots_made_ = 0;
  std::vector<std::uint32_t> free_;  // first in, first out, as a ring
  std::size_t free_head_ = 0;
  std::vector<std::uint32_t> keys_;  // writer's: current STag of each slot, valid or not
  std::unique_ptr<std::atomic<MemoryEntry*>[]> chunks_;
};

}  // namespace weft::proto
