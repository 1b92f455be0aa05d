#include "exs/core/exs_device_table.h"

#include <cassert>
#include <cerrno>

namespace weft::exs {

std::shared_ptr<Device> DeviceTable::of(ibv_context* context) {
  assert(context != nullptr);
  const os::WriteLock lock(mutex_);
  for (const auto& device : devices_) {
    if (device->context() == context) return device;
  }
  if (devices_.size() == kDevicesMax) {
    errno = ENOSPC;
    return nullptr;
  }
  auto device = Device::create(context);
  if (device == nullptr) return nullptr;
  assert(devices_.size() == count_.load());
  by_index_[devices_.size()] = device.get();
  devices_.push_back(device);
  count_.store(devices_.size(), std::memory_order_release);
  return device;
}

std::vector<std::shared_ptr<Device>> DeviceTable::all() const {
  const os::ReadLock lock(mutex_);
  return devices_;
}

}  // namespace weft::exs
