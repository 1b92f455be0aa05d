// Slots of work queues that a polled completion frees. As on adapters, the slot of a request is
// free when a completion of it, or of a later one in its queue, has been polled. So a program may
// post until a queue is full if its completion queue is as deep as the capacities of its work
// queues together: as QpCaps says them, not as they were asked for. Each is rounded up by itself,
// so their sum may be more than that of a completion queue whose depth is the sum of what was asked
// for.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/cache_line.h"

namespace weft::verbs {

// The indices up to which the slots of a queue pair are free. A poll writes them, with the lock of
// the CQ held. While no CQ has a completion of the queue pair, the queue pair may.
struct alignas(kCacheLineBytes) FreedSlots {
  std::atomic<std::uint32_t> sends{0};
  std::atomic<std::uint32_t> receives{0};
};

// Beside a completion: polling it frees the slots before `end`. Completions of a queue are polled
// in its order, so a store is enough.
struct SlotsToFree {
  std::atomic<std::uint32_t>* freed = nullptr;  // null: none (shared receive queues)
  std::uint32_t end = 0;

  void free() const noexcept {
    if (freed != nullptr) freed->store(end, std::memory_order_release);
  }
};

}  // namespace weft::verbs
