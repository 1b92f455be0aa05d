// Points and spans of time. No clock is read here: the owner of a clock passes an Instant in.
//
// Plain values, any thread.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

namespace weft {

using Duration = std::chrono::nanoseconds;

// A point of a monotonic clock, in nanoseconds since an origin that means nothing. never() lies
// after every other point and stays never() whatever is added to it, so the earliest of several
// deadlines is their minimum and "no deadline" needs no special case.
struct Instant {
  std::int64_t ns = 0;

  [[nodiscard]] static constexpr Instant never() noexcept {
    return Instant{std::numeric_limits<std::int64_t>::max()};
  }
  [[nodiscard]] constexpr bool is_never() const noexcept { return *this == never(); }

  // Saturates at never() instead of wrapping. REQUIRES: d is not so negative that it underflows.
  friend constexpr Instant operator+(Instant t, Duration d) noexcept {
    if (t.is_never()) return t;
    if (d.count() > 0 && t.ns > never().ns - d.count()) return never();
    return Instant{t.ns + d.count()};
  }
  friend constexpr Instant operator-(Instant t, Duration d) noexcept {
    if (t.is_never()) return t;
    return Instant{t.ns - d.count()};
  }
  friend constexpr Duration operator-(Instant later, Instant earlier) noexcept {
    return Duration{later.ns - earlier.ns};
  }
  constexpr Instant& operator+=(Duration d) noexcept { return *this = *this + d; }

  constexpr auto operator<=>(const Instant&) const = default;
};

}  // namespace weft
