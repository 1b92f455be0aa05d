#include "files/mount/kept_pages.h"

namespace weft::mount {

bool KeptPages::opened(const std::string& path, const files::FileState& state) {
  const os::MutexLock lock(mutex_);
  const auto at = versions_.find(path);
  const bool same = at != versions_.end() && files::same_token(at->second, state);
  // A file that was changed a moment ago may change once more without a new token.
  if (state.level == files::kLevelNone) {
    if (at != versions_.end()) versions_.erase(at);
    return false;
  }
  if (at != versions_.end()) {
    at->second = state;
    return same;
  }
  if (versions_.size() == kMost) versions_.clear();
  versions_.emplace(path, state);
  return false;
}

void KeptPages::forget() {
  const os::MutexLock lock(mutex_);
  versions_.clear();
}

}  // namespace weft::mount
