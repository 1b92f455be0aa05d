// Weft's devices as programs see them: one for each interface that reaches somebody
// (<weft/interfaces.h>), all of them faces of one engine. As iWARP devices they are made from the
// interface's Ethernet address; with personality roce each IP address of the interface is a GID
// (docs/personality.md).
//
// The interfaces are read when devices are listed or opened, and when a port is queried. A device
// keeps its interface, number and pointer for the life of the process, whether the interface is
// there or not.
//
// Any thread. A table is a value that never changes and is never freed. Where the interfaces have
// changed, a new one takes its place.
#pragma once

#include <infiniband/verbs.h>
#include <weft/interfaces.h>
#include <weft/wiring.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::ibverbs {

inline constexpr char kNamePrefix[] = "weft";
inline constexpr char kUverbsPrefix[] = "uverbs-weft";
inline constexpr char kSysfsDevices[] = "/sys/class/infiniband/";
inline constexpr char kSysfsUverbs[] = "/sys/class/infiniband_verbs/";
inline constexpr char kDeviceNodes[] = "/dev/infiniband/";
inline constexpr std::uint32_t kVendorId = 0x574546;  // "WEF": no vendor has it
inline constexpr std::uint32_t kVendorPartId = 1;
inline constexpr std::uint8_t kPort = 1;
inline constexpr std::uint16_t kPkey = 0xffff;  // host order; the default partition

// A device as it is now.
struct DeviceInfo {
  // Its pointer and contents never change. Zeros follow it, since provider libraries look for their
  // own data behind any device they are shown.
  ibv_device* device = nullptr;
  std::string interface;
  std::uint32_t interface_index = 0;  // 0: not one of the kernel's
  std::array<std::uint8_t, 6> mac{};  // made up where the interface has none
  bool is_there = false;              // its interface reaches somebody
  std::vector<Gid> addresses;         // of the interface
  // The GID table: zeros where an address has gone, whose place the next one gets. An iWARP device
  // has its Ethernet address there, then zeros.
  std::vector<Gid> gids;
};

struct DeviceTable {
  bool roce = false;      // Config::personality, for the life of the process
  bool narrowed = false;  // Config::device is set
  std::vector<DeviceInfo> devices;
};

// Reads the configuration and the machine's interfaces, if nobody has yet, for the calls below.
//   kNoMemory, a system_error()   it was not read; the next call tries again
[[nodiscard]] Status load_devices();
// Reads the interfaces anew.   As load_devices(): the last table stays
[[nodiscard]] Status refresh_devices();

// The last one. Empty before load_devices().
[[nodiscard]] const DeviceTable& device_table();
[[nodiscard]] inline bool is_roce() { return device_table().roce; }
// One of Weft's devices; null: it is another's.
[[nodiscard]] const DeviceInfo* info_of(const ibv_device* device);
// The first that is there, which is the one that answers for this machine's loopback addresses.
// Null: there is none.
[[nodiscard]] const DeviceInfo* first_device();
// Whose address that is. An address of this machine that no device has is the first one's, unless
// Config::device says which there are. Null: no device's.
[[nodiscard]] const DeviceInfo* device_of(const SocketAddress& own);

[[nodiscard]] __be64 node_guid(const DeviceInfo& device);  // EUI-64 of the Ethernet address
// MTU in octets of the interface; 65536 where it is not known.
[[nodiscard]] int interface_mtu(const DeviceInfo& device);

// Entries of the GID table, used or not.
[[nodiscard]] std::uint32_t gid_table_length();
// The entry at `index`.   0; ENODATA: empty; EINVAL: behind the end of the table
[[nodiscard]] int find_gid(const ibv_context& context, std::uint32_t index, OwnGid& out);
// The index of a GID of the device; where it has none such, of its first.
[[nodiscard]] std::uint8_t index_of_gid(const ibv_context& context, const Gid& gid);

}  // namespace weft::ibverbs
