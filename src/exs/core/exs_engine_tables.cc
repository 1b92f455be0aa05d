// The tables of the engine: sockets, connections, devices, and those who wait in exs_poll.
#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "exs/core/exs_engine.h"
#include "os/cancel.h"
#include "os/lock.h"

namespace weft::exs {

void Engine::add(const std::shared_ptr<Socket>& socket) {
  assert(socket != nullptr && socket->fd >= 0);
  std::shared_ptr<Socket> former;
  {
    const os::WriteLock lock(table_mutex_);
    const auto index = static_cast<std::size_t>(socket->fd);
    if (index >= table_.size()) table_.resize(index + 64);
    former = std::exchange(table_[index], socket);
  }
  if (former != nullptr) abandon_later(former);
}

std::shared_ptr<Socket> Engine::find(int fd) const {
  const os::ReadLock lock(table_mutex_);
  const auto index = static_cast<std::size_t>(fd);
  return fd >= 0 && index < table_.size() ? table_[index] : nullptr;
}

void Engine::remove(int fd, const Socket* socket) {
  const os::WriteLock lock(table_mutex_);
  const auto index = static_cast<std::size_t>(fd);
  if (index < table_.size() && table_[index].get() == socket) table_[index].reset();
}

std::shared_ptr<Device> Engine::device_of(ibv_context* context) {
  const os::WriteLock lock(devices_mutex_);
  for (const auto& device : devices_) {
    if (device->context() == context) return device;
  }
  if (devices_.size() == active_devices_.size()) return nullptr;
  assert(context != nullptr);
  auto device = Device::create(context);
  if (device == nullptr) return nullptr;
  active_devices_[devices_.size()] = device.get();
  devices_.push_back(device);
  device_count_.store(devices_.size(), std::memory_order_release);
  return device;
}

std::uint32_t Engine::enroll(const std::shared_ptr<Socket>& socket) {
  assert(socket != nullptr);
  const os::WriteLock lock(numbers_mutex_);
  do {
    ++next_number_;
  } while (next_number_ == 0 || numbers_.contains(next_number_));
  numbers_.emplace(next_number_, socket);
  return next_number_;
}

void Engine::dismiss(std::uint32_t number) {
  std::shared_ptr<Socket> last;  // goes after the lock
  const os::WriteLock lock(numbers_mutex_);
  const auto it = numbers_.find(number);
  if (it == numbers_.end()) return;
  last = std::move(it->second);
  numbers_.erase(it);
}

std::shared_ptr<Socket> Engine::enrolled(std::uint32_t number) const {
  const os::ReadLock lock(numbers_mutex_);
  const auto it = numbers_.find(number);
  return it != numbers_.end() ? it->second : nullptr;
}

int Engine::watch(int fd, const std::shared_ptr<Socket>& socket) {
  const std::uint32_t number = enroll(socket);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = number;
  if (::epoll_ctl(tcp_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    dismiss(number);
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
  ::epoll_ctl(tcp_.get(), EPOLL_CTL_DEL, fd, nullptr);
  dismiss(number);
  [[maybe_unused]] const int before = tcp_sockets_.fetch_sub(1);
  assert(before > 0);
}

// ---- rdma_cm

namespace {

CmEvent copy_of(const rdma_cm_event& from) {
  CmEvent out;
  out.type = from.event;
  out.status = from.status;
  out.id = from.id;
  out.responder_resources = from.param.conn.responder_resources;
  out.initiator_depth = from.param.conn.initiator_depth;
  const auto* data = static_cast<const std::uint8_t*>(from.param.conn.private_data);
  if (data != nullptr) out.private_data.assign(data, data + from.param.conn.private_data_len);
  return out;
}

}  // namespace

// As much as a completion queue holds: what comes meanwhile is of other connections.
void Engine::drain_before_end() {
  const os::MutexLock lock(drive_mutex_);
  for (int round = 0; round < kRoundsOfAFullQueue && poll_devices(); ++round) {
  }
}

bool Engine::next_cm_event(CmEvent& out) {
  rdma_event_channel* channel = cm_channel();
  rdma_cm_event* next = nullptr;
  const os::MutexLock lock(cm_mutex_);
  if (channel == nullptr || rdma_get_cm_event(channel, &next) != 0) return false;
  out = copy_of(*next);
  rdma_ack_cm_event(next);
  return true;
}

void Engine::destroy_qp(rdma_cm_id* id) {
  assert(id != nullptr && id->qp != nullptr);
  const os::MutexLock lock(cm_mutex_);
  rdma_destroy_qp(id);
}

void Engine::run_cm() {
  CmEvent event;
  while (next_cm_event(event)) {
    const auto number =
        static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(event.id->context));
    const auto socket = enrolled(number);
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
    Socket::Arrival arrival;
    {
      const os::MutexLock lock(socket->mutex);
      if (socket->provider == nullptr) continue;
      socket->provider->on_cm(event);
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
    socket->closing = true;
    socket->abortive = true;
    socket->provider->close();
  }
}

// ---- exs_poll

void Engine::kick(const std::shared_ptr<PollWait>& wait) {
  if (wait->kicked.exchange(true)) return;
  const os::MutexLock lock(later_mutex_);
  kicked_.push_back(wait);
  any_kicked_.store(true, std::memory_order_release);
}

void Engine::run_polls() {
  if (!any_kicked_.load(std::memory_order_acquire)) return;
  const os::NoCancel guard;
  std::vector<std::shared_ptr<PollWait>> kicked;
  {
    const os::MutexLock lock(later_mutex_);
    kicked.swap(kicked_);
    any_kicked_.store(false, std::memory_order_release);
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

bool Engine::evaluate(PollWait& wait) {
  assert(wait.queue != nullptr && wait.sockets.size() == static_cast<std::size_t>(wait.count));
  const os::MutexLock whole(wait.mutex);
  if (wait.done) return true;
  int ready = 0;
  std::vector<short> seen(static_cast<std::size_t>(wait.count));
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

}  // namespace weft::exs
