// Names, options, settings and counters of a socket.
#include <algorithm>
#include <cstring>

#include "exs/api/exs_api.h"
#include "os/lock.h"

using namespace weft::exs;

namespace {

bool may_set(const Socket& socket) {
  return socket.state == State::kNew || socket.state == State::kBound;
}

// Those of the F_SET commands. 0 or an errno.
int set_value(Socket& socket, int command, long arg) {
  if (!may_set(socket)) return EISCONN;
  Settings& to = socket.settings;
  switch (command) {
    case EXS_F_SETIMMEDIATE:
      if (arg < 0 || arg > static_cast<long>(kImmediateMax) || arg > to.ring_bytes / 4)
        return EINVAL;
      to.immediate_bytes = static_cast<std::uint32_t>(arg);
      return 0;
    case EXS_F_SETCREDITS:
      if (arg < kSlotsMin || arg > kSlotsMax) return EINVAL;
      to.slots = static_cast<std::uint16_t>(arg);
      return 0;
    case EXS_F_SETRING:
      if (arg < kRingMin || arg > static_cast<long>(kRingMax) || arg / 4 < to.immediate_bytes) {
        return EINVAL;
      }
      to.ring_bytes = static_cast<std::uint32_t>(arg);
      return 0;
    case EXS_F_SETTCPPORT:
      if (arg < EXS_TCPPORT_ANY || arg > UINT16_MAX) return EINVAL;
      to.tcp_port = static_cast<int>(arg);
      return 0;
    case EXS_F_SETPROVIDER:
      if (socket.provider != nullptr) return EISCONN;
      if (arg < EXS_PROVIDER_AUTO || arg > EXS_PROVIDER_TCP) return EINVAL;
      to.provider = static_cast<int>(arg);
      return 0;
    default: return EINVAL;
  }
}

int provider_of(const Socket& socket) {
  if (socket.provider == nullptr || socket.state == State::kConnecting) {
    return socket.settings.provider;
  }
  return socket.provider->is_rdma() ? EXS_PROVIDER_RDMA : EXS_PROVIDER_TCP;
}

// The port at which a listener takes peers that have only TCP.
int tcp_port_of(const Socket& socket) {
  Address name;
  name.length = sizeof name.storage;
  if (socket.state != State::kListening || socket.settings.tcp_port == 0) {
    return socket.settings.tcp_port;
  }
  if (::getsockname(socket.fd, name.get(), &name.length) != 0) return fail(errno);
  return name.port();
}

int set_time_limit(Socket& socket, TimeLimit& limit, const void* value, socklen_t length) {
  exs_timeout_t given;
  if (length < sizeof given) return EINVAL;
  std::memcpy(&given, value, sizeof given);
  if (given.tv.tv_sec < 0 || given.tv.tv_usec < 0 || given.tv.tv_usec >= 1000000) return EDOM;
  if ((given.flags & ~EXS_TIMEOUT_ONCE) != 0) return EINVAL;
  TimeLimit next;
  next.after = std::chrono::seconds(given.tv.tv_sec) + std::chrono::microseconds(given.tv.tv_usec);
  next.once = (given.flags & EXS_TIMEOUT_ONCE) != 0;
  next.ahandle = given.ahandle;
  next.given = given;
  next.since = Clock::now();
  if (next.after != Clock::duration::zero()) {
    socket.look_at(next.since + next.after);
    // Without a queue the limit is for calls that block.
    if (given.qhandle != EXS_QHANDLE_INVALID) {
      next.queue =
          Engine::instance().queues.find(given.qhandle, [](EventQueue& found) { found.attach(); });
      if (next.queue == nullptr) return EINVAL;
    }
  }
  if (limit.queue != nullptr) limit.queue->detach();
  limit = std::move(next);
  return 0;
}

template <class T>
int copy_value(const T& from, void* value, socklen_t* length) {
  if (*length < sizeof from) return EINVAL;
  std::memcpy(value, &from, sizeof from);
  *length = sizeof from;
  return 0;
}

int name_of(int fd, sockaddr* addr, socklen_t* addrlen, bool peer) {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  if (addr == nullptr || addrlen == nullptr) return fail(EFAULT);
  const weft::os::MutexLock lock(socket->mutex);
  Address found;
  int error = ENOTCONN;
  if (peer) {
    if (socket->state == State::kConnected) error = socket->provider->peer(found);
  } else if (socket->provider != nullptr) {
    error = socket->provider->local(found);
  } else {
    found.length = sizeof found.storage;
    error = ::getsockname(fd, found.get(), &found.length) == 0 ? 0 : errno;
  }
  if (error != 0) return fail(error);
  found.copy_to(addr, addrlen);
  return 0;
}

}  // namespace

