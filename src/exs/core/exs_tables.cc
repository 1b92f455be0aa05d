#include "exs/core/exs_tables.h"

#include <cassert>
#include <cstddef>
#include <utility>

namespace weft::exs {

std::shared_ptr<Socket> SocketTable::add(int fd, const std::shared_ptr<Socket>& socket) {
  assert(socket != nullptr && fd >= 0);
  const os::WriteLock lock(mutex_);
  const auto index = static_cast<std::size_t>(fd);
  if (index >= sockets_.size()) sockets_.resize(index + 64);
  return std::exchange(sockets_[index], socket);
}

std::shared_ptr<Socket> SocketTable::find(int fd) const {
  const os::ReadLock lock(mutex_);
  const auto index = static_cast<std::size_t>(fd);
  return fd >= 0 && index < sockets_.size() ? sockets_[index] : nullptr;
}

void SocketTable::remove(int fd, const Socket* socket) {
  assert(fd >= 0);
  std::shared_ptr<Socket> last;  // goes after the lock
  const os::WriteLock lock(mutex_);
  const auto index = static_cast<std::size_t>(fd);
  if (index >= sockets_.size() || sockets_[index].get() != socket) return;
  last = std::exchange(sockets_[index], nullptr);
}

std::uint32_t ConnectionNumbers::add(const std::shared_ptr<Socket>& socket) {
  assert(socket != nullptr);
  const os::WriteLock lock(mutex_);
  do {
    ++last_;
  } while (last_ == 0 || sockets_.contains(last_));
  sockets_.emplace(last_, socket);
  return last_;
}

void ConnectionNumbers::remove(std::uint32_t number) {
  std::shared_ptr<Socket> last;  // goes after the lock
  const os::WriteLock lock(mutex_);
  const auto it = sockets_.find(number);
  if (it == sockets_.end()) return;
  last = std::move(it->second);
  sockets_.erase(it);
}

std::shared_ptr<Socket> ConnectionNumbers::find(std::uint32_t number) const {
  const os::ReadLock lock(mutex_);
  const auto it = sockets_.find(number);
  return it != sockets_.end() ? it->second : nullptr;
}

}  // namespace weft::exs
