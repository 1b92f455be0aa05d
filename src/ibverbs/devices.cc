#include "ibverbs/devices.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "ibverbs/fork_child.h"
#include "ibverbs/likeness.h"
#include "os/cancel.h"
#include "os/fd.h"
#include "os/guarded.h"
#include "os/lock.h"
#include "os/say.h"

namespace weft::ibverbs {
namespace {

// As adapters have it: most of it empty.
constexpr std::uint32_t kGidTableLength = 256;

struct PaddedDevice {
  ibv_device device{};
  char zeros[1024] = {};
};

// Only one thread at a time reads the interfaces.
struct Reading {
  os::Mutex mutex;
  std::optional<Config> config WEFT_GUARDED_BY(mutex);
};
Reading* reading = new Reading;
// Its lock may have been held by another thread of the parent.
void forget_reading() { reading = new Reading; }

// Every table until now, the last one first. Readers take no lock, so they stay allocated.
struct Kept {
  DeviceTable table;
  const Kept* before = nullptr;
  std::vector<std::unique_ptr<PaddedDevice>> devices;  // that are new in it
};
constinit std::atomic<const Kept*> last{nullptr};

std::array<std::uint8_t, 6> made_up_mac(const std::string& interface) {
  utsname names{};
  const std::string host = uname(&names) == 0 ? names.nodename : "weft";
  const std::uint64_t hash = std::hash<std::string>{}(host + '/' + interface);
  std::array<std::uint8_t, 6> mac{};
  std::memcpy(mac.data(), &hash, mac.size());
  mac[0] = 0x02;  // locally administered, unicast
  return mac;
}

std::unique_ptr<PaddedDevice> make_device(bool roce, std::size_t number) {
  auto padded = std::make_unique<PaddedDevice>();
  ibv_device& device = padded->device;
  device.node_type = roce ? IBV_NODE_CA : IBV_NODE_RNIC;
  device.transport_type = roce ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP;
  std::snprintf(device.name, sizeof device.name, "%s%zu", kNamePrefix, number);
  std::snprintf(device.dev_name, sizeof device.dev_name, "%s%zu", kUverbsPrefix, number);
  std::snprintf(device.dev_path, sizeof device.dev_path, "%s%s%zu", kSysfsUverbs, kUverbsPrefix,
                number);
  std::snprintf(device.ibdev_path, sizeof device.ibdev_path, "%s%s%zu", kSysfsDevices, kNamePrefix,
                number);
  return padded;
}

bool contains(const std::vector<Gid>& list, const Gid& gid) {
  return std::ranges::find(list, gid) != list.end();
}

// Entries keep their place as long as their address is there.
void update_gids(DeviceInfo& device) {
  for (Gid& gid : device.gids) {
    if (!contains(device.addresses, gid)) gid = {};
  }
  for (const Gid& address : device.addresses) {
    if (contains(device.gids, address)) continue;
    const auto free = std::ranges::find(device.gids, Gid{});
    if (free != device.gids.end()) {
      *free = address;
    } else if (device.gids.size() < kGidTableLength) {
      device.gids.push_back(address);
    }
  }
}

void update(DeviceInfo& device, const DeviceInterface& from, bool roce) {
  const bool has_mac = from.mac != std::array<std::uint8_t, 6>{};
  device.interface_index = from.index;
  device.mac = has_mac ? from.mac : made_up_mac(from.name);
  device.is_there = true;
  device.addresses.clear();
  for (const SocketAddress& address : from.addresses) device.addresses.push_back(gid_of(address));
  if (roce) return update_gids(device);
  Gid gid{};
  std::ranges::copy(device.mac, gid.begin());
  device.gids.assign(1, gid);
}

bool is_same(const DeviceInfo& a, const DeviceInfo& b) {
  return a.device == b.device && a.interface_index == b.interface_index && a.mac == b.mac &&
         a.is_there == b.is_there && a.addresses == b.addresses && a.gids == b.gids;
}

// The table after `before`, with the interfaces that there are now.
DeviceTable next_table(const DeviceTable& before, const std::vector<DeviceInterface>& interfaces) {
  DeviceTable now = before;
  for (DeviceInfo& device : now.devices) {
    const bool there = std::ranges::any_of(
        interfaces, [&](const DeviceInterface& i) { return i.name == device.interface; });
    if (there) continue;
    device.is_there = false;
    device.addresses.clear();
    if (now.roce) std::ranges::fill(device.gids, Gid{});
  }
  for (const DeviceInterface& interface : interfaces) {
    auto one = std::ranges::find_if(
        now.devices, [&](const DeviceInfo& d) { return d.interface == interface.name; });
    if (one == now.devices.end()) {
      one = now.devices.insert(now.devices.end(), DeviceInfo{});
      one->interface = interface.name;
    }
    update(*one, interface, now.roce);
  }
  return now;
}

// A mistake in the configuration is reported later, when a device is opened.
Status read_config() WEFT_REQUIRES(reading->mutex) {
  if (reading->config) return {};
  Result<Config> config = Config::load();
  if (!config && config.error() != Error::kInvalidArgument) return fail(config.error());
  reading->config = config ? std::move(*config) : Config{};
  return {};
}

void say_nothing_is_named(const Config& config) {
  os::say(
      "weft: no device: device = '%s', gid = '%s': no such interface or address, or it is down\n",
      config.device.c_str(), config.gid.c_str());
}

Status read_devices() WEFT_REQUIRES(reading->mutex) {
  const os::NoCancel guard;
  if (auto known = read_config(); !known) return known;
  const Config& config = *reading->config;
  const auto interfaces = device_interfaces(config);
  if (!interfaces) return fail(interfaces.error());
  const Kept* before = last.load(std::memory_order_acquire);
  DeviceTable first;
  first.roce = config.personality == Personality::kRoce;
  first.narrowed = !config.device.empty();
  auto kept = std::make_unique<Kept>();
  kept->table = next_table(before != nullptr ? before->table : first, *interfaces);
  kept->before = before;
  auto& devices = kept->table.devices;
  if (before != nullptr && std::ranges::equal(devices, before->table.devices, is_same)) return {};
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].device != nullptr) continue;
    kept->devices.push_back(make_device(kept->table.roce, i));
    devices[i].device = &kept->devices.back()->device;
  }
  if (before == nullptr && interfaces->empty()) say_nothing_is_named(config);
  last.store(kept.release(), std::memory_order_release);
  return {};
}

}  // namespace

