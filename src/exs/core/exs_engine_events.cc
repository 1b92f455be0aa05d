// The engine: who is watched and told of events, of rdma_cm and of the kernel's TCP.
#include <sys/epoll.h>

#include <cassert>
#include <utility>

#include "exs/core/exs_engine.h"
#include "os/lock.h"

namespace weft::exs {

void Engine::add(const std::shared_ptr<Socket>& socket) {
  if (const auto former = sockets_.add(socket->fd, socket); former != nullptr) {
    abandon_later(former);
  }
}

int Engine::watch(int fd, const std::shared_ptr<Socket>& socket) {
  const std::uint32_t number = connections.add(socket);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = number;
  if (::epoll_ctl(tcp_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    connections.remove(number);
    return -1;
  }
  tcp_sockets_.fetch_add(1);
  // The thread may sleep on these descriptors. Not every socket under `weft run --sockets` is the
  // kernel's alone, and only a sleep that begins now knows of this one.
  if (asleep_.load()) wake_up();
  return static_cast<int>(number);
}

void Engine::unwatch(int fd, std::uint32_t number) {
  // Fails when the application has closed the descriptor: then the kernel has forgotten it as well.
  if (fd >= 0) ::epoll_ctl(tcp_.get(), EPOLL_CTL_DEL, fd, nullptr);
  connections.remove(number);
  [[maybe_unused]] const int before = tcp_sockets_.fetch_sub(1);
  assert(before > 0);
}

// ---- rdma_cm

// As much as a completion queue holds: what comes meanwhile is of other connections.
void Engine::drain_before_end() {
  const os::MutexLock lock(drive_mutex_);
  for (int round = 0; round < kRoundsOfAFullQueue && poll_devices(); ++round) {
  }
}

void Engine::run_cm() {
  CmEvent event;
  while (cm.next(event)) {
    const auto number =
        static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(event.id->context));
    const auto socket = connections.find(number);
    if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      const OnRequest answer = on_request_.load();
      assert(answer != nullptr);
      answer(socket, event);
      continue;
    }
    if (socket == nullptr) continue;
    if (event.type == RDMA_CM_EVENT_DISCONNECTED) {
      // Messages that came before the end are in the completion queue: they are delivered first.
      drain_before_end();
    }
    std::shared_ptr<Socket> parent;
    Arrival arrival;
    {
      const os::MutexLock lock(socket->mutex);
      if (socket->provider == nullptr) continue;
      socket->guarded([&] { socket->provider->on_cm(event); });
      parent = socket->provider->take_parent();
      if (parent != nullptr) {
        arrival.socket = socket;
        static_cast<void>(socket->provider->peer(arrival.peer));
        static_cast<void>(socket->provider->local(arrival.local));
      }
    }
    if (parent == nullptr) continue;
    bool taken = false;
    {
      const os::MutexLock lock(parent->mutex);
      taken = parent->arrived(std::move(arrival));
    }
    if (taken) continue;
    const os::MutexLock lock(socket->mutex);
    socket->end.close();
    socket->end.abort();
    socket->provider->close();
  }
}

}  // namespace weft::exs
