#include "verbs/peer_watch.h"

#include <algorithm>

#include "os/clock.h"
#include "verbs/device.h"

namespace weft::verbs {

namespace {
constexpr int kLooksPerLimit = 8;
constexpr Duration kPeriodMin{50'000'000};
}  // namespace

PeerWatch::PeerWatch(DeviceImpl& device)
    : device_(device), self_(io::handler_within(device.weak_from_this(), this)) {}

Duration PeerWatch::period() const {
  const Config& config = device_.config();
  Duration limit{0};
  for (const Duration one : {Duration{config.keepalive}, Duration{config.user_timeout}}) {
    if (one.count() > 0 && (limit.count() == 0 || one < limit)) limit = one;
  }
  if (limit.count() == 0) return limit;
  return std::max(limit / kLooksPerLimit, kPeriodMin);
}

void PeerWatch::start() {
  if (running_.load(std::memory_order_relaxed) || period().count() == 0) return;
  if (running_.exchange(true, std::memory_order_acq_rel)) return;
  const bool set = device_.engine().schedule(os::now() + period(), self_) != 0;
  if (!set) running_.store(false, std::memory_order_release);  // the next connection tries again
}

void PeerWatch::on_timer(io::TimerId /*id*/) {
  running_.store(false, std::memory_order_release);
  device_.check_peers(os::now());
  if (device_.up() > 0) start();
}

}  // namespace weft::verbs
