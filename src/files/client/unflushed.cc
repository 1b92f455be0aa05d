#include "files/client/unflushed.h"

#include <algorithm>

namespace weft::files {

void Unflushed::note_parent_of(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  note(slash == std::string_view::npos ? std::string_view() : path.substr(0, slash));
}

std::vector<std::string> Unflushed::in_order() const {
  std::vector<std::string> out(folders_.begin(), folders_.end());
  const auto depth = [](const std::string& path) {
    return path.empty() ? 0 : 1 + std::count(path.begin(), path.end(), '/');
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](const std::string& a, const std::string& b) { return depth(a) > depth(b); });
  return out;
}

}  // namespace weft::files
