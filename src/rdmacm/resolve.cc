// Binding and resolving: from addresses to a device and a route.

#include <weft/device.h>

#include <cerrno>

#include "os/lock.h"
#include "rdmacm/addresses.h"
#include "rdmacm/carried.h"
#include "rdmacm/cm.h"
#include "rdmacm/cm_operations.h"
#include "rdmacm/forward.h"

namespace weft::rdmacm {
namespace {

// Only RDMA_PS_TCP over IP exists on iWARP.
int check_family(const Id& id, const sockaddr* address) {
  if (id.pub.ps != RDMA_PS_TCP) return ENODEV;
  if (address == nullptr) return EINVAL;
  return address_length(address) == 0 ? ENODEV : 0;
}

int bind_error(Error error, const SocketAddress& address) {
  // The address is on no interface of this machine, hence on no device.
  if (error == Error::kInvalidArgument && !address.is_any()) return ENODEV;
  return errno_of(error);
}

// Makes the connection, bound to `local`.   errno
int bind_connection(Id& id, const SocketAddress& local) {
  const auto engine = device();
  if (engine == nullptr) return errno;
  auto connection = engine->create_connection(sink());
  if (!connection) return errno_of(connection.error());
  Status bound = (*connection)->bind(local, true);
  if (!bound && bound.error() == Error::kAddressInUse && is_roce_like(*engine)) {
    // The number is rdma_cm's own; its TCP port may be anybody's.
    SocketAddress anywhere = local;
    anywhere.set_port(0);
    bound = (*connection)->bind(anywhere, true);
  }
  if (!bound) return bind_error(bound.error(), local);
  store((*connection)->local_address(), id.pub.route.addr.src_storage);
  const os::MutexLock lock(state().mutex);
  if (!id.alive) return EINVAL;
  (*connection)->context = &id;
  id.connection.swap(*connection);  // one of an earlier attempt goes outside the mutex
  if (*connection != nullptr) (*connection)->context = nullptr;
  return 0;
}

// "Any" as a destination means this machine.
SocketAddress reachable(SocketAddress peer) {
  if (!peer.is_any()) return peer;
  const std::uint16_t port = peer.port();
  const auto loopback = SocketAddress::parse(peer.family() == AF_INET6 ? "[::1]:0" : "127.0.0.1:0");
  SocketAddress result = loopback ? *loopback : peer;
  result.set_port(port);
  return result;
}

// Where the connection starts: what the id is bound to, else what the program asked for, else what
// the route says.   `error`: errno
SocketAddress choose_source(const Id& id, bool bound, const sockaddr* wanted,
                            const SocketAddress& peer, int& error) {
  SocketAddress source;
  if (bound) {
    source = to_weft(&id.pub.route.addr.src_addr);
  } else if (address_length(wanted) != 0) {
    source = to_weft(wanted);
  }
  if (source.family() != AF_UNSPEC && !source.is_any()) return source;
  const std::uint16_t port = source.family() != AF_UNSPEC ? source.port() : std::uint16_t{0};
  Route route = find_route(peer);
  error = route.error;
  route.source.set_port(port);
  return route.source;
}

// 0, or the errno for ADDR_ERROR.
int resolve(Call& call, const sockaddr* source, const SocketAddress& peer) {
  Id& id = call.id();
  int error = 0;
  const SocketAddress local =
      choose_source(id, call.before() == IdState::kBound, source, peer, error);
  if (error != 0) return error;
  call.forget_listener();
  release_port(id);
  error = bind_connection(id, local);
  if (error == 0) error = attach_device(id, to_weft(&id.pub.route.addr.src_addr));
  if (error != 0) return error;
  store(peer, id.pub.route.addr.dst_storage);
  return 0;
}

// The event that a call ends with, in its node: made before the call changes anything.
class Announcement {
 public:
  Announcement() { node_.push_back(std::make_unique<Event>()); }
  // Queues it, status 0 or a negative errno. False: the id was destroyed meanwhile.
  bool tell(const Call& call, rdma_cm_event_type type, int status) {
    const os::MutexLock lock(state().mutex);
    const std::shared_ptr<Id>& id = call.shared_id();
    if (!id->alive) return false;
    Event& event = *node_.front();
    event.pub.id = &id->pub;
    event.pub.event = type;
    event.pub.status = status;
    event.owner = id;
    id->channel->queue.push_all(std::move(node_));
    return true;
  }

