// rsocket, rbind, rlisten, rclose, rshutdown, names; the table of rsockets.
#include "rsockets/rsocket.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

#include "ibverbs/errors.h"
#include "os/cancel.h"
#include "os/event_fd.h"
#include "os/lock.h"
#include "rdmacm/forward.h"
#include "rsockets/rs_thrown.h"
#include "rsockets/rsocket_fork.h"

namespace weft::rsockets {
namespace {

using ibverbs::errno_of;
using ibverbs::fail_minus;

// The rsockets of this process. Never destroyed: threads may run to the very end. A child of fork()
// gets a new one, because another thread of the parent may have held any lock of the old one.
struct Process {
  os::SharedMutex mutex;
  std::unordered_map<int, RsocketPtr> sockets WEFT_GUARDED_BY(mutex);
  std::optional<RsOptions> defaults WEFT_GUARDED_BY(mutex);

  os::Mutex device_mutex;
  std::shared_ptr<Device> device WEFT_GUARDED_BY(device_mutex);
};
Process* g_process = new Process;

const int kRegisterError = watch_forks([] {
  g_process = new Process;
  renew_service();
  renew_closing();
});

// One integer in a file of rdma-core's configuration; `otherwise` when it is not there.
std::uint32_t configured(const char* name, std::uint32_t otherwise) {
  const os::NoCancel guard;
  std::ifstream file(std::string("/etc/rdma/rsocket/") + name);
  std::uint32_t value = 0;
  return file >> value ? value : otherwise;
}

// Values of /etc/rdma/rsocket, as rdma-core reads them.
RsOptions default_options() {
  RsOptions o;
  o.send_bytes = configured("wmem_default", o.send_bytes);
  o.recv_bytes = configured("mem_default", o.recv_bytes);
  o.send_requests = static_cast<std::uint16_t>(configured("sqsize_default", o.send_requests));
  o.recv_requests = static_cast<std::uint16_t>(configured("rqsize_default", o.recv_requests));
  o.inline_bytes = configured("inline_default", o.inline_bytes);
  o.iomap_count = round_iomap_count(configured("iomap_size", o.iomap_count));
  o.clamp();
  return o;
}

// One of several numbers of an rsocket is about to be closed; `fd` is not in the table any more.
void drop_number(Process& all, Rsocket& socket, int fd) WEFT_REQUIRES(all.mutex) {
  assert(socket.numbers > 1);
  --socket.numbers;
  const RsLock lock(socket.mutex);
  if (socket.fd != fd) return;
  for (const auto& [number, other] : all.sockets) {
    if (other.get() == &socket) socket.fd = number;
  }
}

// As listen(2): less than nothing is as many as there may be.
std::size_t backlog_of(int asked) {
  constexpr std::size_t kMost = 4096;  // what net.core.somaxconn is, unless somebody has changed it
  return asked < 0 ? kMost : std::min(kMost, static_cast<std::size_t>(asked));
}

// While it lives, this thread is at the table of rsockets: a signal handler that comes now would
// wait for the lock of the thread that it interrupted.
class AtTable {
 public:
  AtTable() noexcept { ++t_depth; }
  ~AtTable() { --t_depth; }
  AtTable(const AtTable&) = delete;
  AtTable& operator=(const AtTable&) = delete;
  [[nodiscard]] static bool here() noexcept { return t_depth != 0; }

