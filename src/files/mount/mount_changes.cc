#include "files/mount/mount_changes.h"

#include <algorithm>

namespace weft::mount {

void Changes::note(std::uint64_t file_id) {
  const os::MutexLock lock(mutex_);
  last_[file_id] = ++clock_;
  if (last_.size() < kMost) return;
  last_.clear();
  forgotten_ = clock_;
}

std::uint64_t Changes::of(std::uint64_t file_id) const {
  const os::MutexLock lock(mutex_);
  const auto at = last_.find(file_id);
  return at != last_.end() ? at->second : forgotten_;
}

void Changes::note_name(const std::string& path, std::uint64_t verifier) {
  const std::size_t slash = path.rfind('/');
  folders_.note(slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash), verifier);
}

void Changes::note_renamed(const std::string& from, const std::string& to) {
  const os::MutexLock lock(mutex_);
  renames_.emplace_back(from, to);
  if (renames_.size() <= kMostRenames) return;
  renames_.pop_front();
  ++first_rename_;
}

std::uint64_t Changes::renames() const {
  const os::MutexLock lock(mutex_);
  return first_rename_ + renames_.size();
}

std::string Changes::name_now(std::string name, std::uint64_t since) const {
  const os::MutexLock lock(mutex_);
  for (std::uint64_t i = std::max(since, first_rename_); i < first_rename_ + renames_.size(); ++i) {
    const auto& [from, to] = renames_[i - first_rename_];
    const bool is_it = name == from || (name.starts_with(from) && name[from.size()] == '/');
    if (is_it) name = to + name.substr(from.size());
  }
  return name;
}

}  // namespace weft::mount
