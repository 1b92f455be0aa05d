#include "check/module/sum.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "check/sources.h"

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

}  // namespace

std::optional<std::uint64_t> sum_of(std::span<const Octets> octets) {
  std::array<std::uint8_t, kChunk> chunk;
  std::array<iovec, kParts> parts;
  std::uint64_t sum = 1;
  std::size_t count = 0, size = 0;
  const auto flush = [&] {
    const iovec to{chunk.data(), size};
    const bool read = size == 0 || process_vm_readv(getpid(), &to, 1, parts.data(), count, 0) ==
                                       static_cast<ssize_t>(size);
    if (read) sum = add(sum, std::span(chunk).first(size));
    count = size = 0;
    return read;
  };
  for (const Octets& one : samples(octets)) {
    if ((count == kParts || size + one.length > kChunk) && !flush()) return std::nullopt;
    parts[count++] = {reinterpret_cast<void*>(one.addr), one.length};
    size += one.length;
  }
  if (!flush()) return std::nullopt;
  return sum;
}

}  // namespace weft::check
