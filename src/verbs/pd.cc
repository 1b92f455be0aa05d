#include "verbs/pd.h"

#include "os/guarded.h"
#include "verbs/memory.h"
#include "verbs/oob/datagram_qp.h"
#include "verbs/qp.h"
#include "verbs/srq.h"
#include "verbs/window.h"

namespace weft::verbs {

Result<std::shared_ptr<ProtectionDomainImpl>> ProtectionDomainImpl::create(
    std::shared_ptr<DeviceImpl> device) {
  auto counted = ObjectCount::take(*device, ObjectKind::kPd);
  if (!counted) return fail(counted.error());
  return std::shared_ptr<ProtectionDomainImpl>(
      new ProtectionDomainImpl(std::move(device), std::move(*counted)));
}

std::size_t ProtectionDomainImpl::users() const { return users_.load(std::memory_order_relaxed); }

Result<std::shared_ptr<MemoryRegion>> ProtectionDomainImpl::register_memory(void* addr,
                                                                            std::size_t length,
                                                                            Access access) {
  return register_memory_iova(addr, length, reinterpret_cast<std::uintptr_t>(addr), access);
}

Result<std::shared_ptr<MemoryRegion>> ProtectionDomainImpl::register_memory_iova(void* addr,
                                                                                 std::size_t length,
                                                                                 std::uint64_t iova,
                                                                                 Access access) {
  return os::guarded(
      [&] { return MemoryRegionImpl::create(shared_from_this(), addr, length, iova, access); });
}

Result<std::shared_ptr<MemoryWindow>> ProtectionDomainImpl::create_window(MemoryWindow::Type type) {
  return os::guarded([&] { return MemoryWindowImpl::create(shared_from_this(), type); });
}

Result<std::shared_ptr<QueuePair>> ProtectionDomainImpl::create_qp(const QpOptions& options) {
  return os::guarded([&] {
    if (options.type == QpType::kUd) return DatagramQp::create(shared_from_this(), options);
    return QueuePairImpl::create(shared_from_this(), options);
  });
}

Result<std::shared_ptr<SharedReceiveQueue>> ProtectionDomainImpl::create_srq(
    const SrqOptions& options) {
  return os::guarded([&] { return SharedReceiveQueueImpl::create(shared_from_this(), options); });
}

QpOfDomain::QpOfDomain(ProtectionDomainImpl& pd, SharedReceiveQueueImpl* srq) noexcept
    : pd_(pd), srq_(srq) {
  pd_.add_user();
  pd_.add_qp();
  if (srq_ != nullptr) srq_->add_user();
}

QpOfDomain::~QpOfDomain() {
  if (srq_ != nullptr) srq_->drop_user();
  pd_.drop_qp();
  pd_.drop_user();
}

}  // namespace weft::verbs