 private:
  std::list<EventPtr> node_;
};

// A call of this thread binds for rdma_cm itself.
class Binding {
 public:
  Binding() { under_way = true; }
  ~Binding() { under_way = false; }
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;
  static thread_local bool under_way;
};
thread_local bool Binding::under_way = false;

}  // namespace

// Reserves the port with a listener, which is what most bound ids become.
int make_listener(const Id& id, const SocketAddress& local, std::shared_ptr<Listener>& out) {
  const auto engine = device();
  if (engine == nullptr) return errno;
  auto listener = engine->create_listener(sink());
  if (!listener) return errno_of(listener.error());
  // Ports of rdma_cm have no TIME_WAIT, so a server may be started again at once; two listeners on
  // one port are refused all the same.
  const Binding ours;
  const Status bound = (*listener)->bind_service(local, id.v6_only);
  if (!bound) return bind_error(bound.error(), local);
  out = std::move(*listener);
  return 0;
}

int make_listener_anywhere(const Id& id, std::shared_ptr<Listener>& out) {
  // IPv6 "any" takes IPv4 too, but not where IPv6 is switched off.
  if (make_listener(id, SocketAddress::any(AF_INET6, 0), out) == 0) return 0;
  return make_listener(id, SocketAddress::any(AF_INET, 0), out);
}

void adopt(Id& id, std::shared_ptr<Listener> listener) {
  store(listener->local_address(), id.pub.route.addr.src_storage);
  const os::MutexLock lock(state().mutex);
  if (!id.alive) return;
  listener->context = &id;
  id.listener = std::move(listener);
}

void release_port(Id& id) {
  std::shared_ptr<Listener> listener;  // goes outside the mutex
  const os::MutexLock lock(state().mutex);
  if (id.listener != nullptr) id.listener->context = nullptr;
  listener.swap(id.listener);
}

}  // namespace weft::rdmacm

using namespace weft::rdmacm;

extern "C" {

// For libweft-paths.so: a socket of the program wants this TCP port. 1: a listener of rdma_cm had
// it, and has moved to another.
int weft_cm_yield_port(unsigned short port);
int weft_cm_yield_port(unsigned short port) {
  if (Binding::under_way) return 0;
  std::vector<std::shared_ptr<weft::Listener>> listeners;
  {
    const weft::os::MutexLock lock(state().mutex);
    for (const auto& [handle, id] : state().ids) {
      if (id->listener != nullptr) listeners.push_back(id->listener);
    }
  }
  int yielded = 0;
  for (const auto& listener : listeners) {
    if (listener->yield_port(port)) yielded = 1;
  }
  return yielded;
}

int rdma_bind_addr(rdma_cm_id* handle, sockaddr* address) {
  WEFT_CM_FORWARD(rdma_bind_addr, handle, address)
  WEFT_MAY_FAIL(rdma_bind_addr, fail_minus);
  return or_minus([&]() -> int {
    Call call(op::kBindAddr, handle);
    if (call.refused() != 0) return fail_minus(call.refused());
    Id& id = call.id();
    if (const int error = check_family(id, address); error != 0) return fail_minus(error);
    const weft::SocketAddress local = to_weft(address);
    std::shared_ptr<weft::Listener> listener;
    int error = make_listener(id, local, listener);
    // As in the kernel, a loopback address names no device, no more than "any" does. Programs rely
    // on it: libfabric binds "localhost" to learn that it should listen everywhere.
    if (error == 0 && !local.is_any() && !local.is_loopback()) {
      error = attach_device(id, local);
    }
    if (error != 0) return fail_minus(error);
    adopt(id, std::move(listener));
    call.done();
    return 0;
  });
}

int rdma_resolve_addr(rdma_cm_id* handle, sockaddr* source, sockaddr* destination, int timeout_ms) {
  WEFT_CM_FORWARD(rdma_resolve_addr, handle, source, destination, timeout_ms)
  WEFT_MAY_FAIL(rdma_resolve_addr, fail_minus);
  return or_minus([&]() -> int {
    Call call(op::kResolveAddr, handle);
    if (call.refused() != 0) return fail_minus(call.refused());
    Id& id = call.id();
    Announcement announcement;
    if (const int error = check_family(id, destination); error != 0) return fail_minus(error);
    if (source != nullptr && address_length(source) != 0 &&
        source->sa_family != destination->sa_family) {
      return fail_minus(EINVAL);
    }
    const int error = resolve(call, source, reachable(to_weft(destination)));
    // An id that could not be resolved keeps its port, unless the attempt has cost it that.
    const IdState unresolved = call.listener() != nullptr ? call.before() : IdState::kIdle;
    call.finish(error == 0 ? IdState::kAddrResolved : unresolved);
    if (!announcement.tell(
            call, error == 0 ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR, -error)) {
      return fail_minus(EINVAL);
    }
    return complete(id);
  });
}

int rdma_resolve_route(rdma_cm_id* handle, int timeout_ms) {
  WEFT_CM_FORWARD(rdma_resolve_route, handle, timeout_ms)
  WEFT_MAY_FAIL(rdma_resolve_route, fail_minus);
  return or_minus([&]() -> int {
    Call call(op::kResolveRoute, handle);
    if (call.refused() != 0) return fail_minus(call.refused());
    Announcement announcement;
    call.done();
    if (!announcement.tell(call, RDMA_CM_EVENT_ROUTE_RESOLVED, 0)) return fail_minus(EINVAL);
    return complete(call.id());
  });
}

}  // extern "C"
