// How many octets a TCP connection has carried for this end, by whatever calls.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "sockets/real_calls.h"

namespace weft::sockets::granted {

// False: not a TCP socket, or a kernel that does not count.
inline bool tcp_info_of(int fd, tcp_info& info) {
  socklen_t length = sizeof info;
  info = {};
  constexpr socklen_t kWithBytesSent = offsetof(tcp_info, tcpi_bytes_retrans) + 8;
  return real().getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         length >= kWithBytesSent;
}

// Octets that TCP has taken from this end.
inline bool octets_taken(int fd, std::uint64_t& out) {
  tcp_info info;
  if (!tcp_info_of(fd, info)) return false;
  out = info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes;
  return true;
}

// Octets that this end has read from TCP.
inline bool octets_read(int fd, std::uint64_t& out) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    tcp_info before;
    tcp_info after;
    int unread = 0;
    if (!tcp_info_of(fd, before) || real().ioctl(fd, FIONREAD, &unread) != 0 ||
        !tcp_info_of(fd, after)) {
      return false;
    }
    if (before.tcpi_bytes_received != after.tcpi_bytes_received ||
        before.tcpi_state != after.tcpi_state) {
      continue;  // octets came in between
    }
    // The peer's FIN counts as one octet. 4 to 9 and 11: the states after it, or CLOSE.
    constexpr std::uint32_t kEnded = 1U << 6U | 1U << 7U | 1U << 8U | 1U << 9U | 1U << 11U;
    const bool ended = (kEnded >> after.tcpi_state & 1U) != 0;
    out = after.tcpi_bytes_received - static_cast<std::uint64_t>(unread) - (ended ? 1 : 0);
    return true;
  }
  return false;
}

}  // namespace weft::sockets::granted
