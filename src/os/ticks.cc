#include "os/ticks.h"

#include <algorithm>

#include "os/clock.h"

namespace weft::os {

namespace {

std::uint64_t measure() noexcept {
  constexpr std::int64_t kNsToMeasure = 50'000;
  constexpr std::int64_t kNsPerUs = 1000;
  const Instant start = now();
  const std::uint64_t first = cpu_ticks();
  Instant end = start;
  while ((end - start).count() < kNsToMeasure) end = now();
  const std::uint64_t ticks = cpu_ticks() - first;
  const auto ns = static_cast<std::uint64_t>((end - start).count());
  return std::max<std::uint64_t>(1, ticks * kNsPerUs / ns);
}

}  // namespace

std::uint64_t ticks_per_us() noexcept {
  static const std::uint64_t measured = measure();
  return measured;
}

}  // namespace weft::os
