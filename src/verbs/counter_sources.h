// Whose counters a device adds up. Any thread.
#pragma once

#include <weft/counters.h>

#include <unordered_set>

#include "os/lock.h"

namespace weft::verbs {

// Adds its counters to a sum: a QP, a CQ. Any thread, at any time between add and remove.
class CounterSource {
 public:
  virtual ~CounterSource() = default;
  virtual void add_counters(Counters& sum) const = 0;
};

class CounterSources {
 public:
  void add(const CounterSource* source) {
    const os::MutexLock lock(mutex_);
    sources_.insert(source);
  }
  // Its last values stay in the sum.
  void remove(const CounterSource* source) {
    const os::MutexLock lock(mutex_);
    if (sources_.erase(source) != 0) source->add_counters(retired_);
  }
  [[nodiscard]] Counters sum() const {
    const os::MutexLock lock(mutex_);
    Counters sum = retired_;
    for (const CounterSource* source : sources_) source->add_counters(sum);
    return sum;
  }

 private:
  mutable os::Mutex mutex_;
  std::unordered_set<const CounterSource*> sources_ WEFT_GUARDED_BY(mutex_);
  Counters retired_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::verbs
