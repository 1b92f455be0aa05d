// A limit of octets per second: each request waits until those before it are paid for.
//
// Several threads may share it: the connections of one copy.
#pragma once

#include <chrono>
#include <cstdint>

#include "os/lock.h"

namespace weft::files {

class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  // 0: no limit.
  explicit Pace(std::uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // How long a request of so many octets has to wait. It counts as made then. Time in which nothing
  // was asked for is not made up for.
  [[nodiscard]] Clock::duration due(std::uint64_t bytes, Clock::time_point now);
  // How many requests of so many octets may be under way; at least 1.
  [[nodiscard]] std::uint32_t blocks_at_once(std::uint64_t bytes) const;
  // Waits for so long.
  void wait(std::uint64_t bytes);

 private:
  const std::uint64_t bytes_per_second_;
  os::Mutex mutex_;
  Clock::time_point next_ WEFT_GUARDED_BY(mutex_){};
};

}  // namespace weft::files
