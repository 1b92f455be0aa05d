// Numbers of PDs, SRQs and queue pairs: 24 bits, never 0, reused late (for tests: at once). Any
// thread.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "os/lock.h"

namespace weft::verbs {

class NumberPool {
 public:
  [[nodiscard]] std::uint32_t take() {
    constexpr std::uint32_t kMask = (1U << 24U) - 1;
    const os::MutexLock lock(mutex_);
    if (!free_.empty()) {
      const std::uint32_t number = free_.back();
      free_.pop_back();
      taken_.insert(number);
      return number;
    }
    do {
      next_ = (next_ + 1) & kMask;
    } while (next_ == 0 || !taken_.insert(next_).second);
    return next_;
  }
  void give_back(std::uint32_t number) {
    const os::MutexLock lock(mutex_);
    taken_.erase(number);
    if (reuses_) free_.push_back(number);
  }
  // From now on what is given back is taken next. Before the first is taken.
  void reuse_at_once() {
    const os::MutexLock lock(mutex_);
    reuses_ = true;
  }

 private:
  os::Mutex mutex_;
  std::uint32_t next_ WEFT_GUARDED_BY(mutex_) = 0;
  std::unordered_set<std::uint32_t> taken_ WEFT_GUARDED_BY(mutex_);
  bool reuses_ WEFT_GUARDED_BY(mutex_) = false;
  std::vector<std::uint32_t> free_ WEFT_GUARDED_BY(mutex_);  // with reuses_
};

}  // namespace weft::verbs
