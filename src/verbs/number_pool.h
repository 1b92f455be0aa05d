// Numbers of PDs, SRQs and queue pairs: 24 bits, never 0, reused late. Any thread.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "os/lock.h"

namespace weft::verbs {

class NumberPool {
 public:
  [[nodiscard]] std::uint32_t take() {
    constexpr std::uint32_t kMask = (1U << 24U) - 1;
    const os::MutexLock lock(mutex_);
    do {
      next_ = (next_ + 1) & kMask;
    } while (next_ == 0 || !taken_.insert(next_).second);
    return next_;
  }
  void give_back(std::uint32_t number) {
    const os::MutexLock lock(mutex_);
    taken_.erase(number);
  }

 private:
  os::Mutex mutex_;
  std::uint32_t next_ WEFT_GUARDED_BY(mutex_) = 0;
  std::unordered_set<std::uint32_t> taken_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::verbs
