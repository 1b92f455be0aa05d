// The data calls of rsockets.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>

#include "ibverbs/errors.h"
#include "os/event_fd.h"
#include "os/lock.h"
#include "rdmacm/forward.h"
#include "rsockets/rs_thrown.h"
#include "rsockets/rsocket.h"

namespace weft::rsockets {
namespace {

using ibverbs::fail_minus;

// SO_RCVTIMEO or SO_SNDTIMEO of a call. Asked for before its first sleep: most calls do not.
class TimeLimit {
 public:
  TimeLimit(const Rsocket& socket, int name) : socket_(socket), name_(name) {}
  [[nodiscard]] Deadline deadline() {
    if (!std::exchange(known_, true)) deadline_ = limit_from_now(socket_, name_);
    return deadline_;
  }

 private:
  const Rsocket& socket_;
  const int name_;
  bool known_ = false;
  Deadline deadline_;
};

// The octets of an iovec, piece by piece.
class Pieces {
 public:
  Pieces(const iovec* parts, std::size_t count) : parts_(parts), count_(count) { skip_empty(); }
  [[nodiscard]] bool empty() const { return at_ == count_; }
  [[nodiscard]] std::span<std::uint8_t> current() const {
    return {static_cast<std::uint8_t*>(parts_[at_].iov_base) + done_, parts_[at_].iov_len - done_};
  }
  void advance(std::size_t n) {
    done_ += n;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (at_ < count_ && done_ >= parts_[at_].iov_len) {
      ++at_;
      done_ = 0;
    }
  }
  const iovec* parts_;
  std::size_t count_;
  std::size_t at_ = 0;
  std::size_t done_ = 0;
};

// 0: connected. Else an errno. `wait`: for a connect that is under way.
int check_connected(Rsocket& socket, bool wait, TimeLimit& limit) WEFT_REQUIRES(socket.mutex) {
  advance_connect(socket);
  if (wait && socket.state == RsState::kConnecting) {
    if (const int error = await_connect(socket, limit.deadline()); error != 0) return error;
  }
  switch (socket.state) {
    case RsState::kConnected: return 0;
    case RsState::kConnecting: return EAGAIN;
    default: return socket.so_error != 0 ? std::exchange(socket.so_error, 0) : ENOTCONN;
  }
}

std::size_t copy_out(Rsocket& socket, Pieces& pieces, bool peek) {
  std::size_t done = 0;
  while (!pieces.empty()) {
    const auto room = pieces.current();
    const std::size_t n = socket.link->stream().receive(room, peek);
    pieces.advance(n);
    done += n;
    if (n < room.size() || peek) break;  // a peek always begins at the front
  }
  return done;
}

ssize_t receive(Rsocket& socket, const iovec* parts, std::size_t count, int flags) {
  if ((flags & MSG_OOB) != 0) return fail_minus(EINVAL);
  RsLock lock(socket.mutex);
  const bool wait = !socket.nonblocking && (flags & MSG_DONTWAIT) == 0;
  TimeLimit limit(socket, SO_RCVTIMEO);
  if (const int error = check_connected(socket, wait, limit); error != 0) {
    return fail_minus(error);
  }
  Pieces pieces(parts, count);
  std::size_t done = 0;
  const auto result = [&](int error) -> ssize_t {
    if (done > 0 || error == 0) return static_cast<ssize_t>(done);
    return fail_minus(error);
  };
  if (pieces.empty()) return 0;
  for (;;) {
    progress(socket);
    if (socket.link == nullptr) return result(EBADF);
    done += copy_out(socket, pieces, (flags & MSG_PEEK) != 0);
    if (pieces.empty() || (done > 0 && ((flags & MSG_WAITALL) == 0 || (flags & MSG_PEEK) != 0))) {
      return result(0);
    }
    if (socket.read_shut || socket.link->stream().peer_finished()) return result(0);
    if (input_over(socket)) return result(done > 0 ? 0 : take_reset(socket));
    if (!wait) return result(EAGAIN);
    if (const int error = sleep_for_change(socket, limit.deadline()); error != 0) {
      return result(error);
    }
  }
}

// A send that has to wait for room goes on before others begin: what one call sends stays in one
// piece, as with rdma-core. REQUIRES: the mutex is held at each call, and at the end.
class SendTurn {
 public:
  explicit SendTurn(Rsocket& socket) : socket_(socket) {}
  ~SendTurn() { end(); }
  SendTurn(const SendTurn&) = delete;
  SendTurn& operator=(const SendTurn&) = delete;

  [[nodiscard]] bool others() const { return socket_.sending && !mine_; }
  void keep() { socket_.sending = mine_ = true; }
  void end() {
    if (!std::exchange(mine_, false)) return;
    socket_.sending = false;
    tell_others(socket_);
  }

