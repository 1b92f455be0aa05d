// exs_init, and the calls that make, connect and end sockets.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <new>
#include <utility>

#include "exs/api/exs_api.h"
#include "os/fd.h"
#include "os/lock.h"

using namespace weft::exs;

namespace {

constexpr int kBacklogMax = 4096;

// 0 or an errno.
int check_address(const Socket& socket, const sockaddr* addr, socklen_t length) {
  if (addr == nullptr) return EFAULT;
  const socklen_t least = socket.domain == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (length < least || length > sizeof(sockaddr_storage)) return EINVAL;
  return addr->sa_family == socket.domain ? 0 : EAFNOSUPPORT;
}

// Binds; where the choice is free, to TCP if RDMA does not reach the address.
int bind_socket(Socket& socket, const Address& address) {
  if (const int error = choose_provider(socket); error != 0) return error;
  int error = socket.provider->bind(address);
  if (error != 0 && error != EADDRINUSE && socket.settings.provider == EXS_PROVIDER_AUTO &&
      socket.provider->is_rdma()) {
    socket.provider = std::make_unique<TcpSocket>(socket);
    error = socket.provider->bind(address);
  }
  if (error == 0) error = socket.provider->local(socket.bound);
  if (error == 0) {
    socket.advance(StateEvent::kBound);
  } else if (!socket.foreign) {
    socket.provider.reset();
  }
  return error;
}

int bind_any(Socket& socket) {
  Address any;
  any.storage.ss_family = static_cast<sa_family_t>(socket.domain);
  any.length = socket.domain == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return bind_socket(socket, any);
}

int start_connect(Socket& socket, const Address& address) try {
  if (const int error = choose_provider(socket); error != 0) return error;
  int error = socket.provider->connect(address);
  if (error != 0 && socket.settings.provider == EXS_PROVIDER_AUTO && socket.provider->is_rdma()) {
    auto tcp = std::make_unique<TcpSocket>(socket);
    error = socket.bound.set() ? tcp->bind(socket.bound) : 0;
    if (error == 0) error = tcp->connect(address);
    socket.provider = std::move(tcp);
  }
  return error;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

// A call of exs_poll. A thread may be cancelled in it, and nobody looks for it then.
class Polling {
 public:
  explicit Polling(std::shared_ptr<PollWait> wait) : wait_(std::move(wait)) {}
  ~Polling() {
    if (goes_on_) return;
    {
      const weft::os::MutexLock lock(wait_->mutex);
      exs_event_t unread;
      if (std::exchange(wait_->done, true)) {
        wait_->queue->pop(&unread, 1);
        return;
      }
      wait_->queue->detach();
    }
    for (const auto& socket : wait_->sockets) {
      const weft::os::MutexLock lock(socket->mutex);
      std::erase(socket->watchers, wait_);
    }
  }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;
  // The event comes later.
  void go_on() { goes_on_ = true; }

 private:
  std::shared_ptr<PollWait> wait_;
  bool goes_on_ = false;
};

int result_of(const exs_event_t& event) {
  if (event.error != 0) return fail(event.error);
  return event.type == EXS_EVT_ACCEPT ? event.u.accept.fd : 0;
}

}  // namespace

extern "C" {

int exs_init(int version) try {
  if (version != EXS_VERSION1) return fail(EINVAL);
  if (const int error = Engine::instance().start(); error != 0) return fail(error);
  return 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_socket(int domain, int type, int protocol) try {
  if (!initialized()) return fail(EINVAL);
  if (domain != AF_INET && domain != AF_INET6) return fail(EAFNOSUPPORT);
  const int flags = type & (SOCK_NONBLOCK | SOCK_CLOEXEC);
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (kind != SOCK_STREAM && kind != SOCK_SEQPACKET) return fail(ESOCKTNOSUPPORT);
  if (protocol != 0 && protocol != IPPROTO_TCP) return fail(EPROTONOSUPPORT);
  // Holds the number; over TCP it is the connection as well.
  weft::os::Fd fd(::socket(domain, SOCK_STREAM | (flags & SOCK_CLOEXEC), 0));
  if (!fd) return -1;
  auto socket = std::make_shared<Socket>(fd.get(), domain,
                                         kind == SOCK_STREAM ? Kind::kStream : Kind::kPacket);
  socket->nonblocking = (flags & SOCK_NONBLOCK) != 0;
  Engine::instance().add(socket);
  return fd.release();
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_bind(int fd, const sockaddr* addr, socklen_t addrlen) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  const weft::os::MutexLock lock(socket->mutex);
  if (socket->state != State::kNew) return fail(EINVAL);
  if (const int error = check_address(*socket, addr, addrlen); error != 0) return fail(error);
  const int error = bind_socket(*socket, Address(addr, addrlen));
  return error == 0 ? 0 : fail(error);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_listen(int fd, int backlog) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  const weft::os::MutexLock lock(socket->mutex);
  if (socket->state != State::kNew && socket->state != State::kBound) return fail(EINVAL);
  int error = socket->state == State::kNew ? bind_any(*socket) : 0;
  if (error != 0) return fail(error);
  socket->backlog.limit(backlog <= 0 ? 1 : std::min(backlog, kBacklogMax));
  socket->advance(StateEvent::kListens);
  error = socket->provider->listen(socket->backlog.most());
  if (error == 0) return 0;
  socket->advance(StateEvent::kListenRefused);
  return fail(error);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_accept(int fd, exs_acceptaddr_t* vec, int count, int flags, exs_qhandle_t q,
               exs_ahandle_t ah) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  if (flags != 0 || count < 0 || count > 2) return fail(EINVAL);
  if (count > 0 && vec == nullptr) return fail(EFAULT);
  Outlet outlet(q);
  if (outlet.queue == nullptr) return fail(EINVAL);
  bool now = false;
  {
    const weft::os::MutexLock lock(socket->mutex);
    if (socket->state != State::kListening || socket->end.closing()) return fail(EINVAL);
    const bool arrived = !socket->backlog.empty() || socket->provider->readable();
    if (outlet.blocking && socket->nonblocking && !arrived) return fail(EAGAIN);
    if (socket->ops.accepts.size() >= Operations::kPendingMax) return fail(EAGAIN);
    Operation& op = socket->add(socket->ops.accepts);
    op.type = EXS_EVT_ACCEPT;
    op.ahandle = ah;
    op.queue = outlet.give();
    op.addresses = std::span(vec, static_cast<std::size_t>(count));
    socket->guarded([&] {
      socket->match_accepts();
      socket->provider->accepts_posted();
    });
    now = outlet.blocking && socket->nonblocking;
    if (now) end_now(*socket, outlet);
  }
  posted();
  if (!outlet.blocking) return 0;
  exs_event_t event = wait_for_event(socket, outlet, {});
  if (now && event.error == ECANCELED) event.error = EAGAIN;
  return result_of(event);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_connect(int fd, const sockaddr* addr, socklen_t addrlen, int flags, exs_qhandle_t q,
                exs_ahandle_t ah) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  if (flags != 0) return fail(EINVAL);
  Outlet outlet(q);
  if (outlet.queue == nullptr) return fail(EINVAL);
  bool quiet = false;
  {
    const weft::os::MutexLock lock(socket->mutex);
    if (const int error = check_address(*socket, addr, addrlen); error != 0) return fail(error);
    if (socket->state == State::kConnected) return fail(EISCONN);
    if (socket->state == State::kConnecting) return fail(EALREADY);
    if (socket->state != State::kNew && socket->state != State::kBound) return fail(EINVAL);
    const bool was_new = socket->state == State::kNew;
    Operation& op = socket->add(socket->ops.connecting);
    op.type = EXS_EVT_CONNECT;
    op.ahandle = ah;
    // Without a queue, a socket that does not block connects behind the caller's back.
    quiet = outlet.blocking && socket->nonblocking;
    if (!quiet) {
      op.queue = outlet.give();
    }
    socket->advance(StateEvent::kConnects);
    if (const int error = start_connect(*socket, Address(addr, addrlen)); error != 0) {
      socket->unadd(socket->ops.connecting);
      socket->advance(was_new ? StateEvent::kNotBegunNew : StateEvent::kNotBegunBound);
      return fail(error);
    }
  }
  posted();
  if (quiet) return fail(EINPROGRESS);
  return outlet.blocking ? result_of(wait_for_end(outlet)) : 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_shutdown(int fd, int how, exs_qhandle_t q, exs_ahandle_t ah) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  if (how != EXS_SHUT_WR) return fail(EOPNOTSUPP);
  Outlet outlet(q);
  if (outlet.queue == nullptr) return fail(EINVAL);
  {
    const weft::os::MutexLock lock(socket->mutex);
    if (socket->state != State::kConnected) return fail(ENOTCONN);
    if (socket->end.shutting()) return fail(EALREADY);
    Operation& op = socket->add(socket->ops.shutdown);
    op.type = EXS_EVT_SHUTDOWN;
    op.ahandle = ah;
    op.queue = outlet.give();
    socket->end.shut();
    if (socket->peer_gone) {
      socket->shut_down(EPIPE);
    } else {
      socket->guarded([&] { socket->provider->shut_down(); });
    }
  }
  posted();
  return outlet.blocking ? result_of(wait_for_end(outlet)) : 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_close(int fd, exs_qhandle_t q, exs_ahandle_t ah) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  Outlet outlet(q);
  if (outlet.queue == nullptr) return fail(EINVAL);
  std::deque<Arrival> arrivals;
  {
    const weft::os::MutexLock lock(socket->mutex);
    if (socket->end.closing()) return fail(EBADF);
    Operation& op = socket->add(socket->ops.closing);
    op.type = EXS_EVT_CLOSE;
    op.ahandle = ah;
    op.queue = outlet.give();
    socket->end.close();
    arrivals = socket->backlog.take_all();
    if (socket->provider != nullptr) {
      socket->guarded([&] { socket->provider->close(); });
    } else {
      socket->closed(0);
    }
    socket->limit_close();
  }
  close_arrivals(std::move(arrivals));
  posted();
  return outlet.blocking ? result_of(wait_for_end(outlet)) : 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_cancel(int fd, int flags, exs_ahandle_t ah) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  if (flags != EXS_CAF_FILDES && flags != EXS_CAF_AHANDLE) return fail(EINVAL);
  {
    const weft::os::MutexLock lock(socket->mutex);
    const auto named = [&](const Operation& op) {
      // One that has had its event goes on.
      return op.queue != nullptr && (flags == EXS_CAF_FILDES || op.ahandle == ah);
    };
    for (auto it = socket->ops.accepts.begin(); it != socket->ops.accepts.end();) {
      const auto next = std::next(it);
      if (named(*it)) socket->finish(socket->ops.accepts, it, ECANCELED, 0);
      it = next;
    }
    for (auto* list : {&socket->ops.sends, &socket->ops.receives}) {
      for (Operation& op : *list) {
        if (named(op)) op.cancellation.want();
      }
    }
    if (socket->provider != nullptr) socket->guarded([&] { socket->provider->cancel(); });
  }
  posted();
  return 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_poll(exs_pollfd_t* vec, int count, int flags, exs_qhandle_t q, exs_ahandle_t ah) try {
  if (!initialized() || flags != 0 || count < 1 || count > 65536) return fail(EINVAL);
  if (vec == nullptr) return fail(EFAULT);
  Outlet outlet(q);
  if (outlet.queue == nullptr) return fail(EINVAL);
  auto wait = std::make_shared<PollWait>();
  for (int i = 0; i < count; ++i) {
    auto socket = socket_of(vec[i].fd);
    if (socket == nullptr) return -1;
    wait->sockets.push_back(std::move(socket));
  }
  wait->vec = vec;
  wait->count = count;
  wait->ahandle = ah;
  wait->seen.resize(wait->sockets.size());
  wait->queue = outlet.give();
  Polling polling(wait);
  for (const auto& socket : wait->sockets) {
    const weft::os::MutexLock lock(socket->mutex);
    socket->watchers.push_back(wait);
  }
  Engine::instance().kick(wait);
  Engine::instance().run_polls();
  if (!outlet.blocking) {
    polling.go_on();
    return 0;
  }
  exs_event_t event{};
  do {
    Engine::instance().wait(*outlet.queue, 1, Instant::max(), EXS_WAIT_ADAPTIVE);
  } while (outlet.queue->pop(&event, 1) == 0);
  return event.u.poll.ready;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

}  // extern "C"
