#include "mount/lanes.h"

#include <algorithm>

namespace weft::mount {

// Null: there are enough.  REQUIRES: mutex_ is held.
Lanes::Lane* Lanes::add() {
  if (lanes_.size() == kMost) return nullptr;
  lanes_.push_back(std::make_unique<Lane>(lanes_.size(), server_, prefix_, blocks_, changes_));
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

int Lanes::usage(const std::string& path, store::Usage& out) { return any()->usage(path, out); }

int Lanes::read_link(const std::string& path, std::string& target) {
  return any()->read_link(path, target);
}

int Lanes::list(const std::string& path, const Remote::EntryFunction& entry) {
  return any()->list(path, entry);
}

int Lanes::rename(const std::string& from, const std::string& to, bool keep) {
  return any()->rename(from, to, keep);
}

int Lanes::remove(const std::string& path, bool folder) { return any()->remove(path, folder); }

int Lanes::make_directory(const std::string& path, std::uint32_t mode) {
  return any()->make_directory(path, mode);
}

int Lanes::symlink(const std::string& target, const std::string& path) {
  return any()->symlink(target, path);
}

int Lanes::set(const std::string& path, const std::uint64_t* file, std::uint32_t what,
               const store::Attributes& to) {
  if (file == nullptr) return any()->set(path, 0, what, to);
  return of(*file)->set(path, *file / kMost, what, to);
}

int Lanes::open(const std::string& path, std::uint64_t& file) {
  return open_by([&](Remote& remote, std::uint64_t& id) { return remote.open(path, id); }, file);
}

int Lanes::edit(const std::string& path, std::uint32_t mode, std::uint32_t flags,
                std::uint64_t& file) {
  return open_by(
      [&](Remote& remote, std::uint64_t& id) { return remote.edit(path, mode, flags, id); }, file);
}

// The number of a file says which lane it is on.
int Lanes::open_by(const Opening& opening, std::uint64_t& file) {
  Lane& lane = for_new_file();
  int error = 0;
  {
    const std::lock_guard guard(lane.busy);
    std::uint64_t id = 0;
    error = opening(lane.remote, id);
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

std::int64_t Lanes::write(std::uint64_t file, const std::uint8_t* from, std::uint32_t bytes,
                          std::uint64_t offset) {
  return of(file)->write(file / kMost, from, bytes, offset);
}

int Lanes::sync(std::uint64_t file) { return of(file)->sync(file / kMost); }

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
