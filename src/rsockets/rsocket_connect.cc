// rconnect and raccept.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <list>

#include "ibverbs/errors.h"
#include "os/event_fd.h"
#include "os/lock.h"
#include "rdmacm/forward.h"
#include "rsockets/rs_thrown.h"
#include "rsockets/rsocket.h"

namespace weft::rsockets {
namespace {

using ibverbs::errno_of;
using ibverbs::fail_minus;

constexpr int kSliceMs = 100;

int errno_of_failure(std::optional<Error> error) {
  if (!error) return ECONNREFUSED;
  switch (*error) {
    case Error::kRefused:
    case Error::kConnectionLost: return ECONNREFUSED;
    case Error::kTimedOut: return ETIMEDOUT;
    case Error::kUnreachable: return EHOSTUNREACH;
    case Error::kAddressInUse: return EADDRNOTAVAIL;
    case Error::kNoMemory: return ENOMEM;
    default: return ECONNREFUSED;
  }
}

// Sleeps until something is reported, without the mutex. True: a signal has come.
bool interrupted_asleep(Rsocket& socket, std::chrono::milliseconds limit)
    WEFT_REQUIRES(socket.mutex) {
  pollfd one{socket.wake.get(), POLLIN, 0};
  const RsAsleep asleep(socket.mutex);
  return poll(&one, 1, static_cast<int>(limit.count())) < 0 && errno == EINTR;
}

// For poll(2): without a limit -1, at the limit 0.
int milliseconds_to(Deadline deadline) {
  if (!deadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
}

// Null with errno.
RsocketPtr enter_or_fail(int fd, int domain) {
  try {
    return enter_rsocket(fd, domain, SOCK_STREAM);
  } catch (const std::exception& thrown) {
    errno = errno_thrown(thrown);
    return nullptr;
  }
}

// One that could not be accepted is the next again. Leaves errno alone.
void give_back(Rsocket& listener, std::list<Rsocket::Ready>& one) {
  const RsLock lock(listener.mutex);
  if (listener.state != RsState::kListening) return;
  listener.ready.splice(listener.ready.begin(), one);
  os::raise_event(listener.wake.get());
}

// One has been accepted.
void tell_of_room(Rsocket& listener) {
  {
    const RsLock lock(listener.mutex);
    if (!std::exchange(listener.full, false)) return;
  }
  go_on_accepting();
}

// 0, or an errno with nothing changed.
int begin_connect(Rsocket& socket, const SocketAddress& peer) {
  const auto device = rsocket_device();
  if (device == nullptr) return errno;
  auto link = RsConnection::create(device, socket.options);
  if (!link) return errno_of(link.error());
  const int engines = fcntl(socket.fd, F_DUPFD_CLOEXEC, 0);
  if (engines < 0) return errno;
  (*link)->on_report([wake = socket.wake.get()] { os::raise_event(wake); });
  socket.link = std::move(*link);
  socket.advance(RsEvent::kConnects);
  if (auto begun = socket.link->connect(engines, peer); !begun) {
    socket.link.reset();
    socket.advance(RsEvent::kNotBegun);
    return errno_of(begun.error());
  }
  return 0;
}

}  // namespace

void advance_connect(Rsocket& socket) {
  // Without a link the service thread answers a connect, and says when it is done.
  if (socket.state != RsState::kConnecting || socket.link == nullptr) return;
  const RsPhase phase = socket.link->phase();
  if (phase == RsPhase::kIdle || phase == RsPhase::kConnecting) return;
  (void)os::lower_event(socket.wake.get());
  if (phase == RsPhase::kFailed) {
    socket.so_error = errno_of_failure(socket.link->error());
  } else if (!socket.link->begin()) {
    // The peer listens, and is no rsocket (H4).
    socket.so_error = ECONNREFUSED;
    socket.link->abort();
  } else {
    socket.advance(RsEvent::kConnected);
    return;
  }
  socket.advance(RsEvent::kFailed);
}

int await_connect(Rsocket& socket, Deadline deadline) {
  while (socket.state == RsState::kConnecting) {
    // Another thread may have taken the signal: in slices.
    auto limit = std::chrono::milliseconds(kSliceMs);
    if (deadline) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
      if (left.count() <= 0) return EAGAIN;
      limit = std::min(limit, left);
    }
    if (interrupted_asleep(socket, limit)) return EINTR;
    advance_connect(socket);
  }
  return 0;
}

}  // namespace weft::rsockets

