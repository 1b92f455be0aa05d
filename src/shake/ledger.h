// The requests that a program has posted and whose completions it has not polled: an adapter has
// their slots, and may still write to their memory.
//
// One thread at a time.
#pragma once

#include <weft/types.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace weft::shake {

// Those of one send queue, one receive queue or one shared receive queue.
class Ledger {
 public:
  struct Entry {
    std::uint64_t wr_id = 0;
    bool signaled = true;
    std::vector<Sge> sges;  // the memory that it may use until then
  };

  void add(Entry entry) { entries_.push_back(std::move(entry)); }
  // The last one that was added was refused. It is gone already where clear() came in between.
  void drop_last() {
    if (!entries_.empty()) entries_.pop_back();
  }
  // A completion was polled. Of a send queue: the slots of those before it are free, too. Of a
  // receive queue: it alone. Where that is shared, several may have its wr_id, and nothing says
  // which it was: then one goes, and no memory is given.
  void sent(std::uint64_t wr_id, bool success);
  std::optional<Entry> received(std::uint64_t wr_id, bool shared = false);
  void clear() { entries_.clear(); }

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  // Whether a request that is here may use one of these octets.
  [[nodiscard]] bool uses(const Sge& octets) const;

 private:
  std::deque<Entry> entries_;
};

// The rest of the cache line in which the first `used` octets of a receive end, within their SGE.
[[nodiscard]] std::optional<Sge> tail(std::span<const Sge> sges, std::uint64_t used);

}  // namespace weft::shake
