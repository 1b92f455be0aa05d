// The memory that outstanding requests read, and who else may write there. A part of the rules of
// `weft run --check`.
//
// One thread at a time, but for Pieces.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check/observer.h"
#include "os/lock.h"

namespace weft::check {

// A sum over octets of the program. They may be mapped no more, or out of reach.
enum class Memory : std::uint8_t { kUnknown, kGone, kThere };
struct Summed {
  Memory memory{};
  std::uint64_t sum = 0;
};
using Sum = std::function<Summed(std::span<const Octets>)>;

[[nodiscard]] bool overlap(std::span<const Octets> some, std::span<const Octets> others);

// The parts of some octets that a sum is made of: of 16 KiB or less all, else 16 pieces of 1 KiB.
[[nodiscard]] std::vector<Octets> samples(std::span<const Octets> octets);

// Pieces of memory, many of them, to be asked whether one overlaps with others. The same piece may
// be there several times. Any thread: its lock is held for no more than a look.
class Pieces {
 public:
  void add(std::span<const Octets> octets);
  // REQUIRES: they were added.
  void remove(std::span<const Octets> octets);
  [[nodiscard]] bool overlap(std::span<const Octets> octets) const;
  [[nodiscard]] bool is_empty() const { return count_.load(std::memory_order_relaxed) == 0; }

 private:
  // Those of a size between two powers of 2: by address and length, how many. What overlaps with an
  // address begins at most twice the smaller size before it.
  using Class = std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t>;
  mutable os::Mutex mutex_;
  std::atomic<std::size_t> count_{0};
  std::array<Class, 64> classes_ WEFT_GUARDED_BY(mutex_);
};

// The memory of receives, and of requests that write to this side: an adapter may change it.
class Sinks {
 public:
  // Per queue; then the oldest is forgotten.
  static constexpr std::size_t kMost = 1U << 16U;

  // A receive and a request of one queue pair may have the same wr_id.
  enum class Side : std::uint8_t { kReceive, kSend };
  void add(const void* queue, Side side, std::uint64_t wr_id, std::vector<Octets> octets);
  // The oldest of that queue with this wr_id, if there is one.
  void remove(const void* queue, Side side, std::uint64_t wr_id);
  // The octets of that receive; none: there is none.
  [[nodiscard]] std::span<const Octets> of(const void* queue, std::uint64_t wr_id) const;
  // One with just these octets: it was refused.
  void take_back(const void* queue, Side side, std::uint64_t wr_id, std::span<const Octets> octets);
  void clear(const void* queue);
  struct Found {
    const void* queue = nullptr;
    std::uint64_t wr_id = 0;
    Octets octets;  // the first that overlap
  };
  // One of those that `counts`. Null queue: there is none.
  using Counts = std::function<bool(const Octets&)>;
  [[nodiscard]] Found find(const Octets& memory, const Counts& counts) const;
  // Any thread.
  [[nodiscard]] bool has(std::span<const Octets> octets) const { return pieces_.overlap(octets); }
  [[nodiscard]] bool is_empty() const { return pieces_.is_empty(); }

 private:
  struct Sink {
    Side side{};
    std::uint64_t wr_id = 0;
    std::vector<Octets> octets;
    [[nodiscard]] bool is(Side of, std::uint64_t id) const { return side == of && wr_id == id; }
  };
  using Queue = std::deque<Sink>;

  void erase(Queue& queue, Queue::iterator sink);

  std::unordered_map<const void*, Queue> queues_;
  Pieces pieces_;
};

}  // namespace weft::check
