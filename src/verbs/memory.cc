#include "verbs/memory.h"

#include <limits>

namespace weft::verbs {

namespace {

// What can be registered at all; RFC 5040 gives remote writers nothing that the owner may not do.
Status check(const void* addr, std::size_t length, std::uint64_t iova, Access access) {
  const auto start = reinterpret_cast<std::uintptr_t>(addr);
  if (addr == nullptr && length != 0) return fail(Error::kInvalidArgument);
  if (length != 0 && (start > std::numeric_limits<std::uintptr_t>::max() - (length - 1) ||
                      iova > std::numeric_limits<std::uint64_t>::max() - (length - 1))) {
    return fail(Error::kInvalidArgument);
  }
  const bool remote_change =
      has(access, Access::kRemoteWrite) || has(access, Access::kRemoteAtomic);
  if (remote_change && !has(access, Access::kLocalWrite)) return fail(Error::kInvalidArgument);
  return {};
}

}  // namespace

Result<std::shared_ptr<MemoryRegionImpl>> MemoryRegionImpl::create(
    std::shared_ptr<ProtectionDomainImpl> pd, void* addr, std::size_t length, std::uint64_t iova,
    Access access) {
  DeviceImpl& device = *pd->device_impl();
  if (auto legal = check(addr, length, iova, access); !legal) return fail(legal.error());
  if (auto taken = device.acquire(ObjectKind::kRegion); !taken) return fail(taken.error());
  const proto::MemorySpec spec{static_cast<std::uint8_t*>(addr), length, iova, access,
                               pd->number(), 0};
  Result<Stag> stag;
  {
    const std::lock_guard lock(device.stag_mutex());
    stag = device.stags().add(spec);
  }
  if (!stag) {
    device.release(ObjectKind::kRegion);
    return fail(stag.error());
  }
  pd->add_user();
  return std::shared_ptr<MemoryRegionImpl>(new MemoryRegionImpl(std::move(pd), spec, *stag));
}

MemoryRegionImpl::~MemoryRegionImpl() {
  // With windows still bound the region stays registered: they hold it, and end it when they go.
  (void)deregister();
  pd_->device_impl()->release(ObjectKind::kRegion);
}

Status MemoryRegionImpl::deregister() {
  DeviceImpl& device = *pd_->device_impl();
  if (!device.usable()) return fail(Error::kBadState);
  if (stag_.value == 0) return {};
  {
    const std::lock_guard lock(device.stag_mutex());
    if (auto removed = device.stags().remove(stag_); !removed) return removed;
  }
  stag_ = Stag{0};
  pd_->drop_user();
  return {};
}

Status MemoryRegionImpl::reregister(ProtectionDomain* pd, void* addr, std::size_t length,
                                    const Access* access) {
  DeviceImpl& device = *pd_->device_impl();
  if (!device.usable() || stag_.value == 0) return fail(Error::kBadState);
  auto to = pd == nullptr ? pd_ : static_cast<ProtectionDomainImpl*>(pd)->shared_from_this();
  if (to->device_impl() != pd_->device_impl()) return fail(Error::kInvalidArgument);
  proto::MemorySpec spec = spec_;
  spec.pd = to->number();
  if (addr != nullptr) {
    spec.addr = static_cast<std::uint8_t*>(addr);
    spec.length = length;
    spec.base = reinterpret_cast<std::uintptr_t>(addr);
  }
  if (access != nullptr) spec.access = *access;
  if (auto legal = check(spec.addr, spec.length, spec.base, spec.access); !legal) return legal;
  {
    const std::lock_guard lock(device.stag_mutex());
    // The new name first: if there is none to be had, nothing has changed.
    const Result<Stag> fresh = device.stags().add(spec);
    if (!fresh) return fail(fresh.error());
    if (auto removed = device.stags().remove(stag_); !removed) {
      (void)device.stags().remove(*fresh);
      return removed;
    }
    stag_ = *fresh;
  }
  to->add_user();
  pd_->drop_user();
  pd_ = std::move(to);
  spec_ = spec;
  return {};
}

}  // namespace weft::verbs
