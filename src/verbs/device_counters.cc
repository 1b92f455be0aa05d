// Counters of a device, and their copy in the page that other processes read.
#include <algorithm>

#include "verbs/device.h"

namespace weft::verbs {

void DeviceImpl::fill_page(io::CountersPage& page) const {
  page.queue_pairs = static_cast<std::uint32_t>(count(ObjectKind::kQp));
  page.connections = static_cast<std::uint32_t>(std::max(up_.load(std::memory_order_relaxed), 0));
  page.rings = rings_.now();
  page.counters = counters();
}

Counters DeviceImpl::counters() const {
  if (!usable()) return {};
  Counters sum;
  {
    const os::MutexLock lock(registry_mutex_);
    sum = retired_;
    for (const CounterSource* source : sources_) source->add_counters(sum);
  }
  for (const auto& engine : engines_) sum.wakeups += engine->wakeups();
  sum.connections_opened += opened_.load(std::memory_order_relaxed);
  sum.connections_refused += refused_.load(std::memory_order_relaxed);
  return sum;
}

}  // namespace weft::verbs
