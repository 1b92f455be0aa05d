#include "verbs/refused_peers.h"

#include <algorithm>

namespace weft::verbs {

bool RefusedPeers::enter(const SocketAddress& peer, std::weak_ptr<ConnectionImpl> connection) {
  const ConnectionImpl* const key = connection.lock().get();
  const os::MutexLock lock(mutex_);
  std::deque<Waiting>& waiting = peers_[peer.shown()];
  const bool there = std::any_of(waiting.begin(), waiting.end(),
                                 [key](const Waiting& other) { return other.key == key; });
  if (!there) waiting.push_back({key, std::move(connection)});
  return waiting.front().key == key;
}

bool RefusedPeers::join(const SocketAddress& peer, std::weak_ptr<ConnectionImpl> connection) {
  const ConnectionImpl* const key = connection.lock().get();
  const os::MutexLock lock(mutex_);
  if (peers_.empty()) return false;
  const auto found = peers_.find(peer.shown());
  if (found == peers_.end()) return false;
  found->second.push_back({key, std::move(connection)});
  return true;
}

std::shared_ptr<ConnectionImpl> RefusedPeers::leave(const SocketAddress& peer,
                                                    const ConnectionImpl& connection) {
  const os::MutexLock lock(mutex_);
  const auto found = peers_.find(peer.shown());
  if (found == peers_.end()) return nullptr;
  std::deque<Waiting>& waiting = found->second;
  const bool was_first = waiting.front().key == &connection;
  std::erase_if(waiting, [&](const Waiting& one) { return one.key == &connection; });
  // A connection that is being destroyed just now leaves by itself.
  std::shared_ptr<ConnectionImpl> next;
  while (was_first && !waiting.empty() && next == nullptr) {
    next = waiting.front().connection.lock();
    if (next == nullptr) waiting.pop_front();
  }
  if (waiting.empty()) peers_.erase(found);
  return next;
}

}  // namespace weft::verbs
