// Which interfaces of this machine are devices (<weft/interfaces.h>).
#include <weft/interfaces.h>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/socket.h>
#include <weft/system_error.h>
#include <weft/wiring.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "io/socket.h"
#include "os/cancel.h"
#include "os/fd.h"
#include "os/lack.h"

namespace weft {

namespace {

struct Found {
  DeviceInterface shown;
  unsigned flags = 0;

  [[nodiscard]] bool has(unsigned flag) const { return (flags & flag) != 0; }
};

// IPv4, IPv6, IPv6 addresses of the link.
int rank_of(const SocketAddress& address) {
  if (address.family() == AF_INET) return 0;
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address.get());
  return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ? 2 : 1;
}

bool of_link_alone(const Found& found) {
  return std::ranges::all_of(found.shown.addresses,
                             [](const SocketAddress& a) { return rank_of(a) == 2; });
}

std::optional<SocketAddress> address_at(const sockaddr* entry) {
  const int family = entry->sa_family;
  if (family != AF_INET && family != AF_INET6) return {};
  SocketAddress address(entry, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  address.set_port(0);
  return address;
}

void take_mac(const sockaddr* entry, DeviceInterface& out) {
  sockaddr_ll link{};
  std::memcpy(&link, entry, sizeof link);
  if (link.sll_halen == out.mac.size()) std::copy_n(link.sll_addr, out.mac.size(), out.mac.begin());
}

// Names of IPv4 addresses may have a label behind a colon.
std::string name_at(const ifaddrs& entry) {
  const std::string_view name = entry.ifa_name;
  return std::string(name.substr(0, name.find(':')));
}

// In the kernel's order. None where a sandbox forbids to ask.
Result<std::vector<Found>> all_interfaces() {
  std::vector<Found> out;
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) {
    if (os::is_lack(errno)) return fail(system_error(errno));
    return out;
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, &freeifaddrs);
  for (const ifaddrs* at = list.get(); at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const std::string name = name_at(*at);
    auto one = std::ranges::find_if(out, [&](const Found& f) { return f.shown.name == name; });
    if (one == out.end()) {
      one = out.insert(out.end(), Found{});
      one->shown.name = name;
      one->shown.index = if_nametoindex(name.c_str());
      one->flags = at->ifa_flags;
    }
    if (at->ifa_addr->sa_family == AF_PACKET) take_mac(at->ifa_addr, one->shown);
    if (const auto address = address_at(at->ifa_addr)) one->shown.addresses.push_back(*address);
  }
  for (Found& one : out) std::ranges::stable_sort(one.shown.addresses, {}, rank_of);
  std::ranges::stable_sort(out, {}, [](const Found& f) { return f.shown.index; });
  return out;
}

// Nothing is sent: connecting a UDP socket only looks the route up.
Result<std::optional<SocketAddress>> source_of_default_route() {
  const Result<std::optional<SocketAddress>> none;
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

bool is_same(const SocketAddress& a, const SocketAddress& b) { return gid_of(a) == gid_of(b); }

// The interface of `source` and that address of it come first.
void put_first(const SocketAddress& source, std::vector<DeviceInterface>& list) {
  for (auto one = list.begin(); one != list.end(); ++one) {
    const auto at = std::ranges::find_if(
        one->addresses, [&](const SocketAddress& a) { return is_same(a, source); });
    if (at == one->addresses.end()) continue;
    std::rotate(one->addresses.begin(), at, at + 1);
    std::rotate(list.begin(), one, one + 1);
    return;
  }
}

using Interfaces = Result<std::vector<DeviceInterface>>;

// Config::gid: one device with one address.
Interfaces with_gid(const Config& config, std::vector<Found> all) {
  std::optional<SocketAddress> wanted;
  const bool is_name =
      std::ranges::any_of(all, [&](const Found& f) { return f.shown.name == config.gid; });
  const auto parsed =
      is_name ? Result<SocketAddress>(SocketAddress()) : SocketAddress::parse(config.gid);
  if (!parsed && parsed.error() == Error::kNoMemory) return fail(parsed.error());
  if (parsed && !is_name && !parsed->is_any()) wanted = *parsed;
  if (wanted) wanted->set_port(0);
  std::vector<DeviceInterface> out;
  for (Found& one : all) {
    auto& addresses = one.shown.addresses;
    if (addresses.empty()) continue;
    const auto at = std::ranges::find_if(
        addresses, [&](const SocketAddress& a) { return wanted && is_same(a, *wanted); });
    // Every address of 127.0.0.0/8 is this machine's, though the interface shows only one.
    const bool loopback = wanted && wanted->is_loopback() && one.has(IFF_LOOPBACK);
    if (one.shown.name != config.gid && at == addresses.end() && !loopback) continue;
    const SocketAddress only = at != addresses.end() ? *at : loopback ? *wanted : addresses.front();
    addresses.assign(1, only);
    out.push_back(std::move(one.shown));
    return out;
  }
  return out;
}

// Config::device: those that it names.
std::vector<DeviceInterface> named(const Config& config, std::vector<Found> all) {
  std::vector<DeviceInterface> out;
  std::string_view left = config.device;
  while (!left.empty()) {
    const std::string_view name = left.substr(0, left.find(','));
    left.remove_prefix(std::min(left.size(), name.size() + 1));
    const auto one =
        std::ranges::find_if(all, [&](const Found& f) { return f.shown.name == name; });
    if (one == all.end() || !one->has(IFF_UP) || one->shown.addresses.empty()) continue;
    out.push_back(std::move(one->shown));
    all.erase(one);
  }
  return out;
}

// The loopback interface alone, as it is or as it is everywhere.
std::vector<DeviceInterface> loopback_of(std::vector<Found> all) {
  for (Found& one : all) {
    if (one.has(IFF_LOOPBACK) && !one.shown.addresses.empty()) return {std::move(one.shown)};
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  DeviceInterface lo;
  lo.name = "lo";
  lo.addresses.emplace_back(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  return {std::move(lo)};
}

// A sandbox that forbids to ask for interfaces may let routes be looked up all the same.
Interfaces by_route_alone() {
  const auto source = source_of_default_route();
  if (!source) return fail(source.error());
  if (!*source) return loopback_of({});
  DeviceInterface out;
  out.name = "default";
  out.addresses.push_back(**source);
  return std::vector<DeviceInterface>{std::move(out)};
}

Interfaces reaching_others(std::vector<Found> all) {
  if (all.empty()) return by_route_alone();
  std::vector<DeviceInterface> out;
  for (const Found& one : all) {
    if (one.has(IFF_LOOPBACK) || !one.has(IFF_UP) || !one.has(IFF_RUNNING)) continue;
    if (!of_link_alone(one)) out.push_back(one.shown);
  }
  if (out.empty()) return loopback_of(std::move(all));
  const auto source = source_of_default_route();
  if (!source) return fail(source.error());
  if (*source) put_first(**source, out);
  return out;
}

}  // namespace

bool DeviceInterface::operator==(const DeviceInterface& other) const {
  return name == other.name && index == other.index && mac == other.mac &&
         std::ranges::equal(addresses, other.addresses, is_same);
}

Result<std::vector<DeviceInterface>> device_interfaces(const Config& config) {
  const os::NoCancel guard;
  auto all = all_interfaces();
  if (!all) return fail(all.error());
  const bool by_gid = config.personality == Personality::kRoce && !config.gid.empty();
  if (by_gid) return with_gid(config, std::move(*all));
  if (!config.device.empty()) return named(config, std::move(*all));
  return reaching_others(std::move(*all));
}

}  // namespace weft
