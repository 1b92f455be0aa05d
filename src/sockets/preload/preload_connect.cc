// The calls that make connections: socket, connect, listen, accept.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sockets/preload/direct_library.h"
#include "sockets/preload/preload.h"
#include "sockets/preload/preload_decide.h"
#include "sockets/preload/preload_direct.h"
#include "sockets/preload/preload_settings.h"
#include "sockets/preload/preload_ways.h"
#include "sockets/preload/socket_list.h"
#include "sockets/preload/socket_rules.h"
#include "sockets/preload/syn_mark.h"

namespace weft::sockets {
namespace {

// IWARP mode is set, and no rule says tcp.
bool wants_direct(int fd, const sockaddr* address) {
  const table::Lock lock;
  const Conn* conn = table::conn_of(fd);
  if (conn == nullptr || !conn->direct) return false;
  const Rule* rule = settings().rules.find(Role::kConnect, settings().program, address);
  return rule == nullptr || rule->way != RuleWay::kTcp;
}

// The kernel has taken a connect(), `in_progress` or done at once, of a socket that may get a
// channel.
void note_begun(int fd, const sockaddr* address, const Conn* conn, Way way, const char* reason,
                bool in_progress) {
  const table::Lock lock;
  Conn* const now = table::conn_of(fd);
  if (way == Way::kTcp || conn == nullptr || now != conn) {
    table::put(fd, Kind::kPlain, nullptr);
    list::note(fd, "connect", address, "tcp", reason);
    return;
  }
  now->connect_reported = !in_progress;
  table::put(fd, Kind::kConnecting, now);
  list::note(fd, "connect", address, name_of(way), reason);
  advance_connecting(fd);  // on one machine it is there at once
}

int connect_fresh(int fd, const sockaddr* address, socklen_t length) {
  const char* reason = "";
  const Way way = choose_way(address, length, reason);
  tell_why("connect", address, name_of(way), reason);
  Conn* conn = nullptr;
  {
    const table::Lock lock;
    conn = table::conn_of(fd);
    if (way != Way::kTcp && conn != nullptr) {
      conn->way = way;
      std::memcpy(&conn->peer, address, std::min<size_t>(length, sizeof conn->peer));
      conn->peer_length = length;
      mark_syn(fd, *conn, address->sa_family);
    }
  }
  const int result = real().connect(fd, address, length);
  const int error = errno;
  if (result == 0 || error == EINPROGRESS || error == EINTR) {
    note_begun(fd, address, conn, way, reason, result != 0);
  } else if (conn != nullptr) {
    const table::Lock lock;
    if (table::conn_of(fd) == conn) unmark_syn(fd, *conn);
  }
  errno = error;
  return result;
}

int do_connect(int fd, const sockaddr* address, socklen_t length) {
  if (table::kind_of(fd) == Kind::kUnknown) classify(fd);
  const Kind kind = table::kind_of(fd);
  if (kind == Kind::kDirect) return direct::calls().connect(fd, address, length);
  if (kind == Kind::kChannel) {
    const Use use(fd);
    if (use.conn() != nullptr && !std::exchange(use.conn()->connect_reported, true)) return 0;
    return fail_with(EISCONN);
  }
  const bool inet = address != nullptr && length >= sizeof(sockaddr_in) &&
                    (address->sa_family == AF_INET ||
                     (address->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)));
  if (kind == Kind::kConnecting) {
    const int result = real().connect(fd, address, length);
    const int error = errno;
    advance_connecting(fd);
    errno = error;
    return result;
  }
  if (kind != Kind::kFresh || !inet) return real().connect(fd, address, length);
  if (wants_direct(fd, address)) return direct::connect(fd, address, length);
  return connect_fresh(fd, address, length);
}

int do_accept(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (table::kind_of(fd) == Kind::kUnknown) classify(fd);
  const int accepted = real().accept4(fd, address, length, flags);
  if (accepted < 0) return accepted;
  if (table::kind_of(fd) != Kind::kListener) {
    table::forget(accepted);
    return accepted;
  }
  {
    const table::Lock lock;
    Conn* conn = table::make_conn();
    if (conn != nullptr) conn->connect_reported = true;  // there is nothing to connect
    const Conn* listener = table::conn_of(fd);
    if (conn != nullptr) conn->direct = listener != nullptr && listener->direct;
    table::put(accepted, conn != nullptr ? Kind::kUndecided : Kind::kPlain, conn);
  }
  // Most clients of this machine have greeted by now.
  static_cast<void>(decide(accepted, false));
  return accepted;
}

}  // namespace
}  // namespace weft::sockets

using namespace weft::sockets;

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

// For `weft run --rules`: 0, or what is wrong with the file in `why`.
WEFT_EXPORT int weft_sockets_check_rules(const char* path, char* why, size_t size) {
  static Rules rules;
  return rules.load(path, why, size) ? 0 : -1;
}

WEFT_EXPORT int socket(int domain, int type, int protocol) {
  const int fd = real().socket(domain, type, protocol);
  if (fd < 0) return fd;
  const bool tcp = (domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM &&
                   (protocol == 0 || protocol == IPPROTO_TCP);
  if (tcp && preload_active()) {
    note_fresh(fd);
  } else {
    const table::Lock lock;
    table::put(fd, Kind::kPlain, nullptr);
  }
  return fd;
}

WEFT_EXPORT int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t length) {
  return do_connect(fd, address, length);
}

WEFT_EXPORT int listen(int fd, int backlog) {
  const int result = real().listen(fd, backlog);
  if (result == 0) begin_listening(fd);
  return result;
}

WEFT_EXPORT int accept4(int fd, __SOCKADDR_ARG address, socklen_t* length, int flags) {
  return do_accept(fd, address, length, flags);
}

WEFT_EXPORT int accept(int fd, __SOCKADDR_ARG address, socklen_t* __restrict length) {
  return do_accept(fd, address, length, 0);
}
