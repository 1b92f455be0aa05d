// What libweft-sockets.so asks for in IWARP mode (<weft/sockets.h>): an ordinary TCP socket of the
// program becomes an rsocket under its own number. Not part of rdma-core's interface.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "ibverbs/errors.h"
#include "rdmacm/forward.h"
#include "rdmacm/rsocket.h"

namespace weft::rdmacm {
namespace {

using ibverbs::errno_of;
using ibverbs::fail_minus;
using sockets::RsIncoming;

constexpr std::uint32_t kIomaps = 128;  // ranges that the peer may offer
constexpr int kTickMs = 200;            // how often a limit of the engine is looked for

// Null with errno.
RsocketPtr enter(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0) return nullptr;
  const RsocketPtr made = enter_rsocket(fd, domain, SOCK_STREAM);
  if (made == nullptr) return nullptr;
  made->nonblocking = (flags & O_NONBLOCK) != 0;
  made->options.iomap_count = sockets::round_iomap_count(kIomaps);
  return made;
}

// 0, or an errno. The engine's own limits bound the wait.
int answer(Rsocket& socket) {
  auto device = rsocket_device();
  if (device == nullptr) return errno;
  const int engines = fcntl(socket.fd, F_DUPFD_CLOEXEC, 0);
  if (engines < 0) return errno;
  const auto wake = [fd = socket.wake] {
    const std::uint64_t one = 1;
    static_cast<void>(!write(fd, &one, sizeof one));
  };
  auto begun = RsIncoming::start(std::move(device), engines, socket.options, wake);
  if (!begun) return errno_of(begun.error());
  RsIncoming::Step step = (*begun)->advance();
  while (step == RsIncoming::Step::kWaiting) {
    pollfd one{socket.wake, POLLIN, 0};
    poll(&one, 1, kTickMs);
    std::uint64_t ignored = 0;
    if ((one.revents & POLLIN) != 0)
      static_cast<void>(!read(socket.wake, &ignored, sizeof ignored));
    step = (*begun)->advance();
  }
  if (step != RsIncoming::Step::kReady) return ECONNABORTED;
  const std::lock_guard lock(socket.mutex);
  socket.link = (*begun)->connection();
  socket.link->on_report(wake);
  socket.state = RsState::kConnected;
  return 0;
}

}  // namespace
}  // namespace weft::rdmacm

using namespace weft::rdmacm;
using weft::ibverbs::fail_minus;

extern "C" {

// A socket that is not connected: from now on the r* calls serve it.
//   EOPNOTSUPP: another librdmacm serves this process
int weft_rsocket_adopt(int fd) {
  if (real_cm() != nullptr) return fail_minus(EOPNOTSUPP);
  return enter(fd) == nullptr ? -1 : 0;
}

// An accepted connection whose client has sent an MPA Request: answers it. -1 with errno: the
// connection has ended.
int weft_rsocket_answer(int fd) {
  if (real_cm() != nullptr) return fail_minus(EOPNOTSUPP);
  const RsocketPtr made = enter(fd);
  if (made == nullptr) return -1;
  const int error = answer(*made);
  if (error == 0) return 0;
  leave_rsocket(fd);
  return fail_minus(error);
}

}  // extern "C"