 private:
  static inline thread_local constinit int t_depth = 0;
};

// The rsocket is closed for all threads. Its connection, or null.
std::shared_ptr<RsConnection> take_link(Rsocket& socket) {
  const RsLock lock(socket.mutex);
  auto link = std::move(socket.link);
  socket.link.reset();
  socket.advance(RsEvent::kClosed);
  tell_others(socket);
  socket.progressed.notify_all();
  return link;
}

// The program wants a reset at the end.
bool resets(int fd) {
  linger value{};
  socklen_t length = sizeof value;
  return getsockopt(fd, SOL_SOCKET, SO_LINGER, &value, &length) == 0 && value.l_onoff != 0 &&
         value.l_linger == 0;
}

std::vector<RsocketPtr> connected_ones() {
  const AtTable at_table;
  Process& all = *g_process;
  const os::ReadLock lock(all.mutex);
  std::vector<RsocketPtr> found;
  for (const auto& [fd, one] : all.sockets) {
    const RsLock socket_lock(one->mutex);
    if (one->state == RsState::kConnected) found.push_back(one);
  }
  return found;
}

// As the kernel does it for TCP: what a program has sent arrives though it ends without closing.
// When a library is taken apart all handlers of the program have run, and those may use its
// rsockets. Threads that are still in calls of an rsocket, or begin one, sleep there to the end: an
// error would let them act on a connection that has not failed.
__attribute__((destructor)) void close_at_exit() {
  if (interrupts_rsockets()) return;  // exit() in a signal handler: it would wait for itself
  try {
    for (const RsocketPtr& one : connected_ones()) {
      if (one->mutex.is_this_threads()) continue;  // another of its numbers
      const Goodbye how = resets(one->fd) ? Goodbye::kReset : Goodbye::kAtExit;
      one->mutex.keep();
      if (one->link == nullptr) continue;  // closed meanwhile
      close_connection(std::move(one->link), one->fd, how);
    }
  } catch (const std::bad_alloc&) {
    return;
  }
  wait_for_closings();
}

}  // namespace

RsocketPtr find_rsocket(int fd) {
  int error = EDEADLK;
  if (!AtTable::here()) {
    const AtTable at_table;
    Process& all = *g_process;
    const os::ReadLock lock(all.mutex);
    const auto found = all.sockets.find(fd);
    const bool known = found != all.sockets.end();
    if (known && !found->second->mutex.is_this_threads()) return found->second;
    if (!known) error = EBADF;
  }
  errno = error;
  return nullptr;
}

bool interrupts_rsockets() noexcept { return AtTable::here() || RsMutex::any_is_this_threads(); }

RsocketPtr enter_rsocket(int fd, int domain, int type) {
  if (AtTable::here()) {
    errno = EDEADLK;
    return nullptr;
  }
  auto made = std::make_shared<Rsocket>();
  made->fd = fd;
  made->domain = domain;
  made->type = type;
  made->wake = os::Fd::closed_in_child(os::make_event().release());
  if (!made->wake) return nullptr;
  if (kRegisterError != 0) {
    errno = kRegisterError;
    return nullptr;
  }
  const AtTable at_table;
  Process& all = *g_process;
  const os::WriteLock lock(all.mutex);
  if (!all.defaults) all.defaults = default_options();
  made->options = *all.defaults;
  all.sockets[fd] = made;
  note_number(fd);
  return made;
}

void leave_rsocket(int fd) {
  const AtTable at_table;
  Process& all = *g_process;
  const os::WriteLock lock(all.mutex);
  all.sockets.erase(fd);
  forget_number(fd);
}

bool alias_rsocket(int from, int to) {
  if (AtTable::here()) {
    errno = EDEADLK;
    return false;
  }
  const AtTable at_table;
  Process& all = *g_process;
  const os::WriteLock lock(all.mutex);
  const auto found = all.sockets.find(from);
  if (found == all.sockets.end()) {
    errno = EBADF;
    return false;
  }
  const RsocketPtr socket = found->second;
  all.sockets[to] = socket;
  ++socket->numbers;
  note_number(to);
  return true;
}

std::shared_ptr<Device> rsocket_device() {
  Process& all = *g_process;
  const os::MutexLock lock(all.device_mutex);
  if (all.device != nullptr) return all.device;
  std::string why;
  auto config = Config::load(&why);
  // An rsocket is an iWARP connection, whatever the device looks like that the program sees.
  if (config) config->personality = Personality::kIwarp;
  auto made =
      config ? Device::open(*config) : Result<std::shared_ptr<Device>>(fail(config.error()));
  if (!made) {
    errno = errno_of(made.error());
    return nullptr;
  }
  all.device = std::move(*made);
  return all.device;
}

}  // namespace weft::rsockets

using namespace weft::rsockets;
using weft::ibverbs::fail_minus;

