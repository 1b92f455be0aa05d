// The RDMA devices that sockets of this process have used. They only ever become more.
//
// Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "exs/core/exs_device.h"
#include "os/lock.h"

namespace weft::exs {

class DeviceTable {
 public:
  // The device of this context, made now if it is new. Null, with errno: it cannot be made, or
  // there are as many as there can be.
  std::shared_ptr<Device> of(ibv_context* context);
  [[nodiscard]] std::vector<std::shared_ptr<Device>> all() const;

  [[nodiscard]] bool empty() const { return count_.load(std::memory_order_acquire) == 0; }
  // Calls `visit` for each shard of each device, without a lock.
  template <class Visit>
  void each_shard(Visit visit) const {
    const std::size_t count = count_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) by_index_[i]->each_shard(visit);
  }

 private:
  static constexpr std::size_t kDevicesMax = 64;

  mutable os::SharedMutex mutex_;
  std::vector<std::shared_ptr<Device>> devices_ WEFT_GUARDED_BY(mutex_);
  // The same for readers without the lock: entries below count_ never change.
  std::array<Device*, kDevicesMax> by_index_{};
  std::atomic<std::size_t> count_{0};
};

}  // namespace weft::exs
