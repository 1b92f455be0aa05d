#include "rdmacm/addresses.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "os/cancel.h"
#include "os/fd.h"

namespace weft::rdmacm {

socklen_t address_length(const sockaddr* address) {
  if (address == nullptr) return 0;
  switch (address->sa_family) {
    case AF_INET: return sizeof(sockaddr_in);
    case AF_INET6: return sizeof(sockaddr_in6);
    default: return 0;
  }
}

SocketAddress to_weft(const sockaddr* address) {
  return SocketAddress(address, address_length(address));
}

void store(const SocketAddress& from, sockaddr_storage& to) {
  std::memset(&to, 0, sizeof to);
  std::memcpy(&to, from.get(), from.size());
}

Route find_route(const SocketAddress& peer) {
  const os::NoCancel guard;
  Route route;
  const os::Fd probe(socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return {{}, errno};
  // Port 0 is not an address one can connect to; any other does, nothing is sent.
  SocketAddress target = peer;
  if (target.port() == 0) target.set_port(9);
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (connect(probe.get(), target.get(), target.size()) != 0 ||
      getsockname(probe.get(), reinterpret_cast<sockaddr*>(&local), &length) != 0) {
    route.error = errno;
  } else {
    route.source = SocketAddress(reinterpret_cast<const sockaddr*>(&local), length);
    route.source.set_port(0);
  }
  return route;
}

}  // namespace weft::rdmacm
