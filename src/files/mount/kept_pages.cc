#include "files/mount/kept_pages.h"

#include <utility>
#include <vector>

namespace weft::mount {

Pages KeptPages::opened(const std::string& path, const files::FileState& state,
                        std::uint64_t file) {
  const os::MutexLock lock(mutex_);
  const Pages others = beside_others(path, state);
  open(path, file, state);
  const auto at = versions_.find(path);
  if (others != Pages::kKeep) {
    if (at != versions_.end()) versions_.erase(at);
    return others;
  }
  if (at != versions_.end()) {
    const bool same = files::same_token(at->second, state);
    at->second = state;
    return same ? Pages::kKeep : Pages::kDrop;
  }
  if (versions_.size() == kMost) versions_.clear();
  versions_.emplace(path, state);
  return Pages::kDrop;
}

void KeptPages::opened_to_write(const std::string& path, std::uint64_t file) {
  const os::MutexLock lock(mutex_);
  open(path, file, std::nullopt);
  versions_.erase(path);
}

void KeptPages::open(const std::string& path, std::uint64_t file,
                     std::optional<files::FileState> state) {
  open_.insert_or_assign(file, Open{path, state});
  by_path_.emplace(path, file);
}

Pages KeptPages::beside_others(const std::string& path, const files::FileState& state) const {
  // A file that was changed a moment ago may change once more without a new token.
  Pages result = state.level != files::kLevelNone ? Pages::kKeep : Pages::kDrop;
  const auto [begin, end] = by_path_.equal_range(path);
  for (auto at = begin; at != end; ++at) {
    const auto one = open_.find(at->second);
    if (one == open_.end() || !one->second.state) {
      result = Pages::kDrop;
      continue;
    }
    const files::FileState& other = *one->second.state;
    if (!files::same_token(other, state)) return Pages::kPass;
    if (other.level == files::kLevelNone) result = Pages::kDrop;
  }
  return result;
}

bool KeptPages::was_replaced(std::uint64_t file, std::uint64_t file_id) const {
  const os::MutexLock lock(mutex_);
  const auto at = open_.find(file);
  return at != open_.end() && at->second.state && at->second.state->attributes.file_id != file_id;
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
