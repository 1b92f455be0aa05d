#include "verbs/half_open.h"

#include <sys/resource.h>
#include <weft/limits.h>

#include <algorithm>

namespace weft::verbs {

std::size_t half_open_limit() {
  constexpr rlim_t kShare = 4;  // the program needs descriptors too
  constexpr rlim_t kMin = 16;
  constexpr rlim_t kMax = limits::kHalfOpenConnections;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMin;
  return std::clamp(limit.rlim_cur / kShare, kMin, kMax);
}

void HalfOpenOfDevice::add(const std::shared_ptr<ConnectionImpl>& who, Instant since) {
  const os::MutexLock lock(mutex_);
  auto place = std::make_shared<Place>(Place{who});
  const Place* const key = place.get();
  places_.add(std::move(place), since);
  try {
    by_connection_.emplace(who.get(), key);
  } catch (...) {
    places_.remove(key);
    throw;
  }
}

void HalfOpenOfDevice::remove(const ConnectionImpl* who) {
  const os::MutexLock lock(mutex_);
  const auto found = by_connection_.find(who);
  if (found == by_connection_.end()) return;
  places_.remove(found->second);
  by_connection_.erase(found);
}

std::size_t HalfOpenOfDevice::size() const {
  const os::MutexLock lock(mutex_);
  return places_.size();
}

std::shared_ptr<ConnectionImpl> HalfOpenOfDevice::oldest() const {
  const os::MutexLock lock(mutex_);
  const auto place = places_.oldest();
  return place == nullptr ? nullptr : place->who.lock();
}

Instant HalfOpenOfDevice::oldest_since() const {
  const os::MutexLock lock(mutex_);
  return places_.oldest_since();
}

}  // namespace weft::verbs
