#include "files/mount/mount_connections.h"

#include <algorithm>
#include <cassert>

namespace weft::mount {

// Null: there are enough.
Connections::Connection* Connections::add() {
  if (connections_.size() == kMost) return nullptr;
  connections_.push_back(
      std::make_unique<Connection>(connections_.size(), server_, prefix_, blocks_, changes_));
  return connections_.back().get();
}

// One that has nothing to do, a new one, or the next in turn. It is left locked.
Connections::Connection& Connections::lock_any() WEFT_NOT_ANALYZED {
  Connection* connection = nullptr;
  {
    const os::MutexLock lock(mutex_);
    for (const auto& one : connections_) {
      if (one->busy.try_lock()) return *one;
    }
    connection = add();
    if (connection == nullptr) connection = connections_[turn_++ % connections_.size()].get();
  }
  connection->busy.lock();
  return *connection;
}

Connections::Held Connections::any() { return Held(lock_any()); }

Connections::Held Connections::of(std::uint64_t file) WEFT_NOT_ANALYZED {
  Connection* connection = nullptr;
  {
    const os::MutexLock lock(mutex_);
    assert(file % kMost < connections_.size());
    connection = connections_[file % kMost].get();
  }
  connection->busy.lock();
  return Held(*connection);
}

// The one with the fewest files; a new one if all have some.
Connections::Connection& Connections::for_new_file() {
  const os::MutexLock lock(mutex_);
  const auto least =
      std::min_element(connections_.begin(), connections_.end(),
                       [](const auto& a, const auto& b) { return a->files < b->files; });
  Connection* connection = least == connections_.end() || (*least)->files != 0 ? add() : nullptr;
  assert(connection != nullptr || least != connections_.end());
  if (connection == nullptr) connection = least->get();
  ++connection->files;
  return *connection;
}

int Connections::stat(const std::string& path, files::Attributes& out) {
  return any()->stat(path, out);
}

int Connections::stat_open(std::uint64_t file, files::Attributes& out) {
  return of(file)->stat_open(file / kMost, out);
}

int Connections::usage(const std::string& path, files::Usage& out) {
  return any()->usage(path, out);
}

int Connections::read_link(const std::string& path, std::string& target) {
  return any()->read_link(path, target);
}

int Connections::list(const std::string& path, const Remote::EntryFunction& entry) {
  return any()->list(path, entry);
}

int Connections::rename(const std::string& from, const std::string& to, bool keep) {
  return any()->rename(from, to, keep);
}

int Connections::remove(const std::string& path, bool folder) {
  return any()->remove(path, folder);
}

int Connections::make_directory(const std::string& path, std::uint32_t mode) {
  return any()->make_directory(path, mode);
}

int Connections::symlink(const std::string& target, const std::string& path) {
  return any()->symlink(target, path);
}

int Connections::link(const std::string& from, const std::string& to) {
  return any()->link(from, to);
}

int Connections::xattrs(const std::string& path, files::Xattrs& out) {
  return any()->xattrs(path, out);
}

int Connections::set_xattr(const std::string& path, const std::string& name,
                           const std::span<const std::uint8_t>* value) {
  return any()->set_xattr(path, name, value);
}

int Connections::set(const std::string& path, const std::uint64_t* file, std::uint32_t what,
                     const files::Attributes& to) {
  if (file == nullptr) return any()->set(path, 0, what, to);
  return of(*file)->set(path, *file / kMost, what, to);
}

int Connections::open(const std::string& path, std::uint64_t& file, files::FileState& state) {
  return open_by([&](Remote& remote, std::uint64_t& id) { return remote.open(path, id, state); },
                 file);
}

int Connections::edit(const std::string& path, std::uint32_t mode, std::uint32_t flags,
                      std::uint64_t& file) {
  return open_by(
      [&](Remote& remote, std::uint64_t& id) { return remote.edit(path, mode, flags, id); }, file);
}

// The number of a file says which connection it is on.
int Connections::open_by(const Opening& opening, std::uint64_t& file) {
  Connection& connection = for_new_file();
  int error = 0;
  {
    const os::MutexLock lock(connection.busy);
    std::uint64_t id = 0;
    error = opening(connection.remote, id);
    file = id * kMost + connection.index;
  }
  if (error == 0) return 0;
  const os::MutexLock lock(mutex_);
  assert(connection.files > 0);
  --connection.files;
  return error;
}

std::int64_t Connections::read(std::uint64_t file, std::uint8_t* to, std::uint32_t bytes,
                               std::uint64_t offset) {
  return of(file)->read(file / kMost, to, bytes, offset);
}

std::int64_t Connections::write(std::uint64_t file, const std::uint8_t* from, std::uint32_t bytes,
                                std::uint64_t offset) {
  return of(file)->write(file / kMost, from, bytes, offset);
}

int Connections::sync(std::uint64_t file) { return of(file)->sync(file / kMost); }

int Connections::sync_folder(const std::string& path) { return any()->sync_folder(path); }

void Connections::close(std::uint64_t file) {
  Connection* connection = nullptr;
  {
    const Held held = of(file);
    held->close(file / kMost);
    connection = &held.connection();
  }
  const os::MutexLock lock(mutex_);
  assert(connection->files > 0);
  --connection->files;
}

}  // namespace weft::mount
