#include "weft/common/pattern.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace weft::cli {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

// Eight bytes of the pattern, in little-endian order on every machine: both sides must agree.
std::uint64_t word_at(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = (seed ^ (index * 0x9e3779b97f4a7c15ULL)) * 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 29U;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 32U;
  if constexpr (std::endian::native == std::endian::big) x = __builtin_bswap64(x);
  return x;
}

}  // namespace

std::uint64_t pattern_seed(std::uint32_t connection, std::uint64_t message) {
  return (std::uint64_t{connection} + 1) * 0xd1342543de82ef95ULL + message * 0x2545f4914f6cdd1dULL;
}

void fill_pattern(std::span<std::uint8_t> bytes, std::uint64_t seed) {
  std::size_t at = 0;
  std::uint64_t index = 0;
  for (; at + kWord <= bytes.size(); at += kWord) {
    const std::uint64_t word = word_at(seed, index++);
    std::memcpy(bytes.data() + at, &word, kWord);
  }
  if (at == bytes.size()) return;
  const std::uint64_t word = word_at(seed, index);
  std::memcpy(bytes.data() + at, &word, bytes.size() - at);
}

std::optional<Mismatch> check_pattern(std::span<const std::uint8_t> bytes, std::uint64_t seed) {
  std::uint64_t index = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kWord, ++index) {
    const std::size_t size = bytes.size() - at < kWord ? bytes.size() - at : kWord;
    const std::uint64_t word = word_at(seed, index);
    if (std::memcmp(bytes.data() + at, &word, size) == 0) continue;
    std::uint8_t expected[kWord];
    std::memcpy(expected, &word, kWord);
    for (std::size_t i = 0; i < size; ++i) {
      if (bytes[at + i] != expected[i]) return Mismatch{at + i, expected[i], bytes[at + i]};
    }
  }
  return std::nullopt;
}

Failure describe_mismatch(std::uint32_t connection, std::uint64_t message,
                          const Mismatch& mismatch) {
  return {
      fmt::format("verification failed: message {} of connection {}: byte {} is {:#04x} where "
                  "{:#04x} was sent",
                  message, connection, mismatch.offset, mismatch.found, mismatch.expected)};
}

}  // namespace weft::cli
