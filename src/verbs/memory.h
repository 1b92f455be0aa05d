// Memory regions. Any thread.
#pragma once

#include <weft/memory.h>
#include <weft/placement.h>

#include <memory>
#include <mutex>

#include "proto/stag_table.h"
#include "verbs/pd.h"

namespace weft::verbs {

class MemoryRegionImpl final : public MemoryRegion {
 public:
  [[nodiscard]] static Result<std::shared_ptr<MemoryRegionImpl>> create(
      std::shared_ptr<ProtectionDomainImpl> pd, void* addr, std::size_t length, std::uint64_t iova,
      Access access);
  // As register_target() says, which has checked the arguments.
  [[nodiscard]] static Result<std::shared_ptr<MemoryRegionImpl>> create_target(
      std::shared_ptr<ProtectionDomainImpl> pd, std::shared_ptr<PlacementTarget> target,
      std::uint64_t length, std::uint64_t iova, Access access);
  ~MemoryRegionImpl() override;

  [[nodiscard]] void* addr() const override { return target_ != nullptr ? nullptr : spec_.addr; }
  [[nodiscard]] std::size_t length() const override { return spec_.length; }
  [[nodiscard]] std::uint64_t iova() const override { return spec_.base; }
  [[nodiscard]] std::uint32_t lkey() const override { return stag_.value; }
  [[nodiscard]] std::uint32_t rkey() const override { return stag_.value; }
  [[nodiscard]] Access access() const override {
    return target_ != nullptr ? target_->access : spec_.access;
  }
  [[nodiscard]] Status deregister() override;
  [[nodiscard]] Status reregister(ProtectionDomain* pd, void* addr, std::size_t length,
                                  const Access* access) override;

  [[nodiscard]] const std::shared_ptr<ProtectionDomainImpl>& pd() const { return pd_; }

 private:
  // A target of the public API, as the table knows it.
  struct Target {
    std::shared_ptr<PlacementTarget> target;
    std::uint64_t iova = 0;
    Access access = Access::kNone;
    proto::MemoryMethod method{};
  };

  [[nodiscard]] static Result<std::shared_ptr<MemoryRegionImpl>> enter(
      std::shared_ptr<ProtectionDomainImpl> pd, const proto::MemorySpec& spec);
  MemoryRegionImpl(std::shared_ptr<ProtectionDomainImpl> pd, const proto::MemorySpec& spec,
                   ObjectCount counted)
      : device_(pd->device_impl()), counted_(std::move(counted)), pd_(std::move(pd)), spec_(spec) {}

  const std::shared_ptr<DeviceImpl> device_;
  const ObjectCount counted_;

  // Changed by deregister and reregister only, which the caller does not do concurrently with use.
  std::shared_ptr<ProtectionDomainImpl> pd_;
  proto::MemorySpec spec_;
  std::unique_ptr<Target> target_;  // null: memory
  Stag stag_;                       // 0: deregistered, or not registered yet
};

}  // namespace weft::verbs
