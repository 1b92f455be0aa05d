#include "rsockets/rs_maps.h"

#include <algorithm>
#include <utility>

namespace weft::rsockets {

Status RsMaps::add(ProtectionDomain& pd, void* addr, std::size_t length, bool writable,
                   std::uint64_t offset) {
  Mapping mapping;
  mapping.addr = addr;
  mapping.length = length;
  mapping.offered = writable;
  if (writable) {
    const auto free = std::find(slots_.begin(), slots_.end(), false);
    if (free == slots_.end()) return fail(Error::kNoSpace);
    mapping.slot = static_cast<std::uint16_t>(free - slots_.begin());
  }
  const Access access = writable ? Access::kLocalWrite | Access::kRemoteWrite : Access::kLocalWrite;
  auto region = pd.register_memory(addr, length, access);
  if (!region) return fail(region.error());
  mapping.region = std::move(*region);
  if (writable) {
    slots_[mapping.slot] = true;
    const RsSge sge{mapping.region->iova(), mapping.region->rkey(),
                    static_cast<std::uint32_t>(length)};
    offers_.push_back({mapping.slot, RsIomap{offset, sge}});
  }
  mappings_.push_back(std::move(mapping));
  return {};
}

Status RsMaps::remove(void* addr, std::size_t length) {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& m) {
    return m.addr == addr && m.length == length;
  });
  if (found == mappings_.end()) return fail(Error::kNotFound);
  if (found->offered) {
    assert(slots_[found->slot]);
    std::erase_if(offers_, [&](const Offer& offer) { return offer.slot == found->slot; });
    slots_[found->slot] = false;
  }
  mappings_.erase(found);
  return {};
}

}  // namespace weft::rsockets
