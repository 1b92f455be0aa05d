// A sum over memory of the program, which may have been unmapped.
#pragma once

#include <span>

#include "check/sources.h"

namespace weft::check {

// Large memory counts by some pieces only. Unknown is memory that the system does not let this
// process look at, or that the program has protected against reading. Any thread.
[[nodiscard]] Summed sum_of(std::span<const Octets> octets);

}  // namespace weft::check
