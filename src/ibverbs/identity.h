// How Weft's device looks: names, GUID and GID, made from the machine's first Ethernet address.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>

namespace weft::ibverbs {

inline constexpr char kDeviceName[] = "weft0";
inline constexpr char kUverbsName[] = "uverbs-weft0";
inline constexpr char kSysfsDevice[] = "/sys/class/infiniband/weft0";
inline constexpr char kSysfsUverbs[] = "/sys/class/infiniband_verbs/uverbs-weft0";
inline constexpr std::uint32_t kVendorId = 0x574546;  // "WEF": no vendor has it
inline constexpr std::uint32_t kVendorPartId = 1;
inline constexpr std::uint8_t kPort = 1;
inline constexpr std::uint16_t kPkey = 0xffff;  // host order; the default partition

struct Identity {
  std::array<std::uint8_t, 6> mac{};
  std::uint32_t interface_index = 0;  // 0: no Ethernet interface, the address is made up
};

// Read once per process. A machine with no Ethernet interface gets a locally administered address.
[[nodiscard]] const Identity& identity();

[[nodiscard]] __be64 node_guid();  // EUI-64 of the address
[[nodiscard]] ibv_gid
device_gid();  // as iWARP drivers do: the address in octets 0 to 5, then zeros

// The one ibv_device. Pointer and contents never change; zeros follow it, since provider libraries
// look for their own data behind any device they are shown.
[[nodiscard]] ibv_device* weft_device();

}  // namespace weft::ibverbs
