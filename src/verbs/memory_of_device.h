// The table of a device's STags, and what has to change together with it.
#pragma once

#include <weft/limits.h>

#include <cstdint>
#include <unordered_map>

#include "os/lock.h"
#include "proto/stag_table.h"
#include "verbs/random.h"

namespace weft::verbs {

class MemoryWindowImpl;

// Memory that STags name. Lookups from any thread; changes with the mutex held.
struct MemoryOfDevice {
  explicit MemoryOfDevice(std::uint64_t secret)
      : stags(secret, &random_u32, limits::kMemoryRegions) {}
  os::Mutex mutex;
  proto::StagTable stags;
  // Windows by STag index, so that a bind in a send queue finds its object.
  std::unordered_map<std::uint32_t, MemoryWindowImpl*> windows WEFT_GUARDED_BY(mutex);
};

}  // namespace weft::verbs
