// Well mixed bits of a number, the same everywhere: SplitMix64 (Steele, Lea and Flood, 2014). For
// dice with a seed and for spreading; not for secrets by itself.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr std::uint64_t kMixStep = 0x9e3779b97f4a7c15U;  // 2^64 / golden ratio, odd

[[nodiscard]] constexpr std::uint64_t mixed_bits(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

// The next word of the sequence that begins with the seed `state`.
[[nodiscard]] constexpr std::uint64_t next_mixed(std::uint64_t& state) noexcept {
  return mixed_bits(state += kMixStep);
}

}  // namespace weft
