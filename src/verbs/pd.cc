#include "verbs/pd.h"

#include "verbs/datagram_qp.h"
#include "verbs/memory.h"
#include "verbs/qp.h"
#include "verbs/srq.h"
#include "verbs/window.h"

namespace weft::verbs {

Result<std::shared_ptr<ProtectionDomainImpl>> ProtectionDomainImpl::create(
    std::shared_ptr<DeviceImpl> device) {
  if (auto taken = device->acquire(ObjectKind::kPd); !taken) return fail(taken.error());
  return std::shared_ptr<ProtectionDomainImpl>(new ProtectionDomainImpl(std::move(device)));
}

ProtectionDomainImpl::~ProtectionDomainImpl() {
  device_->free_number(number_);
  device_->release(ObjectKind::kPd);
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
  return MemoryRegionImpl::create(shared_from_this(), addr, length, iova, access);
}

Result<std::shared_ptr<MemoryWindow>> ProtectionDomainImpl::create_window(MemoryWindow::Type type) {
  return MemoryWindowImpl::create(shared_from_this(), type);
}

Result<std::shared_ptr<QueuePair>> ProtectionDomainImpl::create_qp(const QpOptions& options) {
  if (options.type == QpType::kUd) return DatagramQp::create(shared_from_this(), options);
  return QueuePairImpl::create(shared_from_this(), options);
}

Result<std::shared_ptr<SharedReceiveQueue>> ProtectionDomainImpl::create_srq(
    const SrqOptions& options) {
  return SharedReceiveQueueImpl::create(shared_from_this(), options);
}

}  // namespace weft::verbs
