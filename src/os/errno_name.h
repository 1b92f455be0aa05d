// The number of an errno by its name.
#pragma once

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

namespace weft::os {

// Nothing: no errno of this system has the name.
[[nodiscard]] inline std::optional<int> errno_by_name(std::string_view name) {
  if (name == "EOPNOTSUPP") return EOPNOTSUPP;  // another name of ENOTSUP
  constexpr int kMost = 133;
  for (int error = 1; error <= kMost; ++error) {
    const char* const known = strerrorname_np(error);
    if (known != nullptr && name == known) return error;
  }
  return std::nullopt;
}

}  // namespace weft::os
