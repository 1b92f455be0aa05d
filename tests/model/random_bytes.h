// Octets for tests that try many.
#pragma once

#include <cstddef>

#include "../sim/rng.h"
#include "../unit/wire_testing.h"

namespace weft::testing {

inline Bytes random_bytes(Rng& rng, std::size_t size) {
  Bytes out(size);
  for (auto& octet : out) octet = rng.octet();
  return out;
}

}  // namespace weft::testing