extern "C" {

int exs_fcntl(int fd, int command, long arg) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  const weft::os::MutexLock lock(socket->mutex);
  const Settings& now = socket->settings;
  switch (command) {
    case F_GETFL: return O_RDWR | (socket->nonblocking ? O_NONBLOCK : 0);
    case F_SETFL: socket->nonblocking = (arg & O_NONBLOCK) != 0; return 0;
    case F_GETFD:
    case F_SETFD: return ::fcntl(fd, command, arg);
    case EXS_F_GETIMMEDIATE: return static_cast<int>(now.immediate_bytes);
    case EXS_F_GETCREDITS: return now.slots;
    case EXS_F_GETRING: return static_cast<int>(now.ring_bytes);
    case EXS_F_GETPROVIDER: return provider_of(*socket);
    case EXS_F_GETTCPPORT: return tcp_port_of(*socket);
    default: break;
  }
  const int error = set_value(*socket, command, arg);
  return error == 0 ? 0 : fail(error);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_setsockopt(int fd, int level, int name, const void* value, socklen_t length) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  if (value == nullptr) return fail(EFAULT);
  const weft::os::MutexLock lock(socket->mutex);
  int error = 0;
  if (level == SOL_SOCKET && name == SO_ASYNC_SEND_TIMEOUT) {
    error = set_time_limit(*socket, socket->send_limit, value, length);
  } else if (level == SOL_SOCKET && name == SO_ASYNC_RECV_TIMEOUT) {
    error = set_time_limit(*socket, socket->receive_limit, value, length);
  } else if (level == SOL_SOCKET && name == SO_ASYNC_RECV_ORDERED) {
    // They always are: nothing else can be asked for in a way that a program could notice.
    error = length < sizeof(int) ? EINVAL : 0;
  } else {
    if (level == SOL_SOCKET && name == SO_LINGER && length >= sizeof(linger)) {
      linger wanted;
      std::memcpy(&wanted, value, sizeof wanted);
      socket->end.linger(wanted.l_onoff != 0 && wanted.l_linger >= 0,
                         std::chrono::seconds(std::max(wanted.l_linger, 0)));
    }
    // For a connection over TCP; over RDMA they are remembered, and mean nothing.
    return ::setsockopt(fd, level, name, value, length);
  }
  return error == 0 ? 0 : fail(error);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_getsockopt(int fd, int level, int name, void* value, socklen_t* length) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  if (value == nullptr || length == nullptr) return fail(EFAULT);
  const weft::os::MutexLock lock(socket->mutex);
  if (level != SOL_SOCKET) return ::getsockopt(fd, level, name, value, length);
  int error = 0;
  switch (name) {
    case SO_ASYNC_SEND_TIMEOUT: error = copy_value(socket->send_limit.given, value, length); break;
    case SO_ASYNC_RECV_TIMEOUT:
      error = copy_value(socket->receive_limit.given, value, length);
      break;
    case SO_ASYNC_RECV_ORDERED: error = copy_value(1, value, length); break;
    case SO_TYPE:
      error = copy_value(socket->kind == Kind::kStream ? static_cast<int>(SOCK_STREAM)
                                                       : static_cast<int>(SOCK_SEQPACKET),
                         value, length);
      break;
    case SO_ERROR:
      error = copy_value(socket->error, value, length);
      if (error == 0 && socket->state != State::kFailed) socket->error = 0;
      break;
    default: return ::getsockopt(fd, level, name, value, length);
  }
  return error == 0 ? 0 : fail(error);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_getsockname(int fd, sockaddr* addr, socklen_t* addrlen) try {
  return name_of(fd, addr, addrlen, false);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_getpeername(int fd, sockaddr* addr, socklen_t* addrlen) try {
  return name_of(fd, addr, addrlen, true);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_stats(int fd, exs_stats_t* stats) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  if (stats == nullptr) return fail(EFAULT);
  if (stats->size < sizeof stats->size) return fail(EINVAL);
  const weft::os::MutexLock lock(socket->mutex);
  const std::size_t room = stats->size;
  std::memset(static_cast<void*>(stats), 0, room);
  std::memcpy(static_cast<void*>(stats), &socket->stats, std::min(room, sizeof socket->stats));
  stats->size = std::min(room, sizeof socket->stats);
  return 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

}  // extern "C"
