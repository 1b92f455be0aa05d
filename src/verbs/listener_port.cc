// How a listener comes to its port, and how it leaves it to the program.
#include <sys/socket.h>

#include <utility>

#include "io/socket.h"
#include "os/guarded.h"
#include "verbs/listener.h"

namespace weft::verbs {

namespace {

// How often a number is sought that is free for TCP and UDP.
constexpr int kPortAttempts = 16;

}  // namespace

Status ListenerImpl::bind(const SocketAddress& local, bool reuse_address, bool v6_only) {
  return os::guarded([&] { return take_port(local, reuse_address, v6_only); });
}

Status ListenerImpl::bind_service(const SocketAddress& local, bool v6_only) {
  return os::guarded([&] { return take_service(local, v6_only); });
}

Status ListenerImpl::take_port(const SocketAddress& local, bool reuse_address, bool v6_only) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (local.family() != AF_INET && local.family() != AF_INET6) {
    return fail(Error::kInvalidArgument);
  }
  const os::MutexLock lock(mutex_);
  if (socket_) return fail(Error::kBadState);
  auto socket = open_listening(local, reuse_address, v6_only);
  if (!socket) return fail(socket.error());
  const SocketAddress known = io::local_address(socket->get());
  if (known.family() == AF_UNSPEC) return fail(Error::kNoMemory);
  local_ = bound_ = known;
  socket_ = std::move(*socket);
  tuned_ = true;
  return {};
}

Result<os::Fd> ListenerImpl::open_listening(const SocketAddress& local, bool reuse_address,
                                            bool v6_only) const {
  auto socket = io::open_socket(local.family());
  if (!socket) return fail(socket.error());
  // A port that is named is not held by the connections of an earlier server that linger in
  // TIME_WAIT; another listener holds it all the same, since this one listens at once. Linux siw
  // does so too.
  const bool reuse = reuse_address || local.port() != 0;
  if (auto bound = io::bind_socket(socket->get(), local, reuse, v6_only); !bound) {
    return fail(bound.error());
  }
  // From here on the kernel holds connections for listen() to take. Programs tell their clients the
  // port once it is bound (qperf does), and a quick client would be refused before they listen.
  // Accepted sockets inherit the buffer sizes, and the window scale is settled by then.
  io::tune_before_connect(socket->get(), device_->config());
  io::tune_listening(socket->get(), device_->config());
  if (auto holds = io::listen_socket(socket->get()); !holds) {
    return fail(holds.error());
  }
  return socket;
}

Status ListenerImpl::take_service(const SocketAddress& local, bool v6_only) {
  if (!device_->usable()) return fail(Error::kBadState);
  if (local.family() != AF_INET && local.family() != AF_INET6) {
    return fail(Error::kInvalidArgument);
  }
  const os::MutexLock lock(mutex_);
  if (socket_) return fail(Error::kBadState);
  auto socket = choose_service(local, v6_only);
  if (!socket) {
    service_.reset();
    return fail(socket.error());
  }
  const SocketAddress known = io::local_address(socket->get());
  Status served;
  if (known.family() == AF_UNSPEC) served = fail(Error::kNoMemory);
  if (served && service_) served = service_->serve(device_->engine(), known.port());
  if (!served) {
    service_.reset();
    return served;
  }
  v6_only_ = v6_only;
  carries_ = device_->peer_directory() != nullptr;
  socket_ = std::move(*socket);
  tuned_ = true;
  local_ = bound_ = known;
  if (service_ != nullptr) local_.set_port(service_->address().port());
  return {};
}

// A RoCE-like device leaves the TCP port of the number alone. An iWARP device takes it where it is
// free, since peers that are not Weft know no other.
Result<os::Fd> ListenerImpl::choose_service(const SocketAddress& local, bool v6_only) {
  const bool roce_like = device_->peer_directory() != nullptr;
  SocketAddress anywhere = local;
  anywhere.set_port(0);
  if (!device_->config().port_map) return open_listening(local, true, v6_only);
  if (roce_like) {
    auto service = ServicePort::take(local, v6_only, roce_like);
    if (!service) return fail(service.error());
    service_ = std::move(*service);
    return open_listening(anywhere, false, v6_only);
  }
  for (int attempt = 0;; ++attempt) {
    auto socket = open_listening(local, true, v6_only);
    if (!socket && socket.error() != Error::kAddressInUse) return socket;
    SocketAddress wanted = local;
    if (socket) wanted.set_port(io::local_address(socket->get()).port());
    auto service = ServicePort::take(wanted, v6_only, roce_like);
    if (service) {
      service_ = std::move(*service);
      return socket ? std::move(socket) : open_listening(anywhere, false, v6_only);
    }
    if (service.error() != Error::kAddressInUse && service.error() != Error::kPermission) {
      return fail(service.error());
    }
    // Another program has the UDP port: a plain TCP port then, where that was to be had.
    const bool again = local.port() == 0 && attempt < kPortAttempts;
    if (!again) return socket;
  }
}

bool ListenerImpl::yield_port(std::uint16_t port) {
  if (!device_->usable()) return false;
  os::Fd old;  // goes outside the mutex, once the new one is at work
  const os::MutexLock lock(mutex_);
  if (service_ == nullptr || io::local_address(socket_.get()).port() != port) return false;
  SocketAddress anywhere = local_;
  anywhere.set_port(0);
  auto socket = open_listening(anywhere, false, v6_only_);
  if (!socket) return false;
  if (listening_) {
    if (!device_->engine().add(socket->get(), watching_ ? EPOLLIN : 0U, weak_from_this())) {
      return false;
    }
    device_->engine().forget(socket_.get());
  }
  bound_ = io::local_address(socket->get());
  service_->move_to(bound_.port());
  old = std::move(socket_);
  socket_ = std::move(*socket);
  tuned_ = true;
  // Nobody else may get the port but the program, which asks for it next.
  old.reset();
  return true;
}

}  // namespace weft::verbs
