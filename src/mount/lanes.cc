#include "mount/lanes.h"

#include <algorithm>

namespace weft::mount {

// Null: there are enough.  REQUIRES: mutex_ is held.
Lanes::Lane* Lanes::add() {
  if (lanes_.size() == kMost) return nullptr;
  lanes_.push_back(std::make_unique<Lane>(lanes_.size(), server_, prefix_, blocks_));
  return lanes_.back().get();
}

// One that has nothing to do, a new one, or the next in turn.
Lanes::Held Lanes::any() {
  Lane* lane = nullptr;
  {
    const std::lock_guard guard(mutex_);
    for (const auto& one : lanes_) {
      std::unique_lock free(one->busy, std::try_to_lock);
      if (free) return {one.get(), std::move(free)};
    }
    lane = add();
    if (lane == nullptr) lane = lanes_[turn_++ % lanes_.size()].get();
  }
  return {lane, std::unique_lock(lane->busy)};
}

Lanes::Held Lanes::of(std::uint64_t file) {
  Lane* lane = nullptr;
  {
    const std::lock_guard guard(mutex_);
    lane = lanes_[file % kMost].get();
  }
  return {lane, std::unique_lock(lane->busy)};
}

// The one with the fewest files; a new one if all have some.
Lanes::Lane& Lanes::for_new_file() {
  const std::lock_guard guard(mutex_);
  const auto least =
      std::min_element(lanes_.begin(), lanes_.end(),
                       [](const auto& a, const auto& b) { return a->files < b->files; });
  Lane* lane = least == lanes_.end() || (*least)->files != 0 ? add() : nullptr;
  if (lane == nullptr) lane = least->get();
  ++lane->files;
  return *lane;
}

int Lanes::stat(const std::string& path, store::Attributes& out) { return any()->stat(path, out); }

int Lanes::read_link(const std::string& path, std::string& target) {
  return any()->read_link(path, target);
}

int Lanes::list(const std::string& path, const Remote::EntryFunction& entry) {
  return any()->list(path, entry);
}

// The number of a file says which lane it is on.
int Lanes::open(const std::string& path, std::uint64_t& file) {
  Lane& lane = for_new_file();
  int error = 0;
  {
    const std::lock_guard guard(lane.busy);
    std::uint64_t id = 0;
    error = lane.remote.open(path, id);
    file = id * kMost + lane.index;
  }
  if (error == 0) return 0;
  const std::lock_guard guard(mutex_);
  --lane.files;
  return error;
}

std::int64_t Lanes::read(std::uint64_t file, std::uint8_t* to, std::uint32_t bytes,
                         std::uint64_t offset) {
  return of(file)->read(file / kMost, to, bytes, offset);
}

void Lanes::close(std::uint64_t file) {
  Lane* lane = nullptr;
  {
    const Held held = of(file);
    held->close(file / kMost);
    lane = held.lane;
  }
  const std::lock_guard guard(mutex_);
  --lane->files;
}

}  // namespace weft::mount
