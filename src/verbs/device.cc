#include "verbs/device.h"

namespace weft::verbs {

namespace {

std::size_t limit_of(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::kPd: return limits::kProtectionDomains;
    case ObjectKind::kCq:
    case ObjectKind::kChannel: return limits::kCompletionQueues;
    case ObjectKind::kQp: return limits::kQueuePairs;
    case ObjectKind::kSrq: return limits::kSharedReceiveQueues;
    // Limited together, by the STag table.
    case ObjectKind::kRegion:
    case ObjectKind::kWindow: return limits::kMemoryRegions;
    // A descriptor each: the kernel's limit comes first.
    case ObjectKind::kConnection:
    case ObjectKind::kListener: return limits::kMemoryRegions;
  }
  return 0;
}

}  // namespace

std::shared_ptr<DeviceImpl> DeviceImpl::self() {
  return std::static_pointer_cast<DeviceImpl>(shared_from_this());
}

Status DeviceImpl::acquire(ObjectKind kind) {
  if (!usable()) return fail(Error::kBadState);
  auto& count = counts_[static_cast<std::size_t>(kind)];
  if (count.fetch_add(1, std::memory_order_relaxed) >= limit_of(kind)) {
    count.fetch_sub(1, std::memory_order_relaxed);
    return fail(Error::kLimitExceeded);
  }
  return {};
}

void DeviceImpl::release(ObjectKind kind) noexcept {
  counts_[static_cast<std::size_t>(kind)].fetch_sub(1, std::memory_order_relaxed);
}

std::size_t DeviceImpl::count(ObjectKind kind) const noexcept {
  return counts_[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed);
}

std::size_t DeviceImpl::users() const {
  std::size_t sum = 0;
  for (const auto& count : counts_) sum += count.load(std::memory_order_relaxed);
  return sum;
}

void DeviceImpl::free_number(std::uint32_t number) {
  if (usable()) numbers_.give_back(number);
}

void DeviceImpl::remove_source(const CounterSource* source) {
  if (usable()) sources_.remove(source);
}

void DeviceImpl::raise(AsyncEvent event) {
  if (usable()) async_events_.raise(std::move(event));
}

void DeviceImpl::set_async_sink(std::function<void(const AsyncEvent&)> sink) {
  if (usable()) async_events_.set_sink(std::move(sink));
}

}  // namespace weft::verbs
