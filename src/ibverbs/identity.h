// How Weft's device looks: names, GUID and GID. As an iWARP device all are made from the machine's
// first Ethernet address; with personality roce the GID is an IP address (docs/personality.md).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>

#include "base/result.h"

namespace weft::ibverbs {

inline constexpr char kDeviceName[] = "weft0";
inline constexpr char kUverbsName[] = "uverbs-weft0";
inline constexpr char kSysfsDevice[] = "/sys/class/infiniband/weft0";
inline constexpr char kSysfsUverbs[] = "/sys/class/infiniband_verbs/uverbs-weft0";
inline constexpr char kDeviceNode[] = "/dev/infiniband/uverbs-weft0";
inline constexpr std::uint32_t kVendorId = 0x574546;  // "WEF": no vendor has it
inline constexpr std::uint32_t kVendorPartId = 1;
inline constexpr std::uint8_t kPort = 1;
inline constexpr std::uint16_t kPkey = 0xffff;  // host order; the default partition

struct Identity {
  std::array<std::uint8_t, 6> mac{};
  std::uint32_t interface_index = 0;  // 0: no Ethernet interface, the address is made up
};

// Reads the configuration and the machine's interfaces, once per process, for the calls below.
// Called before a device is listed or opened, so that a lack of memory or descriptors, which ends,
// does not decide how the device looks for the life of the process.
//   kNoMemory, a system_error()   it was not read; the next call tries again
[[nodiscard]] Status learn_look();

// A machine with no Ethernet interface gets a locally administered address.
[[nodiscard]] const Identity& identity();

// Config::personality as it is when this is first asked, for the life of the process: programs see
// the device before they open it.
[[nodiscard]] bool is_roce();

// As a RoCE device it has one GID, which stands at each of these indices: programs have 0, 1 or 3
// built in.
inline constexpr std::uint32_t kGidAliases = 16;
[[nodiscard]] inline bool is_gid_index(std::uint32_t index) {
  return index == 0 || (is_roce() && index < kGidAliases);
}

[[nodiscard]] __be64 node_guid();  // EUI-64 of the address
// As iWARP drivers do: the Ethernet address in octets 0 to 5, then zeros. As a RoCE device: its IP
// address, zeros if there is none that the configuration allows (opening the device then fails).
[[nodiscard]] ibv_gid device_gid();

// MTU in octets of the interface that has the GID's address; 65536 where it is not known.
[[nodiscard]] int interface_mtu();

// The one ibv_device. Its pointer never changes, nor do its contents once learn_look() has filled
// them in; zeros follow it, since provider libraries look for their own data behind any device they
// are shown.
[[nodiscard]] ibv_device* weft_device();

}  // namespace weft::ibverbs
