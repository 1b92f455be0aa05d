// The clock of the engine. The protocol core reads none: it is handed Instants made here.
#pragma once

#include "base/time.h"
#include "os/clock.h"

namespace weft::io {

// CLOCK_MONOTONIC. About 20 ns, no system call. Any thread.
[[nodiscard]] inline Instant now() noexcept { return Instant{os::monotonic_ns()}; }

}  // namespace weft::io
