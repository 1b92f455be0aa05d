// The interfaces of this machine that are RDMA devices to programs.
//
// Values and a pure reading of the system, any thread.
#pragma once

#include <weft/address.h>
#include <weft/config.h>
#include <weft/result.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace weft {

struct DeviceInterface {
  std::string name;
  std::uint32_t index = 0;            // the kernel's number of it
  std::array<std::uint8_t, 6> mac{};  // zeros: it has none
  // At least one, without a port: IPv4 first, then IPv6, then IPv6 addresses of the link.
  std::vector<SocketAddress> addresses;

  bool operator==(const DeviceInterface& other) const;
};

// One for each interface that reaches somebody: it is up, has a link, and an address that means
// something beyond that link. The interface of the default route comes first, with the address from
// which that leaves in front, then the others in the kernel's order. Where there is none, the
// loopback interface is one.
//   Config::device   names those that are meant, in this order; an address of the link is enough
//   Config::gid      with personality roce: one device with this address alone
// Empty: what these two name is not of this machine, or is down.
//   kNoMemory, a system_error()   what the system has too little of
[[nodiscard]] Result<std::vector<DeviceInterface>> device_interfaces(const Config& config);

}  // namespace weft
#pragma GCC visibility pop