extern "C" {

int rsocket(int domain, int type, int protocol) try {
  WEFT_CM_FORWARD(rsocket, domain, type, protocol)
  if (domain != AF_INET && domain != AF_INET6) return fail_minus(EAFNOSUPPORT);
  const int kind = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (kind != SOCK_STREAM && kind != SOCK_DGRAM) return fail_minus(EPROTONOSUPPORT);
  weft::os::Fd fd(socket(domain, type, protocol));
  if (!fd) return -1;
  const RsocketPtr made = enter_rsocket(fd.get(), domain, kind);
  if (made == nullptr) return -1;
  made->nonblocking = (type & SOCK_NONBLOCK) != 0;
  return fd.release();
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

int rbind(int fd, const sockaddr* address, socklen_t length) {
  WEFT_CM_FORWARD(rbind, fd, address, length)
  return find_rsocket(fd) == nullptr ? -1 : bind(fd, address, length);
}

int rlisten(int fd, int backlog) try {
  WEFT_CM_FORWARD(rlisten, fd, backlog)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (socket->type != SOCK_STREAM) return fail_minus(EOPNOTSUPP);
  bool again = false;
  {
    const RsLock lock(socket->mutex);
    again = socket->state == RsState::kListening;
    if (socket->state != RsState::kOpen && !again) return fail_minus(EINVAL);
    if (listen(fd, backlog) != 0) return -1;
    socket->listens = true;
    socket->backlog = backlog_of(backlog);
    socket->advance(RsEvent::kListens);
  }
  // Without the lock, which the service takes with its own held.
  if (again) {
    go_on_accepting();
    return 0;
  }
  if (start_listening(socket)) return 0;
  const int error = errno;
  const RsLock lock(socket->mutex);
  static_cast<void>(socket->on(RsEvent::kListenRefused));  // unless it has been closed meanwhile
  return fail_minus(error);
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

int rshutdown(int fd, int how) try {
  WEFT_CM_FORWARD(rshutdown, fd, how)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (socket->type == SOCK_DGRAM) return shutdown(fd, how);
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return fail_minus(EINVAL);
  const RsLock lock(socket->mutex);
  if (socket->state != RsState::kConnected) return fail_minus(ENOTCONN);
  if (how != SHUT_WR) socket->read_shut = true;
  if (how != SHUT_RD) socket->write_shut = true;
  tell_others(*socket);
  if (!socket->write_shut) return 0;
  // Where the peer takes nothing just now, the stream says it later: this call does not wait.
  // Reading is over too: the peer need not keep its half open for us.
  auto& stream = socket->link->stream();
  static_cast<void>(socket->read_shut ? stream.say_disconnect() : stream.say_shutdown());
  return 0;
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

int rclose(int fd) {
  WEFT_CM_FORWARD(rclose, fd)
  const weft::os::NoCancel guard;
  if (AtTable::here()) return fail_minus(EDEADLK);
  RsocketPtr socket;
  {
    const AtTable at_table;
    Process& all = *g_process;
    const weft::os::WriteLock lock(all.mutex);
    const auto found = all.sockets.find(fd);
    if (found != all.sockets.end() && found->second->mutex.is_this_threads()) {
      return fail_minus(EDEADLK);
    }
    const bool noted = forget_number(fd);
    if (found == all.sockets.end()) return noted ? close(fd) : fail_minus(EBADF);
    socket = std::move(found->second);
    all.sockets.erase(found);
    if (socket->numbers > 1) {
      drop_number(all, *socket, fd);
      return close(fd);
    }
  }
  // Another thread has it, and may be asleep in the kernel. Not by shutdown(): see the service.
  if (socket->type == SOCK_DGRAM && socket.use_count() > 1) syscall(SYS_shutdown, fd, SHUT_RDWR);
  stop_listening(socket);
  if (auto link = take_link(*socket); link != nullptr) {
    close_connection(std::move(link), fd, resets(fd) ? Goodbye::kReset : Goodbye::kInOrder);
  }
  return close(fd);
}

int rgetpeername(int fd, sockaddr* address, socklen_t* length) {
  WEFT_CM_FORWARD(rgetpeername, fd, address, length)
  return find_rsocket(fd) == nullptr ? -1 : getpeername(fd, address, length);
}

int rgetsockname(int fd, sockaddr* address, socklen_t* length) {
  WEFT_CM_FORWARD(rgetsockname, fd, address, length)
  return find_rsocket(fd) == nullptr ? -1 : getsockname(fd, address, length);
}

}  // extern "C"
