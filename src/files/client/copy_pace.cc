#include "files/client/copy_pace.h"

#include <algorithm>
#include <thread>

namespace weft::files {

Pace::Clock::duration Pace::due(std::uint64_t bytes, Clock::time_point now) {
  if (bytes_per_second_ == 0) return {};
  const std::chrono::duration<double> cost(static_cast<double>(bytes) /
                                           static_cast<double>(bytes_per_second_));
  const os::MutexLock guard(mutex_);
  const auto at = std::max(next_, now);
  next_ = at + std::chrono::duration_cast<Clock::duration>(cost);
  return at - now;
}

std::uint32_t Pace::blocks_at_once(std::uint64_t bytes) const {
  constexpr std::uint64_t kMost = 1024;
  if (bytes_per_second_ == 0) return kMost;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(bytes_per_second_ / (4 * bytes), 1, kMost));
}

void Pace::wait(std::uint64_t bytes) {
  if (bytes_per_second_ == 0) return;
  const auto pause = due(bytes, Clock::now());
  if (pause > Clock::duration::zero()) std::this_thread::sleep_for(pause);
}

}  // namespace weft::files
