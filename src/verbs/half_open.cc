#include "verbs/half_open.h"

#include <weft/limits.h>

#include <algorithm>

#include "os/clock.h"
#include "os/descriptor_limit.h"

namespace weft::verbs {

namespace {

// An honest peer sends its Request at once, behind the segment that ends the handshake. Nobody who
// has waited for less than this has to make room for a newcomer.
constexpr Duration kTimeForARequest{50'000'000};

}  // namespace

std::size_t half_open_limit() {
  constexpr rlim_t kShare = 4;  // the program needs descriptors too
  constexpr rlim_t kMax = limits::kHalfOpenConnections;
  return std::clamp<rlim_t>(os::descriptor_limit() / kShare, kHalfOpenLimitMin, kMax);
}

void HalfOpenOfDevice::add(const std::shared_ptr<ConnectionImpl>& who, const SocketAddress& peer,
                           Instant since) {
  const os::MutexLock lock(mutex_);
  Places one;
  one.push_back({who, since, hosts_.end()});
  by_connection_.emplace(who.get(), one.begin());
  try {
    one.front().host = hosts_.try_emplace(os::calling_host(peer.get())).first;
  } catch (...) {
    by_connection_.erase(who.get());
    throw;
  }
  Places& silent = one.front().host->second.silent;
  silent.splice(silent.end(), one);
}

void HalfOpenOfDevice::remove(const ConnectionImpl* who) {
  const os::MutexLock lock(mutex_);
  const auto found = by_connection_.find(who);
  if (found == by_connection_.end()) return;
  const auto host = found->second->host;
  FromHost& from = host->second;
  (found->second->asked ? from.asked : from.silent).erase(found->second);
  if (from.silent.empty() && from.asked.empty()) hosts_.erase(host);
  by_connection_.erase(found);
}

void HalfOpenOfDevice::has_asked(const ConnectionImpl* who) {
  const os::MutexLock lock(mutex_);
  const auto found = by_connection_.find(who);
  if (found == by_connection_.end() || found->second->asked) return;
  found->second->asked = true;
  FromHost& from = found->second->host->second;
  from.asked.splice(from.asked.end(), from.silent, found->second);
}

std::size_t HalfOpenOfDevice::size() const {
  const os::MutexLock lock(mutex_);
  return by_connection_.size();
}

// Hosts are no more than places, of which there are few.
const HalfOpenOfDevice::Place* HalfOpenOfDevice::oldest_of_the_most(Places FromHost::*kind) const {
  const Place* oldest = nullptr;
  std::size_t most = 0;
  for (const auto& [host, from] : hosts_) {
    if ((from.*kind).empty()) continue;
    const Place& first = (from.*kind).front();
    const std::size_t all = from.silent.size() + from.asked.size();
    if (all < most || (all == most && first.since >= oldest->since)) continue;
    oldest = &first;
    most = all;
  }
  return oldest;
}

std::shared_ptr<ConnectionImpl> HalfOpenOfDevice::gives_way(bool hurry, bool asked_too) const {
  const os::MutexLock lock(mutex_);
  const Place* const silent = oldest_of_the_most(&FromHost::silent);
  if (silent != nullptr) {
    const bool due = hurry || os::now() - silent->since >= kTimeForARequest;
    return due ? silent->who.lock() : nullptr;
  }
  const Place* const asked = asked_too ? oldest_of_the_most(&FromHost::asked) : nullptr;
  return asked == nullptr ? nullptr : asked->who.lock();
}

Instant HalfOpenOfDevice::gives_way_at() const {
  const os::MutexLock lock(mutex_);
  const Place* const silent = oldest_of_the_most(&FromHost::silent);
  return silent == nullptr ? Instant::never() : silent->since + kTimeForARequest;
}

}  // namespace weft::verbs
