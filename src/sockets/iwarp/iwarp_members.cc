#include "sockets/iwarp/iwarp_members.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cassert>
#include <cerrno>
#include <map>

#include "sockets/iwarp/direct_library.h"
#include "sockets/iwarp/iwarp.h"

namespace weft::sockets::iwarp::epolls {
namespace {

std::uint64_t g_versions WEFT_GUARDED_BY(table::mutex()) = 0;

std::map<int, InstancePtr>* g_instances = new std::map<int, InstancePtr>;

// With the mutex. Null with errno.
InstancePtr make(int epoll) WEFT_REQUIRES(table::mutex()) {
  auto made = std::make_shared<Instance>();
  const int wakeup_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  made->wakeup_fd = wakeup_fd < 0 ? -1 : table::move_high(wakeup_fd);
  if (made->wakeup_fd < 0) return nullptr;
  assert(find(epoll) == nullptr);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeupData;
  if (real().epoll_ctl(epoll, EPOLL_CTL_ADD, made->wakeup_fd, &event) != 0) return nullptr;
  (*g_instances)[epoll] = made;
  g_any = true;
  return made;
}

}  // namespace

void Instance::change() {
  assert(wakeup_fd >= 0 && sleeping >= 0);
  ++changes;
  behind = sleeping;
  if (raised) return;
  const std::uint64_t one = 1;
  raised = real().write(wakeup_fd, &one, sizeof one) > 0;
}

void Instance::lower() {
  std::uint64_t ignored = 0;
  if (!raised || behind > 0) return;
  raised = false;
  static_cast<void>(!real().read(wakeup_fd, &ignored, sizeof ignored));
}

InstancePtr find(int epoll) {
  assert(table::locked_here());
  const auto at = g_instances->find(epoll);
  return at == g_instances->end() ? nullptr : at->second;
}

std::uint64_t next_version() {
  assert(table::locked_here());
  return ++g_versions;
}

int control(int epoll, int operation, int fd, epoll_event* event) {
  if (event == nullptr && operation != EPOLL_CTL_DEL) return fail_with(EFAULT);
  // The kernel says what is wrong with the instance, if anything is.
  if (real().epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr) != 0 && errno != ENOENT) return -1;
  // A child of fork() has its parent's number, but no socket.
  if (direct::fcntl(fd, F_GETFL, 0) < 0) return -1;
  const table::Lock lock;
  InstancePtr instance = find(epoll);
  Member* member = instance != nullptr ? instance->find(fd) : nullptr;
  switch (operation) {
    case EPOLL_CTL_ADD:
      if (member != nullptr) return fail_with(EEXIST);
      if (instance == nullptr) instance = make(epoll);
      if (instance == nullptr) return -1;
      instance->members.push_back({fd, *event, {}, false, next_version()});
      member = &instance->members.back();
      break;
    case EPOLL_CTL_MOD:
      if (member == nullptr) return fail_with(ENOENT);
      *member = {fd, *event, {}, false, next_version()};
      break;
    case EPOLL_CTL_DEL:
      if (member == nullptr) return fail_with(ENOENT);
      instance->members.erase(instance->members.begin() + (member - instance->members.data()));
      return 0;
    default: return fail_with(EINVAL);
  }
  member->seen.edges = (event->events & EPOLLET) != 0;
  instance->change();
  return 0;
}

void forget(int fd) {
  const table::Lock lock;
  g_instances->erase(fd);
  for (const auto& [number, instance] : *g_instances) {
    std::erase_if(instance->members, [fd](const Member& one) { return one.fd == fd; });
  }
}

void copy(int from, int to) {
  const table::Lock lock;
  if (const InstancePtr instance = find(from); instance != nullptr) {
    (*g_instances)[to] = instance;
  }
}

void moved(int from, int to) {
  assert(table::locked_here() && from != to);
  for (const auto& [number, instance] : *g_instances) {
    if (instance->wakeup_fd == from) instance->wakeup_fd = to;
  }
}

void in_child() { g_instances = new std::map<int, InstancePtr>; }

}  // namespace weft::sockets::iwarp::epolls
