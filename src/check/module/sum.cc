#include "check/module/sum.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace weft::check {
namespace {

constexpr std::size_t kChunk = 1U << 14U;  // no sample is longer
constexpr std::size_t kParts = 32;

std::uint64_t add(std::uint64_t sum, std::span<const std::uint8_t> octets) {
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15U;
  while (!octets.empty()) {
    std::uint64_t word = 0;
    const std::size_t size = std::min(octets.size(), sizeof word);
    std::memcpy(&word, octets.data(), size);
    sum = (sum ^ word) * kPrime;
    sum ^= sum >> 32U;
    octets = octets.subspan(size);
  }
  return sum;
}

// A part of it is mapped no more: what cannot be read may only be protected.
bool is_unmapped(std::span<const iovec> parts) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  std::array<unsigned char, kChunk / 4096 + 1> resident;
  return std::ranges::any_of(parts, [&](const iovec& part) {
    const auto at = reinterpret_cast<std::uintptr_t>(part.iov_base);
    const std::uintptr_t first = at / page * page;
    return mincore(reinterpret_cast<void*>(first), at + part.iov_len - first, resident.data()) !=
               0 &&
           errno == ENOMEM;
  });
}

}  // namespace

Summed sum_of(std::span<const Octets> octets) {
  std::array<std::uint8_t, kChunk> chunk;
  std::array<iovec, kParts> parts;
  std::uint64_t sum = 1;
  std::size_t count = 0, size = 0;
  const auto flush = [&] {
    const iovec to{chunk.data(), size};
    const ssize_t got = size != 0 ? process_vm_readv(getpid(), &to, 1, parts.data(), count, 0) : 0;
    if (got != static_cast<ssize_t>(size)) {
      const bool fault = got >= 0 || errno == EFAULT;
      const bool gone = fault && is_unmapped(std::span(parts).first(count));
      return gone ? Memory::kGone : Memory::kUnknown;
    }
    sum = add(sum, std::span(chunk).first(size));
    count = size = 0;
    return Memory::kThere;
  };
  for (const Octets& one : samples(octets)) {
    if (count == kParts || size + one.length > kChunk) {
      if (const Memory memory = flush(); memory != Memory::kThere) return {memory};
    }
    parts[count++] = {reinterpret_cast<void*>(one.addr), one.length};
    size += one.length;
  }
  const Memory memory = flush();
  return {memory, sum};
}

}  // namespace weft::check
