// A thread that polls and finds nothing lets others have its core now and then (base/patience.h).
#pragma once

#include <algorithm>
#include <memory>
#include <ranges>

#include "progress/host.h"
#include "progress/shard.h"

namespace weft::progress {

// Counts a poll of this thread that found nothing, and yields if it is time. True: somebody else
// ran, not for long. Then note_yield() wants to know whether there is something now.
[[nodiscard]] bool yield_if_due(const ProgressHost& host);
void note_yield(bool found);

// The same for who polls these shards: pointers of some kind.
template <class Shards>
void give_way(const ProgressHost& host, const Shards& shards) {
  if (!yield_if_due(host)) return;
  note_yield(std::ranges::empty(shards) ||
             std::ranges::any_of(shards, [](const auto& shard) { return shard->poll(); }));
}

}  // namespace weft::progress
