// Options and names. Those of a channel are its TCP socket's, which lives on under it.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <weft/sockets.h>

#include <algorithm>
#include <cstring>

#include "sockets/preload/direct_library.h"
#include "sockets/preload/preload.h"
#include "sockets/preload/preload_decide.h"
#include "sockets/preload/preload_relay.h"

namespace weft::sockets {
namespace {

int give_name(const sockaddr_storage& name, socklen_t name_length, sockaddr* out,
              socklen_t* length) {
  if (out == nullptr || length == nullptr) return fail_with(EFAULT);
  std::memcpy(out, &name, std::min(*length, name_length));
  *length = name_length;
  return 0;
}

int give_int(int value, void* out, socklen_t* length) {
  if (out == nullptr || length == nullptr) return fail_with(EFAULT);
  *length = std::min<socklen_t>(*length, sizeof value);
  std::memcpy(out, &value, *length);
  return 0;
}

// getsockopt() for a relayed socket that another process passed on: it shall look like TCP.
int get_of_relayed(int level, int name, int domain, void* value, socklen_t* length) {
  if (level == SOL_SOCKET && name == SO_DOMAIN) return give_int(domain, value, length);
  if (level == SOL_SOCKET && name == SO_PROTOCOL) return give_int(IPPROTO_TCP, value, length);
  if (level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6) {
    if (value == nullptr || length == nullptr) return fail_with(EFAULT);
    std::memset(value, 0, *length);
    if (level == IPPROTO_IP && name == IP_OPTIONS) *length = 0;
    return 0;
  }
  return -1;
}

enum class WhichEnd : bool { kOurs, kPeers };

// The answer of getsockname or getpeername for a plain descriptor. The kernel gave `result`,
// `address` and `length`. A relayed socket is a Unix socket to the kernel; it gets the name of the
// TCP connection behind it. `room`: the length before the kernel's call.
int name_of_plain(int fd, WhichEnd end, int result, socklen_t room, sockaddr* address,
                  socklen_t* length) {
  if (result != 0 || address == nullptr || *length < sizeof(sa_family_t) ||
      room < sizeof(sa_family_t) || address->sa_family != AF_UNIX) {
    return result;
  }
  sockaddr_storage local;
  sockaddr_storage peer;
  socklen_t local_length = 0;
  socklen_t peer_length = 0;
  if (!names_of_relayed(fd, local, local_length, peer, peer_length)) return result;
  *length = room;
  return end == WhichEnd::kOurs ? give_name(local, local_length, address, length)
                                : give_name(peer, peer_length, address, length);
}

bool looks_relayed(int fd, int& domain) {
  if (table::kind_of(fd) == Kind::kChannel) return false;
  sockaddr_storage local;
  sockaddr_storage peer;
  socklen_t a = 0;
  socklen_t b = 0;
  if (!names_of_relayed(fd, local, a, peer, b)) return false;
  domain = local.ss_family;
  return true;
}

bool connected_tcp(int fd) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  sockaddr_storage peer;
  socklen_t peer_length = sizeof peer;
  return real().getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
         protocol == IPPROTO_TCP &&
         real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0;
}

// WEFT_MODE of setsockopt() and getsockopt(), with their errnos.
int set_mode(int fd, const void* value, socklen_t length) {
  int on = 0;
  if (value == nullptr) return fail_with(EFAULT);
  if (length < sizeof on) return fail_with(EINVAL);
  std::memcpy(&on, value, sizeof on);
  Kind kind = table::kind_of(fd);
  if (kind == Kind::kUnknown) kind = classify(fd);
  if (kind != Kind::kFresh && kind != Kind::kListener) {
    if (kind == Kind::kDirect && on != 0) return 0;
    return fail_with(kind == Kind::kPlain && !connected_tcp(fd) ? ENOPROTOOPT : EISCONN);
  }
  if (!direct::library().whole) return fail_with(EOPNOTSUPP);
  const table::Lock lock;
  Conn* conn = table::conn_of(fd);
  if (conn == nullptr) return fail_with(ENOMEM);
  conn->direct = on != 0;
  return 0;
}

int get_mode(int fd, void* value, socklen_t* length) {
  if (value == nullptr || length == nullptr) return fail_with(EFAULT);
  // An accepted connection is decided now, as if the program were about to speak.
  const Kind kind = table::kind_of(fd) == Kind::kUnknown ? classify(fd) : resolve(fd, true);
  int on = kind == Kind::kDirect ? 1 : 0;
  if (kind == Kind::kFresh || kind == Kind::kListener) {
    const table::Lock lock;
    const Conn* conn = table::conn_of(fd);
    on = conn != nullptr && conn->direct ? 1 : 0;
  }
  *length = std::min<socklen_t>(*length, sizeof on);
  std::memcpy(value, &on, *length);
  return 0;
}

}  // namespace
}  // namespace weft::sockets

