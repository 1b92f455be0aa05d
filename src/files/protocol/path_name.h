// Names of files as the client and the server put them together: folders with '/' between them.
#pragma once

#include <string>
#include <string_view>

namespace weft::files {

// The last name of a path: of "films/day.weft", and of "films/day.weft/", "day.weft".
[[nodiscard]] inline std::string last_name(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

[[nodiscard]] inline std::string join(const std::string& folder, const std::string& name) {
  if (folder.empty() || name.empty()) return folder + name;
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

}  // namespace weft::files
