#include "os/ticks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "os/clock.h"

namespace weft::os {
namespace {

// How far a measure of 10 ms by ticks is from the clock, as a part of it.
double error_of_one_measure() {
  const Instant start = now();
  const std::uint64_t first = cpu_ticks();
  Instant end = start;
  while (end - start < Duration(10'000'000)) end = now();
  const double us = static_cast<double>(cpu_ticks() - first) / static_cast<double>(ticks_per_us());
  return std::abs(us * 1000.0 / static_cast<double>((end - start).count()) - 1.0);
}

TEST(Ticks, AreThoseOfTheClock) {
  double best = 1.0;
  // Whoever is not run between the two readings measures something else.
  for (int i = 0; i < 10; ++i) best = std::min(best, error_of_one_measure());
  EXPECT_LT(best, 0.05);
  EXPECT_EQ(ticks_per_us(), ticks_per_us());
}

}  // namespace
}  // namespace weft::os
