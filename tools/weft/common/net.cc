#include "weft/common/net.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "weft/common/sysinfo.h"

namespace weft::cli {
namespace {

void set_int(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

int get_int(int fd, int level, int option) {
  int value = 0;
  socklen_t size = sizeof(value);
  getsockopt(fd, level, option, &value, &size);
  return value;
}

// -1 and errno: as poll(2). Waits on through interruptions.
bool wait_for(int fd, short events, std::int64_t deadline_ns) {
  while (true) {
    const std::int64_t left_ms = (deadline_ns - now_ns()) / 1'000'000;
    pollfd p{fd, events, 0};
    const int n = poll(&p, 1, static_cast<int>(std::max<std::int64_t>(left_ms, 0)));
    if (n > 0) return true;
    if (n == 0 && left_ms <= 0) return false;
    if (n < 0 && errno != EINTR) return false;
  }
}

Outcome<UniqueFd> listen_once(const SocketAddress& where, int backlog, const SocketChoice& choice) {
  UniqueFd fd(socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return failure(std::strerror(errno));
  set_int(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (where.family() == AF_INET6) set_int(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  apply(choice, fd.get());  // accepted sockets inherit both
  if (bind(fd.get(), where.get(), where.size()) != 0 || listen(fd.get(), backlog) != 0) {
    return failure(std::strerror(errno));
  }
  return fd;
}

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

void apply(const SocketChoice& choice, int fd) {
  if (!choice.congestion.empty() && choice.congestion != "keep") {
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, choice.congestion.c_str(),
               static_cast<socklen_t>(choice.congestion.size()));
  }
  if (choice.buffer_bytes != 0) {
    set_int(fd, SOL_SOCKET, SO_SNDBUF, static_cast<int>(choice.buffer_bytes));
    set_int(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(choice.buffer_bytes));
  }
}

Outcome<void> check_congestion(const std::string& name) {
  if (name.empty() || name == "keep") return {};
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (setsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.c_str(),
                 static_cast<socklen_t>(name.size())) == 0) {
    return {};
  }
  const bool forbidden = errno == EPERM;
  const char* list = forbidden ? "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
                               : "/proc/sys/net/ipv4/tcp_available_congestion_control";
  return usage_error(fmt::format(
      "'{}' is {}; it can be keep or one of: {}", name,
      forbidden ? "open to the administrator only" : "no congestion control of this kernel",
      first_line(list)));
}

std::string congestion_of(int fd) {
  char name[64] = {};
  socklen_t size = sizeof(name) - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) return "";
  return name;
}

int send_buffer_of(int fd) { return get_int(fd, SOL_SOCKET, SO_SNDBUF); }
int receive_buffer_of(int fd) { return get_int(fd, SOL_SOCKET, SO_RCVBUF); }

void set_nonblocking(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

void set_no_delay(int fd) { set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1); }

void set_io_timeout(int fd, int timeout_ms) {
  const timeval time{timeout_ms / 1000, (timeout_ms % 1000) * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

void set_keepalive(int fd) {
  set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
}

Outcome<UniqueFd> tcp_listen(const SocketAddress& where, int backlog, const SocketChoice& choice) {
  auto fd = listen_once(where, backlog, choice);
  if (!fd && where.family() == AF_INET6 && where.is_any()) {
    fd = listen_once(SocketAddress::any(AF_INET, where.port()), backlog, choice);
  }
  if (fd) return fd;
  return failure(fmt::format("cannot listen on {}: {}; choose another address or port",
                             where.text(), fd.error().message));
}

Outcome<UniqueFd> tcp_connect(const SocketAddress& peer, int timeout_ms,
                              const SocketChoice& choice) {
  UniqueFd fd(socket(peer.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return failure(fmt::format("cannot make a socket: {}", std::strerror(errno)));
  apply(choice, fd.get());
  int error = 0;
  if (connect(fd.get(), peer.get(), peer.size()) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      const bool done =
          wait_for(fd.get(), POLLOUT, now_ns() + std::int64_t{timeout_ms} * 1'000'000);
      error = done ? get_int(fd.get(), SOL_SOCKET, SO_ERROR) : ETIMEDOUT;
    }
  }
  if (error != 0) {
    return failure(fmt::format("cannot reach {}: {}", peer.text(), std::strerror(error)));
  }
  set_nonblocking(fd.get(), false);
  return fd;
}

UniqueFd tcp_accept(int listener, int timeout_ms) {
  if (!wait_readable(listener, timeout_ms)) return UniqueFd();
  return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
}

SocketAddress local_address_of(int fd) {
  SocketAddress out;
  socklen_t size = SocketAddress::capacity();
  getsockname(fd, out.get(), &size);
  return out.unmapped();
}

SocketAddress peer_address_of(int fd) {
  SocketAddress out;
  socklen_t size = SocketAddress::capacity();
  getpeername(fd, out.get(), &size);
  return out.unmapped();
}

bool wait_readable(int fd, int timeout_ms) {
  return wait_for(fd, POLLIN, now_ns() + std::int64_t{timeout_ms} * 1'000'000);
}

bool write_all(int fd, const void* data, std::size_t size, int timeout_ms) {
  const std::int64_t deadline = now_ns() + std::int64_t{timeout_ms} * 1'000'000;
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      size -= static_cast<std::size_t>(n);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
      return false;
    } else if (!wait_for(fd, POLLOUT, deadline)) {
      return false;
    }
  }
  return true;
}

bool read_all(int fd, void* data, std::size_t size, int timeout_ms) {
  const std::int64_t deadline = now_ns() + std::int64_t{timeout_ms} * 1'000'000;
  auto* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = recv(fd, at, size, MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      size -= static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else if (!wait_for(fd, POLLIN, deadline)) {
      return false;
    }
  }
  return true;
}

}  // namespace weft::cli
