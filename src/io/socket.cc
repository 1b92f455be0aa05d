#include "io/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <weft/system_error.h>

#include <linux/sockios.h>
#include <linux/tcp.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/time.h"
#include "os/cancel.h"

namespace weft::io {

namespace {

constexpr std::uint32_t kEthernetMss = 1448;  // where the kernel does not say
constexpr int kKeepaliveProbes = 127;
// Inside a machine the sender hands over no more than this beyond what the peer has read. It stays
// in the caches that way. Left to the kernel it grows to megabytes, and copying into cold pages
// takes two thirds of a sender's time: messages of 500 kB ran at two thirds of this speed, of
// 1400 kB at half of it. The kernel doubles the number for its own bookkeeping.
constexpr int kLoopbackSendBuffer = 192 << 10;

bool set_int(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

int whole_seconds(Duration d) {
  constexpr std::int64_t kNsPerSecond = 1'000'000'000;
  constexpr std::int64_t kDayS = 86400;
  return static_cast<int>(std::clamp<std::int64_t>(d.count() / kNsPerSecond, 1, kDayS));
}

std::string_view set_congestion(int fd, const std::string& name) {
  if (name.empty() || name == "keep") return {};
  // EPERM or ENOENT: the administrator has not opened it to everybody. The default stays.
  const bool set = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                              static_cast<socklen_t>(name.size())) == 0;
  return set ? std::string_view(name) : std::string_view();
}

// The limit for idle peers is split into an idle time and probes that fit into it.
// Probes begin after half the limit. When to give up is decided above, by what TCP knows of the
// peer: the kernel lets TCP_USER_TIMEOUT override the count of probes, so it can't keep two limits.
struct Probes {
  int idle_s;
  int interval_s;
};
Probes probes_of(Duration limit) {
  const int total_s = whole_seconds(limit);
  assert(total_s >= 0);
  return {std::max(1, total_s / 2), std::max(1, total_s / 8)};
}

}  // namespace

void keep_alive(int fd, Duration limit) {
  if (limit.count() <= 0) return;
  const Probes probes = probes_of(limit);
  set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, probes.idle_s);
  set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, probes.interval_s);
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
}

Error error_from_errno(int error) noexcept {
  switch (error) {
    case ECONNREFUSED: return Error::kRefused;
    case ECONNRESET:
    case EPIPE:
    case ECONNABORTED:
    case ENETRESET: return Error::kConnectionLost;
    case ETIMEDOUT: return Error::kTimedOut;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN: return Error::kUnreachable;
    case EADDRINUSE: return Error::kAddressInUse;
    case EADDRNOTAVAIL:
    case EINVAL: return Error::kInvalidArgument;
    case EACCES:
    case EPERM: return Error::kPermission;
    case ENOMEM:
    case ENOBUFS: return Error::kNoMemory;
    case EAFNOSUPPORT: return Error::kUnsupported;
    case ENOTCONN: return Error::kNotConnected;
    default: return system_error(error);
  }
}

Result<os::Fd> open_socket(int family) {
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (fd < 0) return fail(error_from_errno(errno));
  return os::Fd::closed_in_child(fd);
}

Status bind_socket(int fd, const SocketAddress& local, bool reuse_address, bool v6_only) {
  if (reuse_address) set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (local.family() == AF_INET6) set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, v6_only ? 1 : 0);
  if (::bind(fd, local.get(), local.size()) != 0) return fail(error_from_errno(errno));
  return {};
}

Status listen_socket(int fd) {
  // The kernel shortens it. A SYN that finds the queue full is dropped, which costs the peer a
  // second, and many silent connections may come at once.
  constexpr int kQueue = 65536;
  // Its connections inherit this: those that linger in TIME_WAIT do not keep the port from the next
  // server.
  set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::listen(fd, kQueue) != 0) return fail(error_from_errno(errno));
  return {};
}

Status begin_connect(int fd, const SocketAddress& peer) {
  if (os::uncancelled([&] { return ::connect(fd, peer.get(), peer.size()); }) == 0) return {};
  // EINTR: the handshake goes on in the background, as with EINPROGRESS.
  if (errno == EINPROGRESS || errno == EINTR) return {};
  return fail(error_from_errno(errno));
}

bool is_connect_over(int fd) {
  pollfd one{.fd = fd, .events = POLLOUT, .revents = 0};
  return os::uncancelled([&] { return ::poll(&one, 1, 0); }) == 1;
}

std::optional<SocketAddress> reached_peer(int fd) {
  const SocketAddress reached = peer_address(fd);
  if (reached.family() == AF_UNSPEC && !is_connect_over(fd)) return {};
  return reached;
}

Status undo_connect(int fd, const SocketAddress& bound) {
  const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
  const int undone = os::uncancelled([&] { return ::connect(fd, &nowhere, sizeof nowhere); });
  if (undone != 0) return fail(error_from_errno(errno));
  if (bound.family() == AF_UNSPEC) return {};
  // The kernel has given back a port that it had chosen itself. EINVAL: it has not.
  if (::bind(fd, bound.get(), bound.size()) != 0 && errno != EINVAL) {
    return fail(error_from_errno(errno));
  }
  return {};
}

