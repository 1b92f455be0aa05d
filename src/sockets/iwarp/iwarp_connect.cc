// connect, listen, accept.
#include <netinet/in.h>
#include <sys/socket.h>

#include "sockets/iwarp/direct.h"
#include "sockets/iwarp/direct_library.h"
#include "sockets/iwarp/iwarp.h"
#include "sockets/iwarp/iwarp_decide.h"
#include "sockets/iwarp/syn_mark.h"
#include "sockets/own_memory.h"
#include "sockets/socket_settings.h"

namespace weft::sockets::iwarp {
namespace {

bool is_inet(const sockaddr* address, socklen_t length) {
  return address != nullptr && length >= sizeof(sockaddr_in) &&
         (address->sa_family == AF_INET ||
          (address->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)));
}

// A rule takes the mode away from a socket.
void take_mode(int fd) {
  const table::Lock lock;
  table::settle_plain(fd);
}

int do_connect(int fd, const sockaddr* address, socklen_t length) {
  const Kind kind = table::kind_of(fd);
  if (kind == Kind::kDirect) return direct::calls().connect(fd, address, length);
  if (kind != Kind::kAsked || !is_inet(address, length)) {
    return real().connect(fd, address, length);
  }
  if (!must_be_tcp(Role::kConnect, address)) return direct::connect(fd, address, length);
  take_mode(fd);
  return real().connect(fd, address, length);
}

int do_listen(int fd, int backlog) {
  if (table::kind_of(fd) == Kind::kAsked) {
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    auto* address = reinterpret_cast<sockaddr*>(&local);
    if (real().getsockname(fd, address, &length) == 0 && must_be_tcp(Role::kListen, address)) {
      take_mode(fd);
    } else {
      save_syns(fd);
    }
  }
  return real().listen(fd, backlog);
}

int do_accept(int fd, sockaddr* address, socklen_t* length, int flags) {
  const int accepted = real().accept4(fd, address, length, flags);
  if (accepted < 0 || !table::in_use() || borrowing()) return accepted;
  if (table::kind_of(fd) != Kind::kAsked) {
    table::forget(accepted);
    return accepted;
  }
  {
    const table::Lock lock;
    Conn* conn = table::make_conn();
    table::put(accepted, conn != nullptr ? Kind::kUndecided : Kind::kOther, conn);
  }
  // A client that asks has done so by now, most often.
  static_cast<void>(resolve(accepted, false));
  return accepted;
}

}  // namespace
}  // namespace weft::sockets::iwarp

using namespace weft::sockets;
using namespace weft::sockets::iwarp;

WEFT_SEEN int socket(int domain, int type, int protocol) {
  const int made = real().socket(domain, type, protocol);
  // One that was closed by a call that was not seen had the number, perhaps.
  if (made >= 0 && table::in_use() && !borrowing()) table::forget(made);
  return made;
}

WEFT_SEEN int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t length) {
  return do_connect(fd, address, length);
}

WEFT_SEEN int listen(int fd, int backlog) { return do_listen(fd, backlog); }

WEFT_SEEN int accept4(int fd, __SOCKADDR_ARG address, socklen_t* length, int flags) {
  return do_accept(fd, address, length, flags);
}

WEFT_SEEN int accept(int fd, __SOCKADDR_ARG address, socklen_t* __restrict length) {
  return do_accept(fd, address, length, 0);
}
