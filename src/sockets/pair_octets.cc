#include "sockets/pair_octets.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "sockets/real_calls.h"

namespace weft::sockets {

namespace {
std::atomic<bool> g_restricted{false};
}  // namespace

void restrict_pair_calls() { g_restricted = true; }
bool pair_calls_are_restricted() { return g_restricted.load(std::memory_order_relaxed); }

bool ready_for(int fd, short events, int timeout_ms) {
  pollfd one{fd, events, 0};
  return real().poll(&one, 1, timeout_ms) > 0 && (one.revents & events) != 0;
}

ssize_t put_octets(int fd, const std::uint8_t* octets, std::size_t count, bool wait) {
  if (!pair_calls_are_restricted()) {
    return real().send(fd, octets, count, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
  }
  if (!wait && !ready_for(fd, POLLOUT, 0)) {
    errno = EAGAIN;
    return -1;
  }
  return real().write(fd, octets, count);
}

ssize_t take_octets(int fd, std::uint8_t* octets, std::size_t count) {
  if (!pair_calls_are_restricted()) {
    return real().recv(fd, octets, count, MSG_DONTWAIT);
  }
  if (!ready_for(fd, POLLIN, 0)) return -1;
  return real().read(fd, octets, count);
}

ssize_t peek_octet(int fd, bool wait) {
  std::uint8_t octet = 0;
  if (!pair_calls_are_restricted()) {
    return real().recv(fd, &octet, 1, MSG_PEEK | (wait ? 0 : MSG_DONTWAIT));
  }
  pollfd one{fd, POLLIN, 0};
  const int found = real().poll(&one, 1, wait ? -1 : 0);
  if (found < 0) return -1;
  if ((one.revents & (POLLHUP | POLLERR)) != 0) return 0;
  if (found > 0) return 1;
  errno = EAGAIN;
  return -1;
}

ssize_t peek_octets(int fd, std::uint8_t* octets, std::size_t most) {
  if (pair_calls_are_restricted()) return peek_octet(fd, false);
  return real().recv(fd, octets, most, MSG_PEEK | MSG_DONTWAIT);
}

}  // namespace weft::sockets
