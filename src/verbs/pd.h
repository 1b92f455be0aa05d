// Protection domains. Any thread.
#pragma once

#include <weft/memory.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "verbs/device.h"
#include "verbs/held.h"

namespace weft::verbs {

class ProtectionDomainImpl final : public ProtectionDomain,
                                   public std::enable_shared_from_this<ProtectionDomainImpl> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<ProtectionDomainImpl>> create(
      std::shared_ptr<DeviceImpl> device);
  [[nodiscard]] Device& device() const override { return *device_; }
  [[nodiscard]] std::size_t users() const override;
  [[nodiscard]] Result<std::shared_ptr<MemoryRegion>> register_memory(void* addr,
                                                                      std::size_t length,
                                                                      Access access) override;
  [[nodiscard]] Result<std::shared_ptr<MemoryRegion>> register_memory_iova(void* addr,
                                                                           std::size_t length,
                                                                           std::uint64_t iova,
                                                                           Access access) override;
  [[nodiscard]] Result<std::shared_ptr<MemoryWindow>> create_window(
      MemoryWindow::Type type) override;
  [[nodiscard]] Result<std::shared_ptr<QueuePair>> create_qp(const QpOptions& options) override;
  [[nodiscard]] Result<std::shared_ptr<SharedReceiveQueue>> create_srq(
      const SrqOptions& options) override;

  // --- for objects of the layer ---
  [[nodiscard]] const std::shared_ptr<DeviceImpl>& device_impl() const { return device_; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_.value(); }  // StreamId::pd

  // Objects of every kind that use this domain; QPs are counted apart too, because a region may be
  // invalidated by a peer only where no other stream shares it. QPs call both pairs.
  void add_user() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
  void drop_user() noexcept { users_.fetch_sub(1, std::memory_order_relaxed); }
  void add_qp() noexcept { qps_.fetch_add(1, std::memory_order_relaxed); }
  void drop_qp() noexcept { qps_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t qps() const noexcept { return qps_.load(std::memory_order_relaxed); }

 private:
  ProtectionDomainImpl(std::shared_ptr<DeviceImpl> device, ObjectCount counted)
      : device_(std::move(device)), counted_(std::move(counted)), number_(Number::take(*device_)) {}

  const std::shared_ptr<DeviceImpl> device_;
  const ObjectCount counted_;
  const Number number_;
  std::atomic<std::size_t> users_{0};
  std::atomic<std::uint32_t> qps_{0};
};

}  // namespace weft::verbs