 private:
  Rsocket& socket_;
  bool mine_ = false;
};

ssize_t broken_pipe(int flags) {
  if ((flags & MSG_NOSIGNAL) == 0) ::raise(SIGPIPE);
  return fail_minus(EPIPE);
}

ssize_t transmit(Rsocket& socket, const iovec* parts, std::size_t count, int flags) {
  if ((flags & MSG_OOB) != 0) return fail_minus(EOPNOTSUPP);
  RsLock lock(socket.mutex);
  const bool wait = !socket.nonblocking && (flags & MSG_DONTWAIT) == 0;
  TimeLimit limit(socket, SO_SNDTIMEO);
  if (const int error = check_connected(socket, wait, limit); error != 0) {
    if (error != ENOTCONN || socket.state != RsState::kOpen) return fail_minus(error);
    lock.unlock();
    return broken_pipe(flags);  // as Linux: sending on a socket that was never connected
  }
  Pieces pieces(parts, count);
  std::size_t done = 0;
  SendTurn turn(socket);
  for (;;) {
    progress(socket);
    if (socket.link == nullptr) return fail_minus(EBADF);
    RsStream& stream = socket.link->stream();
    if (socket.write_shut || stream.peer_left() || stream.down()) {
      if (done > 0) return static_cast<ssize_t>(done);
      if (!socket.write_shut && input_over(socket)) {
        if (const int error = take_reset(socket); error != 0) return fail_minus(error);
      }
      turn.end();
      lock.unlock();
      return broken_pipe(flags);
    }
    while (!pieces.empty() && !turn.others()) {
      const auto piece = pieces.current();
      const std::size_t n = stream.send(piece);
      pieces.advance(n);
      done += n;
      if (n < piece.size()) break;
    }
    if (pieces.empty()) return static_cast<ssize_t>(done);
    ++socket.refused;
    if (!wait) return done > 0 ? static_cast<ssize_t>(done) : fail_minus(EAGAIN);
    if (done > 0) turn.keep();
    if (const int error = sleep_for_change(socket, limit.deadline()); error != 0) {
      return done > 0 ? static_cast<ssize_t>(done) : fail_minus(error);
    }
  }
}

bool valid(const iovec* parts, std::size_t count) {
  if (count > IOV_MAX || (parts == nullptr && count > 0)) return false;
  std::size_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len > static_cast<std::size_t>(SSIZE_MAX) - total) return false;
    total += parts[i].iov_len;
  }
  return true;
}

}  // namespace

Deadline limit_from_now(const Rsocket& socket, int name) {
  timeval limit{};
  socklen_t length = sizeof limit;
  if (getsockopt(socket.fd, SOL_SOCKET, name, &limit, &length) != 0) return std::nullopt;
  if (limit.tv_sec == 0 && limit.tv_usec == 0) return std::nullopt;
  return Clock::now() + std::chrono::seconds(limit.tv_sec) +
         std::chrono::microseconds(limit.tv_usec);
}

void progress(Rsocket& socket) {
  if (socket.link == nullptr || socket.state != RsState::kConnected) return;
  if (socket.link->stream().process()) tell_others(socket);
}

// A driver needs no word: each completion raises an event of the channel, and nobody else takes
// events while it sleeps there.
void tell_others(Rsocket& socket) {
  for (const int bell : socket.bells) {
    if (bell != own_bell()) os::raise_event(bell);
  }
  if (!socket.driving) socket.progressed.notify_all();
}

bool input_over(const Rsocket& socket) {
  assert(socket.link != nullptr);
  if (!socket.link->stream().down()) return false;
  // Requests come back flushed shortly before the engine says why. Callers wait for the reason.
  const RsPhase phase = socket.link->phase();
  return phase == RsPhase::kDown || phase == RsPhase::kFailed;
}

int take_reset(Rsocket& socket) {
  if (socket.reset_told) return 0;
  const bool bad = socket.link->stream().violated() || socket.link->error().has_value();
  // After the peer's own goodbye any end is a good one.
  if (!bad || socket.link->stream().peer_left()) return 0;
  socket.reset_told = true;
  return ECONNRESET;
}

namespace {

// The thread that waits for completions, without the lock. When it has woken, or was cancelled, it
// says so to the others.
class WEFT_SCOPED_CAPABILITY Driving {
 public:
  explicit Driving(Rsocket& socket) WEFT_RELEASE(socket.mutex)
      : socket_(socket), link_(socket.link) {
    assert(!socket.driving && link_ != nullptr);
    socket_.driving = true;
    socket_.mutex.unlock_for_sleep();
  }
  ~Driving() WEFT_RELEASE() {
    socket_.mutex.lock_after_sleep();
    socket_.driving = false;
    // Closed meanwhile: the stream is the closing thread's.
    if (socket_.link == link_) progress(socket_);
    tell_others(socket_);
  }
  Driving(const Driving&) = delete;
  Driving& operator=(const Driving&) = delete;

 private:
  Rsocket& socket_;
  const std::shared_ptr<RsConnection> link_;
};

}  // namespace

