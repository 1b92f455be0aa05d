#include "exs/core/exs_polls.h"

#include <cassert>
#include <cstddef>

#include "exs/core/exs_socket.h"
#include "os/cancel.h"

namespace weft::exs {
namespace {

// Gives the event if a socket is ready. True: that has been given, now or before.
bool evaluate(PollWait& wait) {
  assert(wait.queue != nullptr && wait.sockets.size() == static_cast<std::size_t>(wait.count));
  const os::MutexLock whole(wait.mutex);
  if (wait.done) return true;
  int ready = 0;
  std::vector<short>& seen = wait.seen;
  seen.assign(static_cast<std::size_t>(wait.count), 0);
  for (int i = 0; i < wait.count; ++i) {
    Socket* socket = wait.sockets[static_cast<std::size_t>(i)].get();
    if (socket == nullptr) continue;
    const os::MutexLock lock(socket->mutex);
    seen[static_cast<std::size_t>(i)] = readiness(*socket, wait.vec[i].events);
    if (seen[static_cast<std::size_t>(i)] != 0) ++ready;
  }
  if (ready == 0) return false;
  for (int i = 0; i < wait.count; ++i) wait.vec[i].revents = seen[static_cast<std::size_t>(i)];
  wait.done = true;
  exs_event_t event{};
  event.type = EXS_EVT_POLL;
  event.ahandle = wait.ahandle;
  event.fd = wait.count > 0 ? wait.vec[0].fd : -1;
  event.u.poll.ready = ready;
  wait.queue->complete(event);
  return true;
}

}  // namespace

void PollWaits::kick(const std::shared_ptr<PollWait>& wait) {
  if (wait->kicked.exchange(true)) return;
  const os::MutexLock lock(mutex_);
  kicked_.push_back(wait);
  any_.store(true, std::memory_order_release);
}

void PollWaits::run() {
  if (!any()) return;
  const os::NoCancel guard;
  std::vector<std::shared_ptr<PollWait>> kicked;
  {
    const os::MutexLock lock(mutex_);
    kicked.swap(kicked_);
    any_.store(false, std::memory_order_release);
  }
  for (const auto& wait : kicked) {
    wait->kicked.store(false);
    if (!evaluate(*wait)) continue;
    for (const auto& socket : wait->sockets) {
      if (socket == nullptr) continue;
      const os::MutexLock lock(socket->mutex);
      std::erase(socket->watchers, wait);
    }
  }
}

}  // namespace weft::exs
