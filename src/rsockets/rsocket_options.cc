// Options of rsockets, rfcntl, and mapped memory.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "ibverbs/errors.h"
#include "os/lock.h"
#include "rdmacm/forward.h"
#include "rsockets/rs_thrown.h"
#include "rsockets/rsocket.h"

namespace weft::rsockets {
namespace {

using ibverbs::errno_of;
using ibverbs::fail_minus;

// Sizes of rings and queues. They are fixed once connecting begins; a listener's are inherited.
int set_rdma_option(Rsocket& socket, int name, int value) {
  if (socket.state != RsState::kOpen && socket.state != RsState::kListening) return EINVAL;
  if (value < 0) return EINVAL;
  const auto requests = [](int count) {
    return static_cast<std::uint16_t>(std::min(count, 65534));
  };
  RsOptions& o = socket.options;
  switch (name) {
    case RDMA_SQSIZE: o.send_requests = requests(value); break;
    case RDMA_RQSIZE: o.recv_requests = requests(value); break;
    case RDMA_INLINE: o.inline_bytes = static_cast<std::uint32_t>(value); break;
    case RDMA_IOMAPSIZE:
      o.iomap_count = round_iomap_count(static_cast<std::uint32_t>(value));
      break;
    case RDMA_ROUTE: return EOPNOTSUPP;  // of InfiniBand: iWARP's routes are the kernel's
    default: return ENOPROTOOPT;
  }
  o.clamp();
  return 0;
}

int get_rdma_option(const Rsocket& socket, int name, int& value) {
  switch (name) {
    case RDMA_SQSIZE: value = socket.options.send_requests; return 0;
    case RDMA_RQSIZE: value = socket.options.recv_requests; return 0;
    case RDMA_INLINE: value = static_cast<int>(socket.options.inline_bytes); return 0;
    case RDMA_IOMAPSIZE: value = socket.options.iomap_count; return 0;
    case RDMA_ROUTE: return EOPNOTSUPP;
    default: return ENOPROTOOPT;
  }
}

// SO_RCVBUF and SO_SNDBUF size the rings, too. Doubled, as the kernel does it.
void size_rings(Rsocket& socket, int name, int value) {
  if (socket.state != RsState::kOpen && socket.state != RsState::kListening) return;
  const auto bytes = static_cast<std::uint32_t>(std::clamp(value, 0, 1 << 27)) * 2;
  if (name == SO_RCVBUF) socket.options.recv_bytes = bytes;
  if (name == SO_SNDBUF) socket.options.send_bytes = bytes;
  socket.options.clamp();
}

// With these the engine, which reads and writes the socket below, would stop, or its stream be
// another one: it sleeps until octets come, and time stamps arrive as errors.
bool hinders_engine(int level, int name) {
  if (level == SOL_TLS) return true;
  if (level == SOL_SOCKET) {
    return name == SO_RCVLOWAT || name == SO_TIMESTAMPING_OLD || name == SO_TIMESTAMPING_NEW;
  }
  return level == SOL_TCP &&
         (name == TCP_ULP || name == TCP_REPAIR || name == TCP_ZEROCOPY_RECEIVE);
}

// The value of such an option that changes nothing.
bool is_default(int level, int name, int value) {
  if (level == SOL_SOCKET) return value == 0 || (name == SO_RCVLOWAT && value == 1);
  return level == SOL_TCP && name == TCP_REPAIR && value == 0;
}

// The place of an option that says when the kernel may wait with octets. Messages of the engine are
// not to wait: the peer's next ones may depend on them. Null: the kernel has it.
int* kept(Rsocket& socket, int level, int name) {
  if (socket.type != SOCK_STREAM || level != SOL_TCP) return nullptr;
  if (name == TCP_CORK) return &socket.corked;
  return name == TCP_NODELAY ? &socket.undelayed : nullptr;
}

// 0: connected, so that memory can be mapped and written. Else an errno: EAGAIN while a socket that
// does not wait connects.
int mapping_state(Rsocket& socket) WEFT_REQUIRES(socket.mutex) {
  advance_connect(socket);
  if (socket.state == RsState::kConnecting) {
    if (socket.nonblocking) return EAGAIN;
    if (const int error = await_connect(socket, std::nullopt); error != 0) return error;
  }
  return socket.state == RsState::kConnected ? 0 : ENOTCONN;
}

// SO_ERROR gives this, once: why connecting failed, or why the connection broke.
int take_error(Rsocket& socket) {
  advance_connect(socket);
  if (socket.state == RsState::kConnected) {
    progress(socket);
    if (input_over(socket)) return take_reset(socket);
  }
  return std::exchange(socket.so_error, 0);
}

int give(int number, void* value, socklen_t* length) {
  *length = std::min<socklen_t>(*length, sizeof number);
  std::memcpy(value, &number, *length);
  return 0;
}

}  // namespace

void take_over_options(Rsocket& socket) {
  socklen_t length = sizeof socket.corked;
  getsockopt(socket.fd, SOL_TCP, TCP_CORK, &socket.corked, &length);
  length = sizeof socket.undelayed;
  getsockopt(socket.fd, SOL_TCP, TCP_NODELAY, &socket.undelayed, &length);
  const int off = 0;
  const int one_octet = 1;
  setsockopt(socket.fd, SOL_TCP, TCP_CORK, &off, sizeof off);
  setsockopt(socket.fd, SOL_SOCKET, SO_RCVLOWAT, &one_octet, sizeof one_octet);
  setsockopt(socket.fd, SOL_SOCKET, SO_TIMESTAMPING_OLD, &off, sizeof off);
}

}  // namespace weft::rsockets

