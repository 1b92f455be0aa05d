// The CPU's constant-rate counter: cheaper than any clock call, good for "was this a moment ago".
#pragma once

#include <cstdint>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <chrono>
#endif

namespace weft::os {

[[nodiscard]] inline std::uint64_t cpu_ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// Measured once against the clock, in some 50 us. Any thread.
[[nodiscard]] std::uint64_t ticks_per_us() noexcept;

}  // namespace weft::os
