#include "verbs/half_open.h"

#include <sys/resource.h>
#include <weft/limits.h>

#include <algorithm>

#include "os/clock.h"

namespace weft::verbs {

namespace {

// An honest peer sends its Request at once, behind the segment that ends the handshake. Nobody who
// has waited for less than this has to make room for a newcomer.
constexpr Duration kTimeForARequest{50'000'000};

}  // namespace

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
  Places one;
  one.push_back({who, since});
  by_connection_.emplace(who.get(), one.begin());
  silent_.splice(silent_.end(), one);
}

void HalfOpenOfDevice::remove(const ConnectionImpl* who) {
  const os::MutexLock lock(mutex_);
  const auto found = by_connection_.find(who);
  if (found == by_connection_.end()) return;
  (found->second->asked ? asked_ : silent_).erase(found->second);
  by_connection_.erase(found);
}

void HalfOpenOfDevice::has_asked(const ConnectionImpl* who) {
  const os::MutexLock lock(mutex_);
  const auto found = by_connection_.find(who);
  if (found == by_connection_.end() || found->second->asked) return;
  found->second->asked = true;
  asked_.splice(asked_.end(), silent_, found->second);
}

std::size_t HalfOpenOfDevice::size() const {
  const os::MutexLock lock(mutex_);
  return by_connection_.size();
}

std::shared_ptr<ConnectionImpl> HalfOpenOfDevice::gives_way(bool hurry, bool asked_too) const {
  const os::MutexLock lock(mutex_);
  if (silent_.empty()) return asked_too && !asked_.empty() ? asked_.front().who.lock() : nullptr;
  const Place& oldest = silent_.front();
  return hurry || os::now() - oldest.since >= kTimeForARequest ? oldest.who.lock() : nullptr;
}

Instant HalfOpenOfDevice::gives_way_at() const {
  const os::MutexLock lock(mutex_);
  return silent_.empty() ? Instant::never() : silent_.front().since + kTimeForARequest;
}

}  // namespace weft::verbs
