#include "rddp/domain.h"

#include <limits>

namespace weft::rddp {

namespace {

// Local SGEs name memory by its address. The first octet of the address space is left out, so that
// no pointer arithmetic begins at null.
constexpr std::uint64_t kLocalBase = 1;

std::uint64_t secret_of(proto::StagTable::RandomFn random) {
  return std::uint64_t{random()} << 32U | random();
}

}  // namespace

Domain::Domain(proto::StagTable::RandomFn random, std::uint32_t regions_max)
    : table_(secret_of(random), random, entries(regions_max)) {
  add_local();
}

Domain::Domain(proto::StagTable::RandomFn random, std::uint32_t regions_max,
               std::span<std::byte> memory)
    : table_(secret_of(random), random, entries(regions_max), Arena(memory)) {
  if (memory.size() >= memory_needed(regions_max)) add_local();
}

void Domain::add_local() {
  proto::MemorySpec all;
  // The verbs carry addresses as numbers. NOLINTNEXTLINE(performance-no-int-to-ptr)
  all.addr = reinterpret_cast<std::uint8_t*>(static_cast<std::uintptr_t>(kLocalBase));
  all.length = std::numeric_limits<std::uintptr_t>::max() - kLocalBase;
  all.base = kLocalBase;
  all.access = Access::kLocalWrite;
  all.pd = kPd;
  local_ = table_.add(all).value_or(Stag{});
}

Result<Stag> Domain::add(void* addr, std::size_t size, std::uint64_t base, Access remote,
                         std::uint32_t stream) {
  if (addr == nullptr && size != 0) return fail(Error::kInvalidArgument);
  proto::MemorySpec spec;
  spec.addr = static_cast<std::uint8_t*>(addr);
  spec.length = size;
  spec.base = base;
  spec.access = remote | Access::kLocalWrite;
  spec.stream = stream;
  return add(spec);
}

Result<Stag> Domain::add(proto::MemorySpec spec) {
  if (!good()) return fail(Error::kNoMemory);
  if (spec.length > std::numeric_limits<std::uint64_t>::max() - spec.base) {
    return fail(Error::kInvalidArgument);
  }
  spec.pd = kPd;
  return table_.add(spec);
}

// Invalidation waits until nobody uses the memory. Here it would wait forever: the acknowledgment
// that ends the use is handled by the same thread. So it is refused instead.
bool Domain::in_flight(Stag stag) const noexcept {
  const proto::MemoryEntry* entry = table_.find(stag);
  return entry != nullptr && entry->pins.load(std::memory_order_acquire) != 0;
}

Status Domain::remove(Stag stag) {
  if (in_flight(stag)) return fail(Error::kBusy);
  return table_.remove(stag);
}

Status Domain::invalidate(Stag stag) {
  if (in_flight(stag)) return fail(Error::kBusy);
  return table_.invalidate(stag);
}

}  // namespace weft::rddp
