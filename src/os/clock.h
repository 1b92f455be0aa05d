// The clocks of the system, and the times that system calls take.
#pragma once

#include <time.h>

#include <cstdint>

#include "base/time.h"

namespace weft::os {

inline constexpr std::int64_t kNsPerSecond = 1'000'000'000;

[[nodiscard]] constexpr std::int64_t ns_of(const timespec& t) noexcept {
  return static_cast<std::int64_t>(t.tv_sec) * kNsPerSecond + t.tv_nsec;
}
// Right for times before 1970 as well.
[[nodiscard]] constexpr timespec timespec_of(std::int64_t ns) noexcept {
  const std::int64_t part = (ns % kNsPerSecond + kNsPerSecond) % kNsPerSecond;
  return {static_cast<time_t>((ns - part) / kNsPerSecond), static_cast<long>(part)};
}

[[nodiscard]] inline std::int64_t clock_ns(clockid_t clock) noexcept {
  timespec t{};
  clock_gettime(clock, &t);
  return ns_of(t);
}
// About 20 ns, no system call. Any thread.
[[nodiscard]] inline std::int64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }
// The same as an Instant. The protocol core reads no clock: it is handed Instants made here.
[[nodiscard]] inline Instant now() noexcept { return Instant{monotonic_ns()}; }

// Seconds since 1970, as files have them.
[[nodiscard]] inline time_t wall_seconds() noexcept {
  return static_cast<time_t>(clock_ns(CLOCK_REALTIME) / kNsPerSecond);
}

// Sleeps so long, or until a signal has been handled. A cancellation point.
inline void nap(std::int64_t ns) {
  const timespec t = timespec_of(ns);
  clock_nanosleep(CLOCK_MONOTONIC, 0, &t, nullptr);
}

}  // namespace weft::os
