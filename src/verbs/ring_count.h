// The rings of shared memory of a device: each holds memory, so there is a limit. Any thread.
#pragma once

#include <weft/limits.h>

#include <atomic>
#include <cstdint>

namespace weft::verbs {

class RingCount {
 public:
  // Room for one more ring, which give() returns. False: stay on TCP.
  [[nodiscard]] bool take() noexcept {
    if (count_.fetch_add(1, std::memory_order_relaxed) < limits::kRings) return true;
    give();
    return false;
  }
  void give() noexcept { count_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t now() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace weft::verbs
