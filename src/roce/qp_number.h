// Queue pair numbers that say where the queue pair is: the port its process listens at, and which
// of the queue pairs behind that port.
//
// A program that wires queue pairs by hand tells its peer a GID and a queue pair number, and
// nothing else. The GID is an IP address; so the number (24 bits) has to hold the rest:
//
//   number = (port - 32768) << 9 | index      port 32768 to 65535, index 2 to 511
//
// The kernel's table of ports is the allocator; no daemon, file or shared memory is needed. Index 0
// and 1 are not used, so that no number is 0 or 1, which InfiniBand gives to its management.
#pragma once

#include <cstdint>

namespace weft::roce {

inline constexpr std::uint16_t kPortMin = 32768;
inline constexpr std::uint16_t kPortMax = 65535;
inline constexpr std::uint16_t kIndexMin = 2;
inline constexpr std::uint16_t kIndexMax = 511;
inline constexpr unsigned kIndexBits = 9;
inline constexpr std::uint32_t kNumberMask = 0xff'ffff;

struct QpNumber {
  std::uint16_t port = 0;
  std::uint16_t index = 0;
  bool operator==(const QpNumber&) const = default;
};

// REQUIRES: port and index within their limits.
[[nodiscard]] constexpr std::uint32_t to_number(QpNumber n) noexcept {
  return (static_cast<std::uint32_t>(n.port - kPortMin) << kIndexBits) | n.index;
}
[[nodiscard]] constexpr QpNumber split_number(std::uint32_t number) noexcept {
  return {static_cast<std::uint16_t>(kPortMin + ((number & kNumberMask) >> kIndexBits)),
          static_cast<std::uint16_t>(number & kIndexMax)};
}
// Whether a queue pair of this personality may have this number.
[[nodiscard]] constexpr bool is_number(std::uint32_t number) noexcept {
  return number <= kNumberMask && split_number(number).index >= kIndexMin;
}

}  // namespace weft::roce
