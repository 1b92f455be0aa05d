// Options, shutdown, connect, ioctl.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstring>

#include "sockets/granted/granted.h"

namespace weft::sockets::granted {
namespace {

struct Option {
  int level;
  int name;
};

// A ring changes nothing about these. Any other option leaves the number to the kernel.
constexpr std::array kHarmless{Option{SOL_SOCKET, SO_KEEPALIVE},
                               Option{SOL_SOCKET, SO_LINGER},
                               Option{SOL_SOCKET, SO_REUSEADDR},
                               Option{SOL_SOCKET, SO_REUSEPORT},
                               Option{SOL_SOCKET, SO_RCVTIMEO},
                               Option{SOL_SOCKET, SO_SNDTIMEO},
                               Option{SOL_SOCKET, SO_RCVBUF},
                               Option{SOL_SOCKET, SO_PRIORITY},
                               Option{SOL_SOCKET, SO_BROADCAST},
                               Option{SOL_SOCKET, SO_MARK},
                               Option{IPPROTO_TCP, TCP_NODELAY},
                               Option{IPPROTO_TCP, TCP_CORK},
                               Option{IPPROTO_TCP, TCP_QUICKACK},
                               Option{IPPROTO_TCP, TCP_KEEPIDLE},
                               Option{IPPROTO_TCP, TCP_KEEPINTVL},
                               Option{IPPROTO_TCP, TCP_KEEPCNT},
                               Option{IPPROTO_TCP, TCP_USER_TIMEOUT},
                               Option{IPPROTO_TCP, TCP_DEFER_ACCEPT},
                               Option{IPPROTO_TCP, TCP_SYNCNT},
                               Option{IPPROTO_TCP, TCP_MAXSEG},
                               Option{IPPROTO_TCP, TCP_CONGESTION},
                               Option{IPPROTO_TCP, TCP_LINGER2},
                               Option{IPPROTO_IP, IP_TOS},
                               Option{IPPROTO_IP, IP_TTL},
                               Option{IPPROTO_IPV6, IPV6_V6ONLY},
                               Option{IPPROTO_IPV6, IPV6_TCLASS},
                               Option{IPPROTO_IPV6, IPV6_UNICAST_HOPS}};

bool harmless(int level, int name) {
  return std::any_of(kHarmless.begin(), kHarmless.end(),
                     [=](const Option& o) { return o.level == level && o.name == name; });
}

int set_nodelay(int fd, const void* value, socklen_t length) {
  const int result = real().setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, value, length);
  if (result != 0 || length < sizeof(int)) return result;
  int on = 0;
  std::memcpy(&on, value, sizeof on);
  with_lane(fd, [=](Lane& lane) {
    if (lane.nodelay.is_ours()) lane.nodelay.note_set(fd, on != 0);
  });
  return result;
}

}  // namespace
}  // namespace weft::sockets::granted

using namespace weft::sockets;
using namespace weft::sockets::granted;

WEFT_SEEN int setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  if (level == IPPROTO_TCP && name == TCP_NODELAY) return set_nodelay(fd, value, length);
  if (!harmless(level, name)) leave_to_kernel(fd, Why::kOption);
  return real().setsockopt(fd, level, name, value, length);
}

WEFT_SEEN int getsockopt(int fd, int level, int name, void* __restrict value,
                         socklen_t* __restrict length) {
  const int result = real().getsockopt(fd, level, name, value, length);
  if (result != 0 || level != IPPROTO_TCP || name != TCP_NODELAY) return result;
  with_lane(fd, [&](const Lane& lane) {
    const NodelayForRing::Program said = lane.nodelay.programs();
    if (said == NodelayForRing::Program::kUnknown) return;
    const int on = said == NodelayForRing::Program::kOn ? 1 : 0;
    std::memcpy(value, &on, std::min<std::size_t>(*length, sizeof on));
  });
  return result;
}

WEFT_SEEN int shutdown(int fd, int how) {
  leave_to_kernel(fd, Why::kShutdown);
  return real().shutdown(fd, how);
}

// One that has a connection leaves it by AF_UNSPEC, and the next one is with another peer. The
// address is not looked at: it may be no memory.
WEFT_SEEN int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t length) {
  if (with_lane(fd, [](Lane&) {})) leave_to_kernel(fd, Why::kCall);
  return real().connect(fd, address, length);
}

WEFT_SEEN int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == FIOASYNC)
    leave_to_kernel(fd, Why::kOption);  // the kernel sends a signal for each arrival
  const int result = real().ioctl(fd, request, argument);
  if (result != 0 || (request != FIONREAD && request != FIONBIO)) return result;
  with_lane(fd, [=](Lane& lane) {
    int value = 0;
    std::memcpy(&value, argument, sizeof value);
    if (request == FIONBIO) {
      lane.nonblocking = value != 0;
    } else if (lane.in.counted() && value == 0) {
      const std::uint64_t bytes = unread(lane);
      value = static_cast<int>(bytes > 0 ? bytes : await_taken_back(lane, fd));
      std::memcpy(argument, &value, sizeof value);
    }
  });
  return result;
}
