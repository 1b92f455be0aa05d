// Runs a random test once for each seed.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "rng.h"

namespace weft::testing {

// Calls `body(seed)` for `count` seeds, or for those that the environment asks for (test_seeds),
// and stops after the first that fails. A failure names its seed.
template <class Body>
void for_each_seed(std::uint64_t count, Body body) {
  const Seeds seeds = test_seeds(1, count);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    SCOPED_TRACE("WEFT_SEED=" + std::to_string(seed));
    body(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace weft::testing
