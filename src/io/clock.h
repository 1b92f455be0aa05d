// The clock of the engine. The protocol core reads none: it is handed Instants made here.
#pragma once

#include <time.h>

#include "base/time.h"

namespace weft::io {

// CLOCK_MONOTONIC. About 20 ns, no system call. Any thread.
[[nodiscard]] inline Instant now() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant{static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec};
}

}  // namespace weft::io