using namespace weft::sockets;

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_EXPORT int getsockname(int fd, __SOCKADDR_ARG address, socklen_t* __restrict length) {
  if (table::kind_of(fd) == Kind::kDirect) return direct::calls().getsockname(fd, address, length);
  {
    const Use use(fd);
    if (use.channel() != nullptr) {
      const EndState& end = use.channel()->end();
      return give_name(end.local, end.local_length, address, length);
    }
  }
  const socklen_t room = length != nullptr ? *length : 0;
  const int result = real().getsockname(fd, address, length);
  return name_of_plain(fd, WhichEnd::kOurs, result, room, address, length);
}

WEFT_EXPORT int getpeername(int fd, __SOCKADDR_ARG address, socklen_t* __restrict length) {
  if (table::kind_of(fd) == Kind::kDirect) return direct::calls().getpeername(fd, address, length);
  if (table::kind_of(fd) == Kind::kConnecting) advance_connecting(fd);
  {
    const Use use(fd);
    if (use.channel() != nullptr) {
      const EndState& end = use.channel()->end();
      return give_name(end.peer, end.peer_length, address, length);
    }
  }
  const socklen_t room = length != nullptr ? *length : 0;
  const int result = real().getpeername(fd, address, length);
  return name_of_plain(fd, WhichEnd::kPeers, result, room, address, length);
}

WEFT_EXPORT int setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  if (level == SOL_RDMA && name == WEFT_MODE) return set_mode(fd, value, length);
  if (table::kind_of(fd) == Kind::kDirect) {
    return direct::calls().setsockopt(fd, level, name, value, length);
  }
  {
    const Use use(fd);
    if (use.channel() != nullptr) {
      if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
        if (real().setsockopt(fd, level, name, value, length) != 0) return -1;
      }
      return real().setsockopt(use.conn()->tcp, level, name, value, length);
    }
  }
  const int result = real().setsockopt(fd, level, name, value, length);
  int domain = 0;
  if (result != 0 && level != SOL_SOCKET && looks_relayed(fd, domain)) {
    errno = 0;
    return 0;  // nothing that TCP could do is lost on the way within the machine
  }
  return result;
}

WEFT_EXPORT int getsockopt(int fd, int level, int name, void* __restrict value,
                           socklen_t* __restrict length) {
  if (level == SOL_RDMA && name == WEFT_MODE) return get_mode(fd, value, length);
  if (table::kind_of(fd) == Kind::kDirect) {
    return direct::calls().getsockopt(fd, level, name, value, length);
  }
  if (table::kind_of(fd) == Kind::kConnecting) {
    // SO_ERROR is how a program learns that it is connected.
    const int result = real().getsockopt(fd, level, name, value, length);
    advance_connecting(fd);
    return result;
  }
  {
    const Use use(fd);
    if (use.channel() != nullptr) {
      if (level == SOL_SOCKET && name == SO_ERROR) {
        if (value == nullptr || length == nullptr) return fail_with(EFAULT);
        return give_int(use.channel()->take_error(), value, length);
      }
      return real().getsockopt(use.conn()->tcp, level, name, value, length);
    }
  }
  int domain = 0;
  const bool odd = level != SOL_SOCKET || name == SO_DOMAIN || name == SO_PROTOCOL;
  const int result = real().getsockopt(fd, level, name, value, length);
  if (!odd || (result == 0 && level != SOL_SOCKET)) return result;
  const int error = errno;
  if (looks_relayed(fd, domain) && get_of_relayed(level, name, domain, value, length) == 0) {
    return 0;
  }
  errno = error;
  return result;
}

WEFT_EXPORT int shutdown(int fd, int how) {
  Kind kind = table::kind_of(fd);
  if (kind == Kind::kConnecting || kind == Kind::kUndecided) kind = resolve(fd, how != SHUT_RD);
  if (kind == Kind::kDirect) return direct::calls().shutdown(fd, how);
  const Use use(fd);
  if (use.channel() == nullptr) return real().shutdown(fd, how);
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return fail_with(EINVAL);
  use.channel()->shut(how);
  return 0;
}