using namespace weft::rsockets;
using weft::ibverbs::errno_of;
using weft::ibverbs::fail_minus;

extern "C" {

int rsetsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  WEFT_CM_FORWARD(rsetsockopt, fd, level, name, value, length)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  int number = 0;
  if (value != nullptr && length >= sizeof number) std::memcpy(&number, value, sizeof number);
  if (level == SOL_RDMA) {
    if (value == nullptr) return fail_minus(EFAULT);
    if (length < sizeof number) return fail_minus(EINVAL);
    const RsLock lock(socket->mutex);
    const int error = set_rdma_option(*socket, name, number);
    return error == 0 ? 0 : fail_minus(error);
  }
  if (socket->type == SOCK_STREAM && hinders_engine(level, name)) {
    const bool given = value != nullptr && length >= sizeof number;
    return given && is_default(level, name, number) ? 0 : fail_minus(ENOPROTOOPT);
  }
  if (int* const keeper = kept(*socket, level, name); keeper != nullptr) {
    if (value == nullptr) return fail_minus(EFAULT);
    if (length < sizeof number) return fail_minus(EINVAL);
    const RsLock lock(socket->mutex);
    *keeper = number != 0;
    return 0;
  }
  if (setsockopt(fd, level, name, value, length) != 0) return -1;
  if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF)) {
    const RsLock lock(socket->mutex);
    size_rings(*socket, name, number);
  }
  return 0;
}

int rgetsockopt(int fd, int level, int name, void* value, socklen_t* length) try {
  WEFT_CM_FORWARD(rgetsockopt, fd, level, name, value, length)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (value == nullptr || length == nullptr) return fail_minus(EFAULT);
  const RsLock lock(socket->mutex);
  if (level == SOL_RDMA) {
    int number = 0;
    const int error = get_rdma_option(*socket, name, number);
    return error == 0 ? give(number, value, length) : fail_minus(error);
  }
  if (const int* const keeper = kept(*socket, level, name); keeper != nullptr) {
    return give(*keeper, value, length);
  }
  if (level == SOL_TCP && hinders_engine(level, name) && socket->type == SOCK_STREAM) {
    return fail_minus(ENOPROTOOPT);
  }
  if (level == SOL_SOCKET && socket->type == SOCK_STREAM) {
    if (name == SO_ERROR) return give(take_error(*socket), value, length);
    if (name == SO_RCVBUF) return give(static_cast<int>(socket->options.recv_bytes), value, length);
    if (name == SO_SNDBUF) return give(static_cast<int>(socket->options.send_bytes), value, length);
  }
  return getsockopt(fd, level, name, value, length);
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

int rfcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  WEFT_CM_FORWARD(rfcntl, fd, command, argument)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  // The engine keeps the TCP socket non-blocking, whatever the program wants of its rsocket.
  const RsLock lock(socket->mutex);
  if (command == F_GETFL) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0) return -1;
    return socket->nonblocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  }
  if (command == F_SETFL) {
    socket->nonblocking = (argument & O_NONBLOCK) != 0;
    if (socket->type == SOCK_DGRAM) return fcntl(fd, F_SETFL, argument);
    return 0;
  }
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return fail_minus(EOPNOTSUPP);
  return fcntl(fd, command, argument);
}

