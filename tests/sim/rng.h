// Seeded random numbers that are the same on every machine, and the seed of a test run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace weft::testing {

// splitmix64: small, and any seed is a good one.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  // Inclusive at both ends.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + next() % (high - low + 1);
  }
  std::size_t size(std::size_t low, std::size_t high) {
    return static_cast<std::size_t>(between(low, high));
  }
  std::uint32_t u32(std::uint32_t low, std::uint32_t high) {
    return static_cast<std::uint32_t>(between(low, high));
  }
  bool one_in(std::uint64_t n) { return next() % n == 0; }
  std::uint8_t octet() { return static_cast<std::uint8_t>(next()); }

 private:
  std::uint64_t state_;
};

// Which seeds a test tries. WEFT_SEED=n: this one alone. WEFT_SEEDS=f: f times as many; 0.25 is a
// quarter of them, and at least one.
struct Seeds {
  std::uint64_t first = 1;
  std::uint64_t count = 1;
};
inline Seeds test_seeds(std::uint64_t first, std::uint64_t count) {
  if (const char* text = std::getenv("WEFT_SEED")) return {std::strtoull(text, nullptr, 0), 1};
  if (const char* text = std::getenv("WEFT_SEEDS")) {
    const double asked = static_cast<double>(count) * std::strtod(text, nullptr);
    count = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(asked));
  }
  return {first, count};
}

}  // namespace weft::testing
