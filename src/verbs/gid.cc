// GIDs as addresses.
#include <netinet/in.h>
#include <sys/socket.h>
#include <weft/interfaces.h>
#include <weft/wiring.h>

#include <algorithm>
#include <cstring>

#include "roce/datagram.h"

namespace weft {

namespace {

constexpr std::size_t kV4At = 12;  // in ::ffff:a.b.c.d

}  // namespace

Gid gid_of(const SocketAddress& address) {
  Gid gid{};
  if (address.family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address.get());
    gid[10] = gid[11] = 0xff;
    std::memcpy(gid.data() + kV4At, &v4->sin_addr, sizeof v4->sin_addr);
  } else if (address.family() == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address.get());
    std::memcpy(gid.data(), &v6->sin6_addr, gid.size());
  }
  return gid;
}

Result<SocketAddress> address_of(const Gid& gid, std::uint16_t port, std::uint32_t interface) {
  in6_addr v6{};
  std::memcpy(&v6, gid.data(), gid.size());
  if (IN6_IS_ADDR_UNSPECIFIED(&v6) || IN6_IS_ADDR_MULTICAST(&v6)) {
    return fail(Error::kInvalidArgument);
  }
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    std::memcpy(&address.sin_addr, gid.data() + kV4At, sizeof address.sin_addr);
    const std::uint32_t host = ntohl(address.sin_addr.s_addr);
    if (host == 0 || IN_MULTICAST(host) || host == INADDR_BROADCAST) {
      return fail(Error::kInvalidArgument);
    }
    return SocketAddress(reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = v6;
  if (IN6_IS_ADDR_LINKLOCAL(&v6)) address.sin6_scope_id = interface;
  return SocketAddress(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

Result<DatagramPeer> sender_of_datagram(std::span<const std::uint8_t> route_header) {
  const auto grh = roce::decode_grh(route_header);
  if (!grh) return fail(Error::kInvalidArgument);
  DatagramPeer peer;
  peer.gid = grh->from;
  peer.own.gid = grh->to;
  peer.traffic_class = grh->traffic_class;
  peer.hop_limit = grh->hop_limit;
  return peer;
}

Result<SocketAddress> gid_address(const Config& config) {
  const auto devices = device_interfaces(config);
  if (!devices) return fail(devices.error());
  if (devices->empty()) return fail(Error::kNotFound);
  return devices->front().addresses.front();
}

}  // namespace weft
