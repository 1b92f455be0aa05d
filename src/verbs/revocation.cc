#include "verbs/revocation.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/cpu_pause.h"
#include "os/lock.h"
#include "proto/stag_table.h"

namespace weft::verbs {

namespace {

// Waits for a copy to be over: most take less than a microsecond, unless their thread has lost its
// core. To yield would not help then if that thread has a lower priority.
class PinWait {
 public:
  // Lets go of the mutex meanwhile.
  void once(os::Mutex& mutex) WEFT_REQUIRES(mutex) {
    mutex.unlock();
    if (spins_ < kSpins) {
      ++spins_;
      for (int i = 0; i < kPausesPerSpin; ++i) cpu_pause();
    } else {
      // Not nanosleep() of the C library, where the thread might be cancelled.
      const timespec pause{0, sleep_ns_};
      syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, nullptr);
      sleep_ns_ = std::min(sleep_ns_ * 2, kSleepMaxNs);
    }
    mutex.lock();
  }

 private:
  static constexpr int kSpins = 16;
  static constexpr int kPausesPerSpin = 32;
  static constexpr long kSleepMaxNs = 1'000'000;
  int spins_ = 0;
  long sleep_ns_ = 20'000;
};

// Ends the windows bound to a region, and then the region. False: some access is under way.
bool try_to_end(MemoryOfDevice& memory, Stag region) WEFT_REQUIRES(memory.mutex) {
  proto::StagTable& stags = memory.stags;
  const proto::MemoryEntry* entry = stags.find(region);
  if (entry != nullptr && entry->windows != 0) {
    for (const auto& [index, window] : memory.windows) {
      const proto::MemoryEntry* bound = stags.find(Stag::of(index, 0));
      if (bound == nullptr || bound->region != entry) continue;
      static_cast<void>(stags.revoke(Stag::of(index, bound->keys[0])));
    }
  }
  const Result<bool> ended = stags.revoke(region);
  // kBusy: a window is still in use, or another thread has taken it out of windows() to end it.
  return ended ? *ended : ended.error() != Error::kBusy;
}

}  // namespace

Status end_access(MemoryOfDevice& memory, Stag stag) {
  for (PinWait wait;; wait.once(memory.mutex)) {
    const Result<bool> ended = memory.stags.revoke(stag);
    if (!ended) return fail(ended.error());
    if (*ended) return {};
  }
}

void end_region(MemoryOfDevice& memory, Stag region) {
  for (PinWait wait; !try_to_end(memory, region);) wait.once(memory.mutex);
  memory.stags.give_back(region);
}

}  // namespace weft::verbs
