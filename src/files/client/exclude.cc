#include "files/client/exclude.h"

#include <fnmatch.h>

#include <algorithm>

namespace weft::files {
namespace {

bool matches(const std::string& pattern, std::string_view path) {
  return fnmatch(pattern.c_str(), std::string(path).c_str(), FNM_PATHNAME) == 0;
}

// One of the ends of the path that begin with a component.
bool matches_end(const std::string& pattern, std::string_view path) {
  for (;;) {
    if (matches(pattern, path)) return true;
    const std::size_t slash = path.find('/');
    if (slash == std::string_view::npos) return false;
    path.remove_prefix(slash + 1);
  }
}

bool excludes(std::string pattern, std::string_view path, bool is_folder) {
  if (pattern.ends_with('/')) {
    if (!is_folder) return false;
    pattern.pop_back();
  }
  if (pattern.starts_with('/')) return matches(pattern.substr(1), path);
  return matches_end(pattern, path);
}

}  // namespace

bool is_excluded(const std::vector<std::string>& patterns, std::string_view below,
                 std::string_view name, bool is_folder) {
  if (patterns.empty()) return false;
  std::string path(below);
  if (!path.empty()) path += '/';
  path += name;
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return excludes(pattern, path, is_folder);
  });
}

}  // namespace weft::files