off_t riomap(int fd, void* buffer, size_t length, int protection, int flags, off_t offset) try {
  WEFT_CM_FORWARD(riomap, fd, buffer, length, protection, flags, offset)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (buffer == nullptr || length == 0 || length > UINT32_MAX) return fail_minus(EINVAL);
  if ((protection & ~PROT_WRITE) != 0) return fail_minus(EINVAL);
  RsLock lock(socket->mutex);
  if (const int error = mapping_state(*socket); error != 0) return fail_minus(error);
  const std::uint64_t at =
      offset == -1 ? reinterpret_cast<std::uintptr_t>(buffer) : static_cast<std::uint64_t>(offset);
  const weft::Status done =
      socket->link->stream().map(buffer, length, (protection & PROT_WRITE) != 0, at);
  if (!done) {
    return fail_minus(done.error() == weft::Error::kNoSpace ? ENOMEM : errno_of(done.error()));
  }
  return static_cast<off_t>(at);
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

int riounmap(int fd, void* buffer, size_t length) try {
  WEFT_CM_FORWARD(riounmap, fd, buffer, length)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  const RsLock lock(socket->mutex);
  if (socket->link == nullptr) return fail_minus(ENOTCONN);
  return socket->link->stream().unmap(buffer, length) ? 0 : fail_minus(EINVAL);
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

size_t riowrite(int fd, const void* buffer, size_t count, off_t offset, int flags) try {
  WEFT_CM_FORWARD(riowrite, fd, buffer, count, offset, flags)
  constexpr auto kFailed = static_cast<size_t>(-1);
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return kFailed;
  RsLock lock(socket->mutex);
  if (const int error = mapping_state(*socket); error != 0) {
    errno = error;
    return kFailed;
  }
  const auto link = socket->link;
  auto& stream = link->stream();
  const std::span<const std::uint8_t> data(static_cast<const std::uint8_t*>(buffer), count);
  const bool wait = !socket->nonblocking && (flags & MSG_DONTWAIT) == 0;
  std::size_t done = 0;
  for (;;) {
    progress(*socket);
    if (socket->link != link || stream.down() || stream.peer_left()) {
      errno = socket->link == link ? ECONNRESET : EBADF;
      return done > 0 ? done : kFailed;
    }
    const auto at = static_cast<std::uint64_t>(offset) + done;
    done += stream.write_mapped(data.subspan(done), at);
    if (done == count) return done;
    // Nothing mapped there (yet): the caller tries again when its peer has said so.
    if (!stream.mapped(static_cast<std::uint64_t>(offset) + done)) {
      errno = EAGAIN;  // riostream looks at it when it gets 0
      return done;
    }
    ++socket->refused;
    if (!wait) {
      if (done > 0) return done;
      errno = EAGAIN;
      return kFailed;
    }
    if (const int error = sleep_for_change(*socket, std::nullopt); error != 0) {
      errno = error;
      return done > 0 ? done : kFailed;
    }
  }
} catch (const std::exception& thrown) {
  return static_cast<size_t>(fail_thrown(thrown));
}

}  // extern "C"
