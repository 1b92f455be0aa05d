#include "ibverbs/identity.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

#include "io/cancel.h"

namespace weft::ibverbs {
namespace {

bool is_zero(const std::array<std::uint8_t, 6>& mac) {
  return std::all_of(mac.begin(), mac.end(), [](std::uint8_t octet) { return octet == 0; });
}

Identity made_up() {
  utsname names{};
  const std::string_view host = uname(&names) == 0 ? names.nodename : "weft";
  const std::uint64_t hash = std::hash<std::string_view>{}(host);
  Identity result;
  std::memcpy(result.mac.data(), &hash, result.mac.size());
  result.mac[0] = 0x02;  // locally administered, unicast
  return result;
}

Identity read_identity() {
  const io::NoCancel guard;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return made_up();
  Identity best;
  bool best_is_up = false;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_PACKET) continue;
    sockaddr_ll link{};
    std::memcpy(&link, at->ifa_addr, sizeof link);
    Identity found;
    if (link.sll_halen != found.mac.size()) continue;
    std::copy_n(link.sll_addr, found.mac.size(), found.mac.begin());
    found.interface_index = static_cast<std::uint32_t>(link.sll_ifindex);
    const bool up = (at->ifa_flags & IFF_UP) != 0;
    if (is_zero(found.mac) || (!is_zero(best.mac) && (best_is_up || !up))) continue;
    best = found;
    best_is_up = up;
  }
  freeifaddrs(list);
  return is_zero(best.mac) ? made_up() : best;
}

struct Look {
  bool roce = false;
  ibv_gid gid{};
};

// What is wrong with a configuration is said when the device is opened.
Look read_look() {
  const io::NoCancel guard;
  Look look;
  const Result<Config> config = Config::load();
  look.roce = config && config->personality == Personality::kRoce;
  if (look.roce) {
    if (const auto address = gid_address(*config)) {
      const Gid gid = gid_of(*address);
      std::copy(gid.begin(), gid.end(), look.gid.raw);
    }
    return look;
  }
  const auto& mac = identity().mac;
  std::copy(mac.begin(), mac.end(), look.gid.raw);
  return look;
}

const Look& look() {
  static const Look once = read_look();
  return once;
}

struct PaddedDevice {
  ibv_device device{};
  char zeros[1024] = {};

  PaddedDevice() {
    device.node_type = is_roce() ? IBV_NODE_CA : IBV_NODE_RNIC;
    device.transport_type = is_roce() ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP;
    std::copy(std::begin(kDeviceName), std::end(kDeviceName), device.name);
    std::copy(std::begin(kUverbsName), std::end(kUverbsName), device.dev_name);
    std::copy(std::begin(kSysfsUverbs), std::end(kSysfsUverbs), device.dev_path);
    std::copy(std::begin(kSysfsDevice), std::end(kSysfsDevice), device.ibdev_path);
  }
};

}  // namespace

const Identity& identity() {
  static const Identity once = read_identity();
  return once;
}

__be64 node_guid() {
  const auto& mac = identity().mac;
  const std::array<std::uint8_t, 8> eui = {
      static_cast<std::uint8_t>(mac[0] ^ 2U), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  __be64 guid = 0;
  std::memcpy(&guid, eui.data(), sizeof guid);
  return guid;
}

bool is_roce() { return look().roce; }

ibv_gid device_gid() { return look().gid; }

int interface_mtu() {
  constexpr int kUnknown = 65536;
  const io::NoCancel guard;
  int mtu = kUnknown;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return mtu;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const SocketAddress address(at->ifa_addr,
                                family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    const Gid gid = gid_of(address);
    if (!std::equal(gid.begin(), gid.end(), look().gid.raw)) continue;
    ifreq request{};
    std::strncpy(request.ifr_name, at->ifa_name, sizeof request.ifr_name - 1);
    const int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_fd >= 0 && ioctl(socket_fd, SIOCGIFMTU, &request) == 0) mtu = request.ifr_mtu;
    if (socket_fd >= 0) close(socket_fd);
    break;
  }
  freeifaddrs(list);
  return mtu;
}

ibv_device* weft_device() {
  static auto* padded = new PaddedDevice;
  return &padded->device;
}

}  // namespace weft::ibverbs
