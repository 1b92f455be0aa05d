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

GrantShared::Word& GrantMemory::word(GrantWord w) const {
  const auto at = static_cast<std::size_t>(w);
  constexpr auto kBoth = static_cast<std::size_t>(GrantWord::kTake);
  constexpr auto kReader = static_cast<std::size_t>(GrantWord::kWindow);
  constexpr auto kOwnReader = static_cast<std::size_t>(GrantWord::kInKernel);
  constexpr auto kOwnWriter = static_cast<std::size_t>(GrantWord::kPosition);
  if (at < kBoth) return shared_.by_writer.at(at);
  if (at < kReader) return shared_.by_both[0];
  if (at < kOwnReader) return shared_.by_reader.at(at - kReader);
  if (at < kOwnWriter) return own_.reader[0];
  return own_.writer.at(at - kOwnWriter);
}

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
