#include "verbs/window.h"

#include <cassert>

#include "verbs/memory.h"
#include "verbs/random.h"
#include "verbs/revocation.h"

namespace weft::verbs {

namespace {

constexpr auto kWindowRights =
    Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic | Access::kZeroBased;

// The slot of an STag in use, valid or not.
proto::MemoryEntry* entry_in_use(MemoryOfDevice& memory, Stag stag) WEFT_REQUIRES(memory.mutex) {
  proto::MemoryEntry* entry = memory.stags.find(stag);
  return entry == nullptr || entry->spec.pd == 0 ? nullptr : entry;
}

bool is_valid(const proto::MemoryEntry& entry) {
  return entry.stag.load(std::memory_order_relaxed) != 0;
}

}  // namespace

Result<std::shared_ptr<MemoryWindowImpl>> MemoryWindowImpl::create(
    std::shared_ptr<ProtectionDomainImpl> pd, Type type) {
  DeviceImpl& device = *pd->device_impl();
  if (!device.usable()) return fail(Error::kBadState);
  if (type != Type::kType1 && type != Type::kType2) return fail(Error::kInvalidArgument);
  auto counted = ObjectCount::take(device, ObjectKind::kWindow);
  if (!counted) return fail(counted.error());
  std::shared_ptr<MemoryWindowImpl> window(
      new MemoryWindowImpl(std::move(pd), type, std::move(*counted)));
  if (auto done = window->allocate(); !done) return fail(done.error());
  return window;
}

// Its destructor's release is noted at once.
Status MemoryWindowImpl::allocate() {
  assert(slot_.value == 0);
  DeviceImpl& device = *pd_->device_impl();
  const os::MutexLock lock(device.memory().mutex);
  const auto stag = device.stags().allocate_window(pd_->number());
  if (!stag) return fail(stag.error());
  slot_ = *stag;
  stag_.store(stag->value, std::memory_order_relaxed);
  pd_->add_user();
  device.memory().windows.emplace(stag->index(), this);
  return {};
}

MemoryWindowImpl::~MemoryWindowImpl() {
  DeviceImpl& device = *pd_->device_impl();
  if (!device.usable() || slot_.value == 0) return;
  {
    os::MutexLock lock(device.memory().mutex);
    device.memory().windows.erase(slot_.index());
    // Its key is that of the last bind carried out, which may be older than the last one posted.
    const Stag stag = Stag::of(slot_.index(), device.stags().find(slot_)->keys[0]);
    if (end_access(device.memory(), stag)) device.stags().give_back(stag);
  }
  pd_->drop_user();
}

bool MemoryWindowImpl::bound() const {
  DeviceImpl& device = *pd_->device_impl();
  if (!device.usable()) return false;
  const os::MutexLock lock(device.memory().mutex);
  const proto::MemoryEntry* entry = device.stags().find(slot_);
  return entry != nullptr && is_valid(*entry);
}

Status prepare_bind(const SendWr& wr, ProtectionDomainImpl& pd, proto::SendWqe& wqe) {
  auto* window = static_cast<MemoryWindowImpl*>(wr.window);
  auto* region = static_cast<MemoryRegionImpl*>(wr.window_region);
  if (window == nullptr || window->pd_.get() != &pd) return fail(Error::kInvalidArgument);
  const bool unbinds = wr.window_length == 0;
  if (!unbinds && (region == nullptr || region->pd().get() != &pd)) {
    return fail(Error::kInvalidArgument);
  }
  const auto unknown =
      static_cast<std::uint32_t>(wr.window_access) & ~static_cast<std::uint32_t>(kWindowRights);
  if (unknown != 0) return fail(Error::kInvalidArgument);
  const bool is_type1 = window->type_ == MemoryWindow::Type::kType1;
  // InfiniBand's o10-36.2.2.
  if (is_type1 && has(wr.window_access, Access::kZeroBased)) return fail(Error::kInvalidArgument);

  Stag stag{wr.rkey};
  if (is_type1) {
    // Any key but the present one; the table refuses that.
    const auto old = static_cast<std::uint8_t>(window->rkey());
    stag =
        Stag::of(window->slot_.index(), static_cast<std::uint8_t>(old + 1U + random_u32() % 255U));
    if (stag.value == 0) stag = Stag::of(0, static_cast<std::uint8_t>(old == 1 ? 2 : 1));
  } else {
    // The consumer owns the key alone; what it says of the index does not count, as on adapters.
    stag = Stag::of(window->slot_.index(), stag.key());
  }
  wqe.remote_stag = stag;
  wqe.remote_to = wr.remote_addr;
  wqe.length = 0;
  proto::BindArgs& args = proto::bind_args(wqe);
  args.region = Stag{region == nullptr ? 0 : region->lkey()};
  args.access = wr.window_access;
  args.length = wr.window_length;
  window->stag_.store(stag.value, std::memory_order_relaxed);
  return {};
}

WcStatus execute_bind(ProtectionDomainImpl& pd, proto::StreamId id, proto::SendWqe& wqe) {
  DeviceImpl& device = *pd.device_impl();
  const proto::BindArgs args = proto::bind_args(wqe);
  const Stag stag = wqe.remote_stag;
  os::MutexLock lock(device.memory().mutex);
  bool is_type1 = false;
  for (;;) {
    const auto found = device.memory().windows.find(stag.index());
    if (found == device.memory().windows.end() || found->second->pd_.get() != &pd) {
      return WcStatus::kWindowBind;
    }
    is_type1 = found->second->type_ == MemoryWindow::Type::kType1;
    // Type 2 ends by invalidation, never by a bind to nothing (InfiniBand's o10-37.2.40).
    if (!is_type1 && args.length == 0) return WcStatus::kWindowBind;
    const proto::MemoryEntry* window = device.stags().find(stag);
    assert(window != nullptr && window->is_window);
    if (window->region == nullptr) break;
    // Type 1 changes hands in one step; type 2 has to be invalidated first.
    if (is_valid(*window) && !is_type1) return WcStatus::kWindowBind;
    // Others may change the window while this waits, so it is looked up again.
    static_cast<void>(end_access(device.memory(), Stag::of(stag.index(), window->keys[0])));
  }
  if (args.length == 0) return WcStatus::kSuccess;

  const proto::MemoryEntry* region = entry_in_use(device.memory(), args.region);
  if (region == nullptr || wqe.remote_to < region->spec.base ||
      wqe.remote_to - region->spec.base > region->spec.length) {
    return WcStatus::kWindowBind;
  }
  proto::MemorySpec spec;
  spec.addr = region->spec.addr + (wqe.remote_to - region->spec.base);
  spec.length = args.length;
  spec.base = wqe.remote_to;
  spec.access = args.access;
  spec.stream = is_type1 ? 0 : id.stream;
  return device.stags().bind(stag, args.region, spec) ? WcStatus::kSuccess : WcStatus::kWindowBind;
}

WcStatus execute_local_invalidate(ProtectionDomainImpl& pd, proto::StreamId id,
                                  const proto::SendWqe& wqe) {
  DeviceImpl& device = *pd.device_impl();
  const Stag stag = wqe.remote_stag;
  os::MutexLock lock(device.memory().mutex);
  const proto::MemoryEntry* entry = entry_in_use(device.memory(), stag);
  if (entry == nullptr || entry->spec.pd != id.pd) return WcStatus::kWindowBind;
  // Type 1 windows are unbound by a bind, not invalidated.
  if (entry->is_window && is_valid(*entry) && entry->spec.stream != id.stream) {
    return WcStatus::kWindowBind;
  }
  return end_access(device.memory(), stag) ? WcStatus::kSuccess : WcStatus::kWindowBind;
}

proto::Violation execute_remote_invalidate(ProtectionDomainImpl& pd, proto::StreamId id,
                                           Stag stag) {
  using proto::Violation;
  DeviceImpl& device = *pd.device_impl();
  os::MutexLock lock(device.memory().mutex);
  const proto::MemoryEntry* entry = entry_in_use(device.memory(), stag);
  if (entry == nullptr) return Violation::kInvalidateOperation;
  if (entry->spec.pd != id.pd || entry->keys[0] != stag.key()) {
    return Violation::kInvalidateProtection;
  }
  if (!entry->is_window && !has(entry->spec.access, Access::kRemoteInvalidate)) {
    return Violation::kInvalidateOperation;
  }
  if (is_valid(*entry)) {
    if (entry->is_window) {
      if (entry->spec.stream != id.stream) return Violation::kInvalidateProtection;
    } else if (entry->windows != 0 || pd.qps() != 1) {
      return Violation::kInvalidateOperation;
    }
  }
  // kNotFound: meanwhile its owner has removed it, or bound the window anew.
  const Status ended = end_access(device.memory(), stag);
  return ended || ended.error() == Error::kNotFound ? Violation::kNone
                                                    : Violation::kInvalidateOperation;
}

}  // namespace weft::verbs
