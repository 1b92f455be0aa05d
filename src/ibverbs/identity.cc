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
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string_view>

#include "os/cancel.h"
#include "os/guarded.h"
#include "os/lack.h"
#include "os/lock.h"

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

Result<Identity> read_identity() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    if (os::is_lack(errno)) return fail(system_error(errno));
    return made_up();
  }
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
  Identity identity;
};

// A mistake in the configuration is reported later, when the device is opened.
//   kNoMemory, a system_error()   the same may be read later
Result<Look> read_look() {
  const os::NoCancel guard;
  const Result<Identity> found = read_identity();
  if (!found) return fail(found.error());
  Look look;
  look.identity = *found;
  std::copy(found->mac.begin(), found->mac.end(), look.gid.raw);
  const Result<Config> config = Config::load();
  if (!config && config.error() != Error::kInvalidArgument) return fail(config.error());
  look.roce = config && config->personality == Personality::kRoce;
  if (!look.roce) return look;
  look.gid = {};
  if (const auto address = gid_address(*config)) {
    const Gid gid = gid_of(*address);
    std::copy(gid.begin(), gid.end(), look.gid.raw);
  } else if (address.error() != Error::kNotFound) {
    return fail(address.error());
  }
  return look;
}

struct PaddedDevice {
  ibv_device device{};
  char zeros[1024] = {};
};

// Written once, with the mutex, before it is known.
constinit os::Mutex g_mutex;
constinit PaddedDevice g_device;
constinit Look g_look;
constinit std::atomic<bool> g_is_known{false};

void show(const Look& look) {
  g_look = look;
  ibv_device& device = g_device.device;
  device.node_type = look.roce ? IBV_NODE_CA : IBV_NODE_RNIC;
  device.transport_type = look.roce ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP;
  std::copy(std::begin(kDeviceName), std::end(kDeviceName), device.name);
  std::copy(std::begin(kUverbsName), std::end(kUverbsName), device.dev_name);
  std::copy(std::begin(kSysfsUverbs), std::end(kSysfsUverbs), device.dev_path);
  std::copy(std::begin(kSysfsDevice), std::end(kSysfsDevice), device.ibdev_path);
  g_is_known.store(true, std::memory_order_release);
}

// Nothing that is asked without learn_look() comes before a device is listed or opened.
const Look& look() {
  static const Look none;
  return learn_look() ? g_look : none;
}

}  // namespace

Status learn_look() {
  if (g_is_known.load(std::memory_order_acquire)) return {};
  const os::MutexLock lock(g_mutex);
  if (g_is_known.load(std::memory_order_relaxed)) return {};
  const Result<Look> look = os::guarded(read_look);
  if (!look) return fail(look.error());
  show(*look);
  return {};
}

const Identity& identity() { return look().identity; }

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
  const os::NoCancel guard;
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

ibv_device* weft_device() { return &g_device.device; }

}  // namespace weft::ibverbs
