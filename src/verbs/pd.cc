#include "verbs/pd.h"

namespace weft::verbs {

Result<std::shared_ptr<ProtectionDomainImpl>> ProtectionDomainImpl::create(
    std::shared_ptr<DeviceImpl> device) {
  auto counted = ObjectCount::take(*device, ObjectKind::kPd);
  if (!counted) return fail(counted.error());
  return std::shared_ptr<ProtectionDomainImpl>(
      new ProtectionDomainImpl(std::move(device), std::move(*counted)));
}

std::size_t ProtectionDomainImpl::users() const { return users_.load(std::memory_order_relaxed); }

}  // namespace weft::verbs
