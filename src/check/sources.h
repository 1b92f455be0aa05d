// The memory that outstanding requests read, and who else may write there. A part of the rules of
// `weft run --check`.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "check/observer.h"

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

// The memory of receives, and of requests that write to this side: an adapter may change it.
class Sinks {
 public:
  // Per queue; then the oldest is forgotten.
  static constexpr std::size_t kMost = 1U << 16U;

  void add(const void* queue, std::uint64_t wr_id, std::vector<Octets> octets);
  // The oldest of that queue with this wr_id, if there is one.
  void remove(const void* queue, std::uint64_t wr_id);
  void clear(const void* queue) { queues_.erase(queue); }
  [[nodiscard]] bool has(std::span<const Octets> octets) const;

 private:
  struct Sink {
    std::uint64_t wr_id = 0;
    std::vector<Octets> octets;
  };
  std::unordered_map<const void*, std::deque<Sink>> queues_;
};

}  // namespace weft::check
