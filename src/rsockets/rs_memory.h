// Memory of a stream that its queue pair reads or writes: octets and their registration.
//
// Values, in the order of their ends: the registration is gone before the octets.
#pragma once

#include <weft/device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace weft::rsockets {

class RsMemory {
 public:
  // Once.
  //   as ProtectionDomain::register_memory() reports it
  [[nodiscard]] Status create(ProtectionDomain& pd, std::size_t bytes, Access access) {
    octets_.resize(bytes);
    auto made = pd.register_memory(octets_.data(), octets_.size(), access);
    if (!made) return fail(made.error());
    region_ = std::move(*made);
    return {};
  }

  [[nodiscard]] std::uint8_t* at(std::size_t offset) { return &octets_[offset]; }
  [[nodiscard]] const std::uint8_t* at(std::size_t offset) const { return &octets_[offset]; }
  [[nodiscard]] std::size_t size() const { return octets_.size(); }
  [[nodiscard]] const MemoryRegion& region() const { return *region_; }
  // For an SGE of our own.
  [[nodiscard]] Sge sge(std::size_t offset, std::size_t length) const {
    return {reinterpret_cast<std::uintptr_t>(at(offset)), static_cast<std::uint32_t>(length),
            region_->lkey()};
  }

 private:
  std::vector<std::uint8_t> octets_;
  std::shared_ptr<MemoryRegion> region_;
};

}  // namespace weft::rsockets