Status take_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return fail(error_from_errno(error));
  return {};
}

Result<os::Fd> accept_socket(int fd, SocketAddress& peer) {
  const os::NoCancel guard;
  while (true) {
    socklen_t size = SocketAddress::capacity();
    const int got = accept4(fd, peer.get(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (got >= 0) return os::Fd::closed_in_child(got);
    switch (errno) {
      case EINTR: continue;
      case EAGAIN: return fail(Error::kTimedOut);
      case EMFILE: return fail(Error::kLimitExceeded);
      case ENFILE:
      case ENOBUFS:
      case ENOMEM: return fail(Error::kNoSpace);
      case EBADF:
      case EINVAL:
      case ENOTSOCK:
      case EFAULT: return fail(Error::kBadState);
      // Errors of the network that belong to the new connection are reported here by Linux.
      default: return fail(Error::kConnectionLost);
    }
  }
}

bool connection_waits(int fd) {
  pollfd p{fd, POLLIN, 0};
  return os::uncancelled([&] { return ::poll(&p, 1, 0); }) == 1;
}

bool queue_is_long(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  // For a listening socket these are the connections that wait, and how many may.
  return info.tcpi_unacked >= info.tcpi_sacked / 2;
}

Status prepare_adopted(int fd) {
  int domain = 0;
  int type = 0;
  socklen_t length = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 ||
      (domain != AF_INET && domain != AF_INET6) ||
      getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) {
    return fail(Error::kInvalidArgument);
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return fail(Error::kSystem);
  }
  return {};
}

void tune_before_connect(int fd, const Config& config) {
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (config.socket_buffer_bytes == 0) return;
  const int bytes =
      static_cast<int>(std::min<std::uint32_t>(config.socket_buffer_bytes, 1U << 30U));
  set_int(fd, SOL_SOCKET, SO_RCVBUF, bytes);
  set_int(fd, SOL_SOCKET, SO_SNDBUF, bytes);
}

void set_traffic_class(int fd, std::uint8_t value) {
  // A socket of IPv6 may carry IPv4, so both; one of IPv4 refuses the second.
  set_int(fd, IPPROTO_IP, IP_TOS, value);
  set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, value);
}

std::string_view tune_connected(int fd, const Config& config, bool loopback) {
  tune_listening(fd, config);
  return tune_accepted(fd, config, loopback);
}

void tune_listening(int fd, const Config& config) {
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  keep_alive(fd, config.keepalive);
}

std::string_view tune_accepted(int fd, const Config& config, bool loopback) {
  // Elsewhere the kernel finds what a longer round trip needs.
  if (loopback && config.socket_buffer_bytes == 0) {
    set_int(fd, SOL_SOCKET, SO_SNDBUF, kLoopbackSendBuffer);
  }
  return set_congestion(fd, loopback ? config.loopback_congestion : config.congestion);
}

Duration keepalive_limit(Duration limit) {
  const Probes probes = probes_of(limit);
  return std::max(limit, Duration{std::chrono::seconds(probes.idle_s + probes.interval_s)});
}

SocketAddress local_address(int fd) {
  SocketAddress out;
  socklen_t size = SocketAddress::capacity();
  if (getsockname(fd, out.get(), &size) != 0) return {};
  return out;
}

SocketAddress peer_address(int fd) {
  SocketAddress out;
  socklen_t size = SocketAddress::capacity();
  if (getpeername(fd, out.get(), &size) != 0) return {};
  return out;
}

bool is_loopback_path(const SocketAddress& local, const SocketAddress& peer) {
  if (peer.is_loopback()) return true;
  if (local.family() != peer.family()) return false;
  if (local.family() == AF_INET) {
    const auto* a = reinterpret_cast<const sockaddr_in*>(local.get());
    const auto* b = reinterpret_cast<const sockaddr_in*>(peer.get());
    return a->sin_addr.s_addr == b->sin_addr.s_addr;
  }
  if (local.family() == AF_INET6) {
    const auto* a = reinterpret_cast<const sockaddr_in6*>(local.get());
    const auto* b = reinterpret_cast<const sockaddr_in6*>(peer.get());
    return std::memcmp(&a->sin6_addr, &b->sin6_addr, sizeof a->sin6_addr) == 0;
  }
  return false;
}

std::string congestion_control(int fd) {
  char name[16 + 1] = {};  // TCP_CA_NAME_MAX
  socklen_t size = sizeof name - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) return {};
  return name;
}

std::uint32_t effective_mss(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  // The kernel's number is already less what every segment of this connection carries as options.
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_snd_mss != 0) {
    return info.tcpi_snd_mss;
  }
  return kEthernetMss;
}

std::uint32_t unacknowledged(int fd) {
  int bytes = 0;
  if (ioctl(fd, SIOCOUTQ, &bytes) != 0 || bytes < 0) return 0;
  return static_cast<std::uint32_t>(bytes);
}

void close_with_reset(os::Fd fd) {
  if (!fd) return;
  const linger at_once{1, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  // Dissolving the association resets the connection itself; close() alone would only give up our
  // share of a socket that a child may hold too.
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  static_cast<void>(os::uncancelled([&] { return ::connect(fd.get(), &nobody, sizeof nobody); }));
}

}  // namespace weft::io
