// Errors that carry an errno: the operating system refused, and this is what it said.
//
// Such an Error is a value outside the list of result.h. describe() names those that a user can do
// something about. Pure functions, any thread.
#pragma once

#include <weft/result.h>

#pragma GCC visibility push(default)
namespace weft {

// REQUIRES: 0 < number < 4096, as every errno of Linux is.
[[nodiscard]] constexpr Error system_error(int number) noexcept {
  return static_cast<Error>(0x1000 + number);
}

// The errno that `error` carries; 0 when it carries none.
[[nodiscard]] constexpr int system_errno(Error error) noexcept {
  const auto value = static_cast<int>(error);
  return value > 0x1000 && value < 0x2000 ? value - 0x1000 : 0;
}

}  // namespace weft
#pragma GCC visibility pop
