#include "sockets/grant/grant_words.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace weft::sockets {

namespace {

// A reader may copy octets that the writer overwrites after a take-back. Its claim then fails, and
// the copy is not used.
void copy_octets(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes) {
#if defined(__SANITIZE_THREAD__)
  for (std::uint64_t i = 0; i < bytes; ++i) {
    const std::uint8_t octet = __atomic_load_n(from + i, __ATOMIC_RELAXED);
    __atomic_store_n(to + i, octet, __ATOMIC_RELAXED);
  }
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace

void GrantMemory::put(std::uint64_t position, std::uint64_t offset, std::uint64_t bytes) {
  assert(bytes <= ring_bytes_);
  const std::uint64_t at = position & (ring_bytes_ - 1);
  const std::uint64_t first = std::min(bytes, ring_bytes_ - at);
  copy_octets(ring_ + at, source_ + offset, first);
  copy_octets(ring_, source_ + offset + first, bytes - first);
}

void GrantMemory::get(std::uint64_t position, std::uint64_t offset, std::uint64_t bytes) const {
  assert(bytes <= ring_bytes_);
  const std::uint64_t at = position & (ring_bytes_ - 1);
  const std::uint64_t first = std::min(bytes, ring_bytes_ - at);
  copy_octets(target_ + offset, ring_ + at, first);
  copy_octets(target_ + offset + first, ring_, bytes - first);
}

}  // namespace weft::sockets
