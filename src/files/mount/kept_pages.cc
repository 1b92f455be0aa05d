#include "files/mount/kept_pages.h"

#include <utility>
#include <vector>

namespace weft::mount {

bool KeptPages::opened(const std::string& path, const files::FileState& state, std::uint64_t file) {
  const os::MutexLock lock(mutex_);
  // A file that was changed a moment ago may change once more without a new token.
  const bool known = state.level != files::kLevelNone;
  const bool alone = known && all_have(path, state);
  open(path, file, known ? std::optional(state) : std::nullopt);
  const auto at = versions_.find(path);
  if (!alone) {
    if (at != versions_.end()) versions_.erase(at);
    return false;
  }
  if (at != versions_.end()) {
    const bool same = files::same_token(at->second, state);
    at->second = state;
    return same;
  }
  if (versions_.size() == kMost) versions_.clear();
  versions_.emplace(path, state);
  return false;
}

void KeptPages::opened_to_write(const std::string& path, std::uint64_t file) {
  const os::MutexLock lock(mutex_);
  open(path, file, std::nullopt);
  versions_.erase(path);
}

void KeptPages::open(const std::string& path, std::uint64_t file,
                     std::optional<files::FileState> version) {
  open_.insert_or_assign(file, Open{path, version});
  by_path_.emplace(path, file);
}

bool KeptPages::all_have(const std::string& path, const files::FileState& version) const {
  const auto [begin, end] = by_path_.equal_range(path);
  for (auto at = begin; at != end; ++at) {
    const auto one = open_.find(at->second);
    const bool same = one != open_.end() && one->second.version &&
                      files::same_token(*one->second.version, version);
    if (!same) return false;
  }
  return true;
}

void KeptPages::closed(std::uint64_t file) {
  const os::MutexLock lock(mutex_);
  const auto at = open_.find(file);
  if (at == open_.end()) return;
  const auto [begin, end] = by_path_.equal_range(at->second.path);
  for (auto one = begin; one != end; ++one) {
    if (one->second != file) continue;
    by_path_.erase(one);
    break;
  }
  open_.erase(at);
}

void KeptPages::renamed(const std::string& from, const std::string& to) {
  const os::MutexLock lock(mutex_);
  versions_.clear();
  by_path_.clear();
  for (auto& [file, one] : open_) {
    const bool moves =
        one.path == from || (one.path.starts_with(from) && one.path[from.size()] == '/');
    if (moves) one.path = to + one.path.substr(from.size());
    by_path_.emplace(one.path, file);
  }
}

void KeptPages::forget() {
  const os::MutexLock lock(mutex_);
  versions_.clear();
}

}  // namespace weft::mount
