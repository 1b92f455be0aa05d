// The shards that feed a completion queue: its own, from its first queue pair on, and those of
// other CQs where queue pairs that deliver here have their lanes.
//
// Read without a lock; grows only, and holds its shards until it goes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "os/lock.h"
#include "progress/shard.h"

namespace weft::progress {

class ShardSet {
 public:
  // Does nothing if it is in.
  void add(const std::shared_ptr<Shard>& shard) {
    assert(shard != nullptr);
    const os::MutexLock lock(mutex_);
    if (contains(shard.get())) return;
    lists_.push_back(std::make_unique<List>());
    List& all = *lists_.back();
    for (const auto& one : kept_) all.push_back(one.get());
    all.push_back(shard.get());
    kept_.push_back(shard);
    // Seen when there was memory for everything.
    seen_.store(&all, std::memory_order_release);
  }
  [[nodiscard]] bool contains(const Shard* shard) const noexcept {
    return std::ranges::find(all(), shard) != all().end();
  }
  [[nodiscard]] std::span<Shard* const> all() const noexcept {
    const List* const list = seen_.load(std::memory_order_acquire);
    return list == nullptr ? std::span<Shard* const>{} : std::span<Shard* const>(*list);
  }
  // Its own; null: there is none yet.
  [[nodiscard]] std::shared_ptr<Shard> first() const {
    const os::MutexLock lock(mutex_);
    return kept_.empty() ? nullptr : kept_.front();
  }

 private:
  using List = std::vector<Shard*>;
  std::atomic<const List*> seen_{nullptr};
  mutable os::Mutex mutex_;
  std::vector<std::shared_ptr<Shard>> kept_ WEFT_GUARDED_BY(mutex_);
  // Somebody may still read one of before.
  std::vector<std::unique_ptr<List>> lists_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::progress