Status refresh_devices() {
  on_fork_child(forget_reading);
  return os::guarded([]() -> Status {
    const os::MutexLock lock(reading->mutex);
    return read_devices();
  });
}

Status load_devices() {
  if (last.load(std::memory_order_acquire) != nullptr) return {};
  return refresh_devices();
}

const DeviceTable& device_table() {
  static const DeviceTable none;
  const Kept* kept = last.load(std::memory_order_acquire);
  return kept != nullptr ? kept->table : none;
}

const DeviceInfo* info_of(const ibv_device* device) {
  for (const DeviceInfo& one : device_table().devices) {
    if (one.device == device) return &one;
  }
  return nullptr;
}

const DeviceInfo* first_device() {
  for (const DeviceInfo& one : device_table().devices) {
    if (one.is_there) return &one;
  }
  return nullptr;
}

namespace {

const DeviceInfo* device_with(const Gid& address) {
  for (const DeviceInfo& one : device_table().devices) {
    if (one.is_there && contains(one.addresses, address)) return &one;
  }
  return nullptr;
}

}  // namespace

const DeviceInfo* device_of(const SocketAddress& own) {
  if (own.is_loopback() || own.is_any()) return first_device();
  const Gid gid = gid_of(own);
  if (const DeviceInfo* found = device_with(gid)) return found;
  // It may be new; without memory it stays unknown.
  if (refresh_devices()) {
    if (const DeviceInfo* found = device_with(gid)) return found;
  }
  return device_table().narrowed ? nullptr : first_device();
}

__be64 node_guid(const DeviceInfo& device) {
  const auto& mac = device.mac;
  const std::array<std::uint8_t, 8> eui = {
      static_cast<std::uint8_t>(mac[0] ^ 2U), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  __be64 guid = 0;
  std::memcpy(&guid, eui.data(), sizeof guid);
  return guid;
}

int interface_mtu(const DeviceInfo& device) {
  constexpr int kUnknown = 65536;
  const os::NoCancel guard;
  ifreq request{};
  std::strncpy(request.ifr_name, device.interface.c_str(), sizeof request.ifr_name - 1);
  const os::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ioctl(socket.get(), SIOCGIFMTU, &request) != 0) return kUnknown;
  return request.ifr_mtu;
}

std::uint32_t gid_table_length() {
  const std::uint32_t own = is_roce() ? kGidTableLength : 1;
  const auto other =
      likeness != nullptr ? likeness->number(like::Number::kPortGidTblLen) : std::nullopt;
  return other && *other < own ? static_cast<std::uint32_t>(*other) : own;
}

int find_gid(const ibv_context& context, std::uint32_t index, OwnGid& out) {
  if (index >= gid_table_length()) return EINVAL;
  const DeviceInfo* device = info_of(context.device);
  if (device == nullptr || index >= device->gids.size()) return ENODATA;
  if (device->gids[index] == Gid{}) return ENODATA;
  out = {device->gids[index], device->interface_index};
  return 0;
}

std::uint8_t index_of_gid(const ibv_context& context, const Gid& gid) {
  const DeviceInfo* device = info_of(context.device);
  if (device == nullptr) return 0;
  auto at = std::ranges::find(device->gids, gid);
  if (at == device->gids.end() || gid == Gid{}) {
    at = std::ranges::find_if(device->gids, [](const Gid& one) { return one != Gid{}; });
  }
  return at != device->gids.end() ? static_cast<std::uint8_t>(at - device->gids.begin()) : 0;
}

}  // namespace weft::ibverbs
