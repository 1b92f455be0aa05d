#include "files/mount/hidden_files.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace weft::mount {

namespace {

std::string_view name_in(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// ".fuse_hidden" and 16 hexadecimal digits.
bool is_libfuses(std::string_view name) {
  constexpr std::string_view kBegin = ".fuse_hidden";
  constexpr std::size_t kDigits = 16;
  if (!name.starts_with(kBegin) || name.size() != kBegin.size() + kDigits) return false;
  name.remove_prefix(kBegin.size());
  return name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

void HiddenFiles::renamed(const std::string& from, const std::string& to) {
  const os::MutexLock lock(mutex_);
  std::vector<std::pair<std::string, std::string>> moved;
  for (const std::string& path : paths_) {
    const bool inside =
        path.starts_with(from) && path.size() > from.size() && path[from.size()] == '/';
    if (inside) moved.emplace_back(path, to + path.substr(from.size()));
  }
  for (const auto& [before, now] : moved) {
    paths_.erase(before);
    paths_.insert(now);
  }
  paths_.erase(from);
  if (is_libfuses(name_in(to)) && !is_libfuses(name_in(from))) paths_.insert(to);
}

void HiddenFiles::removed(const std::string& path) {
  const os::MutexLock lock(mutex_);
  paths_.erase(path);
}

std::vector<std::string> HiddenFiles::in(const std::string& folder) const {
  const os::MutexLock lock(mutex_);
  std::vector<std::string> out;
  std::ranges::copy_if(paths_, std::back_inserter(out), [&](const std::string& path) {
    return path.substr(0, path.rfind('/')) == folder;
  });
  return out;
}

}  // namespace weft::mount