int sleep_for_change(Rsocket& socket, Deadline deadline) {
  if (deadline && Clock::now() >= *deadline) return EAGAIN;
  if (socket.driving) {
    if (deadline) {
      socket.progressed.wait_until(socket.mutex, *deadline);
    } else {
      socket.progressed.wait(socket.mutex);
    }
    return 0;
  }
  const auto link = socket.link;
  if (link->stream().down()) {
    const RsAsleep asleep(socket.mutex);
    // The engine is about to say why.
    static_cast<void>(
        link->wait_while(RsPhase::kUp, deadline.value_or(Clock::now() + std::chrono::seconds(1))));
    return 0;
  }
  // Whatever completes behind this may be what the caller waits for.
  link->stream().arm();
  if (link->stream().process()) {
    tell_others(socket);
    return 0;
  }
  if (link->stream().down()) return 0;
  const Driving driving(socket);
  // Without a deadline in slices: another thread may have closed the rsocket meanwhile.
  const auto slice = deadline ? std::min<std::chrono::nanoseconds>(*deadline - Clock::now(),
                                                                   std::chrono::seconds(1))
                              : std::chrono::seconds(1);
  auto event = link->stream().channel().wait(std::max(slice, std::chrono::nanoseconds(0)));
  if (event) (*event)->ack_events(1);
  return !event && event.error() == Error::kAborted ? EINTR : 0;
}

}  // namespace weft::rsockets

using namespace weft::rsockets;
using weft::ibverbs::fail_minus;

extern "C" {

ssize_t rrecvmsg(int fd, msghdr* message, int flags) try {
  WEFT_CM_FORWARD(rrecvmsg, fd, message, flags)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (socket->type == SOCK_DGRAM) return recvmsg(fd, message, flags);
  if (!valid(message->msg_iov, message->msg_iovlen)) return fail_minus(EINVAL);
  const ssize_t n = receive(*socket, message->msg_iov, message->msg_iovlen, flags);
  if (n >= 0) {
    message->msg_namelen = 0;
    message->msg_controllen = 0;
    message->msg_flags = 0;
  }
  return n;
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

ssize_t rrecvfrom(int fd, void* buffer, size_t length, int flags, sockaddr* from,
                  socklen_t* from_length) try {
  WEFT_CM_FORWARD(rrecvfrom, fd, buffer, length, flags, from, from_length)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (socket->type == SOCK_DGRAM) return recvfrom(fd, buffer, length, flags, from, from_length);
  const iovec part{buffer, length};
  const ssize_t n = receive(*socket, &part, 1, flags);
  if (n >= 0 && from_length != nullptr) *from_length = 0;  // as Linux: a stream has no sender
  return n;
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

ssize_t rrecv(int fd, void* buffer, size_t length, int flags) {
  WEFT_CM_FORWARD(rrecv, fd, buffer, length, flags)
  return rrecvfrom(fd, buffer, length, flags, nullptr, nullptr);
}

ssize_t rread(int fd, void* buffer, size_t length) {
  WEFT_CM_FORWARD(rread, fd, buffer, length)
  return rrecvfrom(fd, buffer, length, 0, nullptr, nullptr);
}

ssize_t rreadv(int fd, const iovec* parts, int count) try {
  WEFT_CM_FORWARD(rreadv, fd, parts, count)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (count < 0 || !valid(parts, static_cast<std::size_t>(count))) return fail_minus(EINVAL);
  if (socket->type == SOCK_DGRAM) return readv(fd, parts, count);
  return receive(*socket, parts, static_cast<std::size_t>(count), 0);
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

ssize_t rsendmsg(int fd, const msghdr* message, int flags) try {
  WEFT_CM_FORWARD(rsendmsg, fd, message, flags)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (socket->type == SOCK_DGRAM) return sendmsg(fd, message, flags);
  if (message->msg_control != nullptr && message->msg_controllen != 0) {
    return fail_minus(EOPNOTSUPP);
  }
  if (!valid(message->msg_iov, message->msg_iovlen)) return fail_minus(EINVAL);
  return transmit(*socket, message->msg_iov, message->msg_iovlen, flags);
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

ssize_t rsendto(int fd, const void* buffer, size_t length, int flags, const sockaddr* to,
                socklen_t to_length) try {
  WEFT_CM_FORWARD(rsendto, fd, buffer, length, flags, to, to_length)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (socket->type == SOCK_DGRAM) return sendto(fd, buffer, length, flags, to, to_length);
  const iovec part{const_cast<void*>(buffer), length};  // as Linux, an address is ignored
  return transmit(*socket, &part, 1, flags);
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

ssize_t rsend(int fd, const void* buffer, size_t length, int flags) {
  WEFT_CM_FORWARD(rsend, fd, buffer, length, flags)
  return rsendto(fd, buffer, length, flags, nullptr, 0);
}

ssize_t rwrite(int fd, const void* buffer, size_t length) {
  WEFT_CM_FORWARD(rwrite, fd, buffer, length)
  return rsendto(fd, buffer, length, 0, nullptr, 0);
}

ssize_t rwritev(int fd, const iovec* parts, int count) try {
  WEFT_CM_FORWARD(rwritev, fd, parts, count)
  const RsocketPtr socket = find_rsocket(fd);
  if (socket == nullptr) return -1;
  if (count < 0 || !valid(parts, static_cast<std::size_t>(count))) return fail_minus(EINVAL);
  if (socket->type == SOCK_DGRAM) return writev(fd, parts, count);
  return transmit(*socket, parts, static_cast<std::size_t>(count), 0);
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

}  // extern "C"
