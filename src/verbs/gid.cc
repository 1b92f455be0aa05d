// Which address of this machine is the device's GID, and GIDs as addresses.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/system_error.h>
#include <weft/wiring.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "io/socket.h"
#include "os/fd.h"
#include "os/lack.h"
#include "roce/datagram.h"

namespace weft {

namespace {

constexpr std::size_t kV4At = 12;  // in ::ffff:a.b.c.d

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

// None where a sandbox forbids to ask.   What the system has too little of
Result<Interfaces> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    if (os::is_lack(errno)) return fail(system_error(errno));
    list = nullptr;
  }
  return Interfaces(list, &freeifaddrs);
}

std::optional<SocketAddress> address_at(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr) return {};
  const int family = entry.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return {};
  SocketAddress address(entry.ifa_addr,
                        family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  if (family == AF_INET6) {
    // A GID has no room for the interface that an address of the link needs beside it.
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address.get());
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return {};
  }
  address.set_port(0);
  return address;
}

using Found = Result<std::optional<SocketAddress>>;

// The best one that `wanted` lets pass: IPv4 before IPv6.
template <class Wanted>
Found best_address(Wanted wanted) {
  std::optional<SocketAddress> best;
  const Result<Interfaces> list = interfaces();
  if (!list) return fail(list.error());
  for (const ifaddrs* at = list->get(); at != nullptr; at = at->ifa_next) {
    const auto address = address_at(*at);
    if (!address || !wanted(*at, *address)) continue;
    if (address->family() == AF_INET) return address;
    if (!best) best = address;
  }
  return best;
}

// Nothing is sent: connecting a UDP socket only looks the route up.
Found source_of_default_route() {
  const Found none;
  const os::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket && os::is_lack(errno)) return fail(system_error(errno));
  if (!socket) return none;
  sockaddr_in far{};
  far.sin_family = AF_INET;
  far.sin_port = htons(9);
  far.sin_addr.s_addr = htonl(0xc0000201);  // 192.0.2.1, of a documentation network
  const auto* address = reinterpret_cast<const sockaddr*>(&far);
  if (::connect(socket.get(), address, sizeof far) != 0) return none;
  SocketAddress source = io::local_address(socket.get());
  source.set_port(0);
  if (source.family() != AF_INET || source.is_any() || source.is_loopback()) return none;
  return source;
}

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

Result<SocketAddress> address_of(const Gid& gid, std::uint16_t port) {
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
  return SocketAddress(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

Result<DatagramPeer> sender_of_datagram(std::span<const std::uint8_t> route_header) {
  const auto grh = roce::decode_grh(route_header);
  if (!grh) return fail(Error::kInvalidArgument);
  DatagramPeer peer;
  peer.gid = grh->from;
  peer.traffic_class = grh->traffic_class;
  peer.hop_limit = grh->hop_limit;
  return peer;
}

Result<SocketAddress> gid_address(const Config& config) {
  if (!config.gid.empty()) {
    std::optional<SocketAddress> wanted;
    const auto parsed = SocketAddress::parse(config.gid);
    if (parsed && !parsed->is_any()) wanted = *parsed;
    if (!parsed && parsed.error() == Error::kNoMemory) return parsed;
    const auto found = best_address([&](const ifaddrs& entry, const SocketAddress& address) {
      return config.gid == entry.ifa_name || (wanted && gid_of(*wanted) == gid_of(address));
    });
    if (!found) return fail(found.error());
    // Every address of 127.0.0.0/8 is this machine's, though the interface shows only one.
    if (!*found && wanted && wanted->is_loopback()) return *wanted;
    if (!*found) return fail(Error::kNotFound);
    return **found;
  }
  const auto source = source_of_default_route();
  if (!source) return fail(source.error());
  if (*source) return **source;
  const auto found = best_address([](const ifaddrs& entry, const SocketAddress& address) {
    return (entry.ifa_flags & IFF_UP) != 0 && !address.is_loopback();
  });
  if (!found) return fail(found.error());
  if (*found) return **found;
  return SocketAddress::parse("127.0.0.1");
}

}  // namespace weft
