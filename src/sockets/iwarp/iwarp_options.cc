// WEFT_MODE; options and names.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <weft/sockets.h>

#include <algorithm>
#include <cstring>

#include "sockets/iwarp/direct_library.h"
#include "sockets/iwarp/iwarp.h"
#include "sockets/iwarp/iwarp_decide.h"
#include "sockets/iwarp/syn_mark.h"

namespace weft::sockets::iwarp {
namespace {

// 0, or an errno that tells why this descriptor can't have the mode.
int refusal_of(int fd) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  if (real().getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) != 0) {
    return errno == EBADF ? EBADF : ENOPROTOOPT;
  }
  tcp_info info{};
  length = sizeof info;
  if (protocol != IPPROTO_TCP ||
      real().getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
    return ENOPROTOOPT;
  }
  return info.tcpi_state == TCP_CLOSE || info.tcpi_state == TCP_LISTEN ? 0 : EISCONN;
}

int set_mode(int fd, const void* value, socklen_t length) {
  int on = 0;
  if (value == nullptr) return fail_with(EFAULT);
  if (length < sizeof on) return fail_with(EINVAL);
  std::memcpy(&on, value, sizeof on);
  const Kind kind = resolve(fd, true);
  if (kind == Kind::kDirect) return on != 0 ? 0 : fail_with(EISCONN);
  if (const int error = refusal_of(fd); error != 0) return fail_with(error);
  if (!direct::library().whole) return fail_with(EOPNOTSUPP);
  const table::Lock lock;
  if (on == 0) {
    table::settle_plain(fd);
    return 0;
  }
  if (table::kind_of(fd) == Kind::kAsked) return 0;
  Conn* conn = table::make_conn();
  if (conn == nullptr) return fail_with(ENOMEM);
  table::put(fd, Kind::kAsked, conn);
  save_syns(fd);  // it may listen already
  return 0;
}

int get_mode(int fd, void* value, socklen_t* length) {
  if (value == nullptr || length == nullptr) return fail_with(EFAULT);
  // An accepted connection is decided now, as if the program were about to speak.
  const Kind kind = resolve(fd, true);
  if (kind == Kind::kOther) {
    const int error = refusal_of(fd);
    if (error != 0 && error != EISCONN) return fail_with(error);
  }
  const int on = kind == Kind::kDirect || kind == Kind::kAsked ? 1 : 0;
  *length = std::min<socklen_t>(*length, sizeof on);
  std::memcpy(value, &on, *length);
  return 0;
}

}  // namespace
}  // namespace weft::sockets::iwarp

using namespace weft::sockets;
using namespace weft::sockets::iwarp;

WEFT_SEEN int getsockname(int fd, __SOCKADDR_ARG address, socklen_t* __restrict length) {
  if (table::kind_of(fd) == Kind::kDirect) return direct::calls().getsockname(fd, address, length);
  return real().getsockname(fd, address, length);
}

WEFT_SEEN int getpeername(int fd, __SOCKADDR_ARG address, socklen_t* __restrict length) {
  if (table::kind_of(fd) == Kind::kDirect) return direct::calls().getpeername(fd, address, length);
  return real().getpeername(fd, address, length);
}

WEFT_SEEN int setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  if (level == SOL_RDMA && name == WEFT_MODE) return set_mode(fd, value, length);
  if (table::kind_of(fd) == Kind::kDirect) {
    return direct::calls().setsockopt(fd, level, name, value, length);
  }
  return real().setsockopt(fd, level, name, value, length);
}

WEFT_SEEN int getsockopt(int fd, int level, int name, void* __restrict value,
                         socklen_t* __restrict length) {
  if (level == SOL_RDMA && name == WEFT_MODE) return get_mode(fd, value, length);
  if (table::kind_of(fd) == Kind::kDirect) {
    return direct::calls().getsockopt(fd, level, name, value, length);
  }
  return real().getsockopt(fd, level, name, value, length);
}

WEFT_SEEN int shutdown(int fd, int how) {
  if (resolve(fd, how != SHUT_RD) == Kind::kDirect) return direct::calls().shutdown(fd, how);
  return real().shutdown(fd, how);
}