using namespace weft::rsockets;
using weft::ibverbs::fail_minus;

extern "C" {

int rconnect(int fd, const sockaddr* address, socklen_t length) try {
  WEFT_CM_FORWARD(rconnect, fd, address, length)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (socket->type == SOCK_DGRAM) return connect(fd, address, length);
  if (address == nullptr) return fail_minus(EFAULT);
  const socklen_t needed = socket->domain == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (length < sizeof(sa_family_t)) return fail_minus(EINVAL);
  if (address->sa_family != socket->domain) return fail_minus(EAFNOSUPPORT);
  if (length < needed) return fail_minus(EINVAL);

  const RsLock lock(socket->mutex);
  advance_connect(*socket);
  int at_limit = EALREADY;
  switch (socket->state) {
    case RsState::kConnected: return fail_minus(EISCONN);
    case RsState::kListening: return fail_minus(EISCONN);
    case RsState::kConnecting:
      if (socket->nonblocking) return fail_minus(EALREADY);
      break;
    case RsState::kFailed:
      // The outcome of an earlier, non-blocking call, once.
      if (socket->so_error != 0) return fail_minus(std::exchange(socket->so_error, 0));
      return fail_minus(ECONNABORTED);
    case RsState::kOpen:
      if (const int error = begin_connect(*socket, weft::SocketAddress(address, needed));
          error != 0) {
        return fail_minus(error);
      }
      at_limit = EINPROGRESS;
      if (socket->nonblocking) return fail_minus(at_limit);
  }
  if (const int error = await_connect(*socket, limit_from_now(*socket, SO_SNDTIMEO)); error != 0) {
    return fail_minus(error == EAGAIN ? at_limit : error);
  }
  if (socket->state == RsState::kConnected) return 0;
  if (socket->so_error != 0) return fail_minus(std::exchange(socket->so_error, 0));
  // Another thread has closed it, or been told why connecting failed.
  return fail_minus(socket->link == nullptr ? EBADF : ECONNABORTED);
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

int raccept(int fd, sockaddr* address, socklen_t* length) try {
  WEFT_CM_FORWARD(raccept, fd, address, length)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (socket->type != SOCK_STREAM) return fail_minus(EOPNOTSUPP);
  RsLock lock(socket->mutex);
  const auto deadline = limit_from_now(*socket, SO_RCVTIMEO);
  while (socket->ready.empty()) {
    if (socket->state != RsState::kListening) return fail_minus(EINVAL);
    const int limit = milliseconds_to(deadline);
    if (socket->nonblocking || limit == 0) return fail_minus(EAGAIN);
    (void)weft::os::lower_event(socket->wake.get());
    pollfd one{socket->wake.get(), POLLIN, 0};
    lock.unlock();
    const int polled = poll(&one, 1, limit);
    const int error = errno;
    lock.lock();
    if (polled < 0 && error == EINTR) return fail_minus(EINTR);
  }
  std::list<Rsocket::Ready> first;
  first.splice(first.begin(), socket->ready, socket->ready.begin());
  if (socket->ready.empty()) (void)weft::os::lower_event(socket->wake.get());
  lock.unlock();

  const RsocketPtr child = enter_or_fail(first.front().fd.get(), socket->domain);
  if (child == nullptr) {
    give_back(*socket, first);
    return -1;
  }
  tell_of_room(*socket);
  weft::os::Fd number(first.front().fd.release());
  fcntl(number.get(), F_SETFD, 0);  // as accept(2): not close-on-exec
  child->link = std::move(first.front().link);
  child->link->on_report([wake = child->wake.get()] { weft::os::raise_event(wake); });
  child->options = child->link->stream().options();
  static_cast<void>(child->on(RsEvent::kAccepted));  // unless its number has been closed already
  if (address != nullptr && getpeername(number.get(), address, length) != 0 && length != nullptr) {
    *length = 0;
  }
  return number.release();
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

}  // extern "C"
