// Counters of a device, and their copy in the page that other processes read.
#include <algorithm>
#include <utility>

#include "os/cancel.h"
#include "os/guarded.h"
#include "os/log.h"
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
  Counters sum = sources_.sum();
  for (const auto& engine : engines_) sum.wakeups += engine->wakeups();
  sum.connections_opened += setups_.opened();
  sum.connections_refused += setups_.refused();
  return sum;
}

void PageOfDevice::ensure(io::Engine& engine, std::function<void(io::CountersPage&)> fill) {
  const os::NoCancel guard;
  const os::MutexLock lock(mutex_);
  if (std::exchange(tried_, true)) return;
  auto page = os::guarded([&] { return io::CountersPublisher::create(engine, std::move(fill)); });
  if (page) {
    page_ = std::move(*page);
  } else if (page.error() == Error::kNoSpace) {
    os::log(LogLevel::kWarning,
            "no room in XDG_RUNTIME_DIR or /dev/shm: `weft stat` cannot show this process");
  } else {
    os::log(LogLevel::kInfo, "no page of counters: {}", describe(page.error()));
  }
}

void DeviceImpl::ensure_page() {
  page_.ensure(engine(), [this](io::CountersPage& out) { fill_page(out); });
}

}  // namespace weft::verbs
