// Failures that say nothing about what was asked for: there is no memory, or no descriptor, now.
#pragma once

#include <cerrno>

namespace weft::os {

// Judges an errno. The same call may succeed later.
[[nodiscard]] constexpr bool is_lack(int error) noexcept {
  return error == ENOMEM || error == ENOBUFS || error == EMFILE || error == ENFILE;
}

}  // namespace weft::os
