#include "progress/rings.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <utility>

#include "os/clock.h"

namespace weft::progress {

namespace {

// Both are as the kernel wrote them.
bool is_same(const SocketAddress& a, const SocketAddress& b) {
  return a.size() == b.size() && std::memcmp(a.get(), b.get(), a.size()) == 0;
}

}  // namespace

// Memory is given back behind the lock: `one`, and `over` below, live longer than it is held.

void Rings::keep(Kept kept) {
  assert(engine_ != nullptr && kept.key != 0);
  std::list<Kept> one;
  one.push_back(std::move(kept));
  one.back().until = os::now() + kKept;
  const os::MutexLock lock(mutex_);
  if (kept_.size() >= limits::kKeptRings) return;
  kept_.splice(kept_.begin(), one);
  if (!timer_set_) timer_set_ = engine_->schedule(kept_.front().until, self_) != 0;
}

std::optional<Rings::Kept> Rings::take_kept_of(const SocketAddress& peer) {
  std::list<Kept> found =
      take_first([&](const Kept& kept) { return kept.initiator && is_same(kept.peer, peer); });
  if (found.empty()) return {};
  return std::move(found.front());
}

std::optional<shm::SpareRing> Rings::take_kept(std::uint64_t key) {
  std::list<Kept> found =
      take_first([&](const Kept& kept) { return !kept.initiator && kept.key == key; });
  if (found.empty()) return {};
  return std::move(found.front().ring);
}

std::list<Rings::Kept> Rings::take_first(const std::function<bool(const Kept&)>& fits) {
  std::list<Kept> out;
  const os::MutexLock lock(mutex_);
  const auto found = std::find_if(kept_.begin(), kept_.end(), fits);
  if (found != kept_.end()) out.splice(out.begin(), kept_, found);
  return out;
}

void Rings::on_timer(io::TimerId) {
  const Instant now = os::now();
  std::list<Kept> over;
  const os::MutexLock lock(mutex_);
  while (!kept_.empty() && kept_.back().until <= now) {
    over.splice(over.begin(), kept_, std::prev(kept_.end()));
  }
  timer_set_ = !kept_.empty() && engine_->schedule(kept_.back().until, self_) != 0;
}

}  // namespace weft::progress
