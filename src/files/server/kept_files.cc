#include "files/server/kept_files.h"

#include <sys/random.h>

#include <algorithm>
#include <cassert>

namespace weft::files {

std::optional<KeepKey> KeptFiles::add(OpenFiles& files) {
  KeepKey key{};
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) return std::nullopt;
  present_.emplace(key, &files);
  return key;
}

// Among equals the one that was lost first.
void KeptFiles::drop_most() {
  const auto most =
      std::ranges::max_element(lost_, {}, [](const Lost& one) { return one.files.size(); });
  count_ -= most->files.size();
  lost_.erase(most);
}

void KeptFiles::lost(const KeepKey& key, Clock::time_point now) {
  const auto at = present_.find(key);
  assert(at != present_.end());
  Lost one{key, now + kTime, at->second->take_whole()};
  present_.erase(at);
  if (one.files.empty()) return;
  count_ += one.files.size();
  lost_.push_back(std::move(one));
  while (count_ > kMost) drop_most();
}

OpenFiles::File KeptFiles::find(const KeepKey& key, std::uint64_t handle) {
  if (const auto at = present_.find(key); at != present_.end()) return at->second->find(handle);
  const auto at = std::ranges::find(lost_, key, &Lost::key);
  if (at == lost_.end()) return nullptr;
  const auto file = at->files.find(handle);
  return file == at->files.end() ? nullptr : file->second;
}

void KeptFiles::expire(Clock::time_point now) {
  while (!lost_.empty() && lost_.front().until <= now) {
    count_ -= lost_.front().files.size();
    lost_.pop_front();
  }
}

}  // namespace weft::files
