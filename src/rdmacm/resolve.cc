// Binding and resolving: from addresses to a device and a route.

#include <weft/device.h>

#include <cerrno>

#include "rdmacm/addresses.h"
#include "rdmacm/cm.h"
#include "rdmacm/forward.h"

namespace weft::rdmacm {
namespace {

Device& device() { return *weft_ibv_context(weft_ibv_cm_context())->engine; }

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

// Reserves the port with a listener, which is what most bound ids become.   errno
int bind_listener(Id& id, const SocketAddress& local) {
  auto listener = device().create_listener(sink());
  if (!listener) return errno_of(listener.error());
  // Ports of rdma_cm have no TIME_WAIT, so a server may be started again at once; two listeners on
  // one port are refused all the same.
  const Status bound = (*listener)->bind(local, true, id.v6_only);
  if (!bound) return bind_error(bound.error(), local);
  (*listener)->context = &id;
  store((*listener)->local_address(), id.pub.route.addr.src_storage);
  id.listener = std::move(*listener);
  return 0;
}

// Makes the connection, bound to `local`.   errno
int bind_connection(Id& id, const SocketAddress& local) {
  auto connection = device().create_connection(sink());
  if (!connection) return errno_of(connection.error());
  const Status bound = (*connection)->bind(local, true);
  if (!bound) return bind_error(bound.error(), local);
  (*connection)->context = &id;
  store((*connection)->local_address(), id.pub.route.addr.src_storage);
  id.connection = std::move(*connection);
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
SocketAddress choose_source(const Id& id, const sockaddr* wanted, const SocketAddress& peer,
                            int& error) {
  SocketAddress source;
  if (id.state == IdState::kBound) {
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
int resolve(Id& id, const sockaddr* source, const SocketAddress& peer) {
  int error = 0;
  const SocketAddress local = choose_source(id, source, peer, error);
  if (error != 0) return error;
  id.listener.reset();  // gives its port back to the connection
  id.connection.reset();
  error = bind_connection(id, local);
  if (error == 0) error = attach_device(id);
  if (error != 0) return error;
  store(peer, id.pub.route.addr.dst_storage);
  return 0;
}

}  // namespace

int bind_any(Id& id) {
  // IPv6 "any" takes IPv4 too, but not where IPv6 is switched off.
  if (bind_listener(id, SocketAddress::any(AF_INET6, 0)) == 0) return 0;
  return bind_listener(id, SocketAddress::any(AF_INET, 0));
}

}  // namespace weft::rdmacm

using namespace weft::rdmacm;

extern "C" {

int rdma_bind_addr(rdma_cm_id* handle, sockaddr* address) {
  WEFT_CM_FORWARD(rdma_bind_addr, handle, address)
  std::unique_lock lock(state().mutex);
  Id* id = live_id(handle);
  if (id == nullptr) return fail_minus(EINVAL);
  if (const int error = check_family(*id, address); error != 0) return fail_minus(error);
  if (id->state != IdState::kIdle) return fail_minus(EINVAL);
  id->state = IdState::kBound;
  lock.unlock();

  const weft::SocketAddress local = to_weft(address);
  int error = bind_listener(*id, local);
  if (error == 0 && !local.is_any()) error = attach_device(*id);
  if (error == 0) return 0;
  id->listener.reset();
  lock.lock();
  id->state = IdState::kIdle;
  return fail_minus(error);
}

int rdma_resolve_addr(rdma_cm_id* handle, sockaddr* source, sockaddr* destination, int timeout_ms) {
  WEFT_CM_FORWARD(rdma_resolve_addr, handle, source, destination, timeout_ms)
  std::unique_lock lock(state().mutex);
  Id* id = live_id(handle);
  if (id == nullptr) return fail_minus(EINVAL);
  if (const int error = check_family(*id, destination); error != 0) return fail_minus(error);
  if (source != nullptr && address_length(source) != 0 &&
      source->sa_family != destination->sa_family) {
    return fail_minus(EINVAL);
  }
  const IdState before = id->state;
  if (before != IdState::kIdle && before != IdState::kBound) return fail_minus(EINVAL);
  lock.unlock();

  const int error = resolve(*id, source, reachable(to_weft(destination)));
  lock.lock();
  // What could not be resolved keeps its port, unless the attempt has cost it that.
  const IdState unresolved = id->listener != nullptr ? before : IdState::kIdle;
  id->state = error == 0 ? IdState::kAddrResolved : unresolved;
  post_local(*id, error == 0 ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR, -error);
  lock.unlock();
  return complete(*id);
}

int rdma_resolve_route(rdma_cm_id* handle, int timeout_ms) {
  WEFT_CM_FORWARD(rdma_resolve_route, handle, timeout_ms)
  std::unique_lock lock(state().mutex);
  Id* id = live_id(handle);
  if (id == nullptr || id->state != IdState::kAddrResolved) return fail_minus(EINVAL);
  id->state = IdState::kRouteResolved;
  post_local(*id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
  lock.unlock();
  return complete(*id);
}

}  // extern "C"
