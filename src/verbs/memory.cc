#include "verbs/memory.h"

#include <cassert>
#include <limits>

#include "os/log.h"
#include "os/memory_probe.h"
#include "verbs/revocation.h"

namespace weft::verbs {

namespace {

// As ProtectionDomain::register_memory() says.
bool legal(const void* addr, std::size_t length, std::uint64_t iova, Access access) {
  constexpr auto kKnown = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead |
                          Access::kRemoteAtomic | Access::kBindWindow | Access::kRemoteInvalidate |
                          Access::kUnchecked;
  if ((static_cast<std::uint32_t>(access) & ~static_cast<std::uint32_t>(kKnown)) != 0) return false;
  if (addr == nullptr && length != 0) return false;
  const auto start = reinterpret_cast<std::uintptr_t>(addr);
  if (length != 0 && (length - 1 > std::numeric_limits<std::uintptr_t>::max() - start ||
                      length - 1 > std::numeric_limits<std::uint64_t>::max() - iova)) {
    return false;
  }
  const bool writable = has(access, Access::kRemoteWrite) || has(access, Access::kRemoteAtomic);
  // A peer must not end what it may not use: memory of ours that it only sees the STag of.
  if (has(access, Access::kRemoteInvalidate) && !writable && !has(access, Access::kRemoteRead)) {
    return false;
  }
  return !writable || has(access, Access::kLocalWrite);
}

// Memory that the peer's octets, or ours, would only find missing when they are copied.
// kUnchecked is a wish of this call alone: it is no right, and the entry does not keep it.
Status check_memory(proto::MemorySpec& spec) {
  if (has(spec.access, Access::kUnchecked)) {
    spec.access = static_cast<Access>(static_cast<std::uint32_t>(spec.access) &
                                      ~static_cast<std::uint32_t>(Access::kUnchecked));
    return {};
  }
  const auto unusable =
      os::probe_memory(spec.addr, spec.length, has(spec.access, Access::kLocalWrite));
  if (!unusable) return {};
  os::log(LogLevel::kInfo, "cannot register {} bytes at {:#x}: {:#x} {}", spec.length,
          reinterpret_cast<std::uintptr_t>(spec.addr), unusable->at, unusable->why);
  return fail(unusable->error);
}

// Gives valid memory another domain or other rights, under the STag that it has.
//   kBusy   windows are bound to it
Status change_rights(MemoryOfDevice& memory, Stag stag, const proto::MemorySpec& spec)
    WEFT_REQUIRES(memory.mutex) {
  if (auto ended = end_access(memory, stag); !ended) return ended;
  proto::MemoryEntry* entry = memory.stags.find(stag);
  assert(entry != nullptr && !entry->is_window && entry->windows == 0);
  entry->spec.access = spec.access;
  entry->spec.pd = spec.pd;
  entry->stag.store(stag.value, std::memory_order_release);  // as bind() enables an entry
  return {};
}

}  // namespace

Result<std::shared_ptr<MemoryRegionImpl>> MemoryRegionImpl::create(
    std::shared_ptr<ProtectionDomainImpl> pd, void* addr, std::size_t length, std::uint64_t iova,
    Access access) {
  if (!pd->device_impl()->usable()) return fail(Error::kBadState);
  if (!legal(addr, length, iova, access)) return fail(Error::kInvalidArgument);
  proto::MemorySpec spec;
  spec.addr = static_cast<std::uint8_t*>(addr);
  spec.length = length;
  spec.base = iova;
  spec.access = access;
  if (auto usable = check_memory(spec); !usable) return fail(usable.error());
  return enter(std::move(pd), spec);
}

namespace {

// As proto::MemoryMethod wants it.
int answer_of(Placed placed) noexcept {
  switch (placed) {
    case Placed::kTaken: return 0;
    case Placed::kLater: return proto::kStoreLater;
    case Placed::kRefused: break;
  }
  return 1;
}

}  // namespace

Result<std::shared_ptr<MemoryRegionImpl>> MemoryRegionImpl::create_target(
    std::shared_ptr<ProtectionDomainImpl> pd, std::shared_ptr<PlacementTarget> target,
    std::uint64_t length, std::uint64_t iova, Access access) {
  auto placer = std::make_unique<Target>();
  placer->target = std::move(target);
  placer->iova = iova;
  placer->method.context = placer.get();
  placer->method.set = [](void* context, std::uint64_t to, const std::uint8_t* octets,
                          std::size_t count) {
    const auto& self = *static_cast<Target*>(context);
    return answer_of(self.target->place(to - self.iova, {octets, count}));
  };
  placer->method.may_wait = true;
  placer->method.get = [](void* context, std::uint64_t to, std::uint8_t* octets,
                          std::size_t count) {
    const auto& self = *static_cast<Target*>(context);
    return answer_of(self.target->fetch(to - self.iova, {octets, count}));
  };
  placer->access = access;
  proto::MemorySpec spec;
  spec.addr = reinterpret_cast<std::uint8_t*>(&placer->method);
  spec.length = length;
  spec.base = iova;
  spec.access = access | proto::kByMethod;
  if (placer->target->gives()) spec.access = spec.access | proto::kGives;
  auto region = enter(std::move(pd), spec);
  // Nobody knows the STag yet, so no peer can be faster.
  if (region) (*region)->target_ = std::move(placer);
  return region;
}

Result<std::shared_ptr<MemoryRegionImpl>> MemoryRegionImpl::enter(
    std::shared_ptr<ProtectionDomainImpl> pd, const proto::MemorySpec& what) {
  DeviceImpl& device = *pd->device_impl();
  if (!device.usable()) return fail(Error::kBadState);
  auto counted = ObjectCount::take(device, ObjectKind::kRegion);
  if (!counted) return fail(counted.error());
  proto::MemorySpec spec = what;
  spec.pd = pd->number();
  std::shared_ptr<MemoryRegionImpl> region(
      new MemoryRegionImpl(std::move(pd), spec, std::move(*counted)));
  const os::MutexLock lock(device.memory().mutex);
  const auto stag = device.stags().add(spec);
  if (!stag) return fail(stag.error());
  region->stag_ = *stag;
  region->pd_->add_user();
  return region;
}

// When a region goes, the windows that are bound to it lose their access: nothing may reach the
// memory any more.
MemoryRegionImpl::~MemoryRegionImpl() {
  if (!device_->usable() || stag_.value == 0) return;
  {
    os::MutexLock lock(device_->memory().mutex);
    end_region(device_->memory(), stag_);
  }
  pd_->drop_user();
}

Status MemoryRegionImpl::deregister() {
  DeviceImpl& device = *pd_->device_impl();
  if (!device.usable()) return fail(Error::kBadState);
  if (stag_.value == 0) return {};
  os::MutexLock lock(device.memory().mutex);
  if (auto ended = end_access(device.memory(), stag_); !ended) return ended;
  device.stags().give_back(stag_);
  lock.unlock();
  stag_ = Stag{};
  pd_->drop_user();
  return {};
}

Status MemoryRegionImpl::reregister(ProtectionDomain* pd, void* addr, std::size_t length,
                                    const Access* access) {
  DeviceImpl& device = *pd_->device_impl();
  if (!device.usable() || stag_.value == 0) return fail(Error::kBadState);
  if (target_ != nullptr && (addr != nullptr || access != nullptr)) {
    return fail(Error::kInvalidArgument);
  }
  auto* new_pd = static_cast<ProtectionDomainImpl*>(pd);
  if (new_pd != nullptr && new_pd->device_impl() != pd_->device_impl()) {
    return fail(Error::kInvalidArgument);
  }
  proto::MemorySpec spec = spec_;
  if (addr != nullptr) {
    spec.addr = static_cast<std::uint8_t*>(addr);
    spec.length = length;
    spec.base = reinterpret_cast<std::uintptr_t>(addr);
  }
  if (access != nullptr) spec.access = *access;
  if (new_pd != nullptr) spec.pd = new_pd->number();
  if (target_ == nullptr && !legal(spec.addr, spec.length, spec.base, spec.access)) {
    return fail(Error::kInvalidArgument);
  }
  if (target_ == nullptr && (addr != nullptr || access != nullptr)) {
    if (auto usable = check_memory(spec); !usable) return usable;
  }

  os::MutexLock lock(device.memory().mutex);
  if (addr == nullptr) {
    // The same memory keeps its keys, as with adapters: peers that have them need no new ones.
    if (auto changed = change_rights(device.memory(), stag_, spec); !changed) return changed;
  } else {
    // The new slot first: if there is none, nothing has changed.
    const auto stag = device.stags().add(spec);
    if (!stag) return fail(stag.error());
    if (auto ended = end_access(device.memory(), stag_); !ended) {
      static_cast<void>(device.stags().remove(*stag));  // nobody knows it: there is no pin
      return ended;
    }
    device.stags().give_back(stag_);
    stag_ = *stag;
  }
  spec_ = spec;
  if (new_pd != nullptr && new_pd != pd_.get()) {
    new_pd->add_user();
    pd_->drop_user();
    pd_ = new_pd->shared_from_this();
  }
  return {};
}

}  // namespace weft::verbs
