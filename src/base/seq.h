// Numbers that name things or wrap, as types that cannot be mixed up or compared wrongly.
//
// Plain values, any thread.
#pragma once

#include <compare>
#include <cstdint>

namespace weft {

// Message sequence number of a DDP queue, RFC 5041 section 4.3: the first message has 1, each next
// one more, ffffffff is followed by 0. Comparison is by serial arithmetic: right as long as the two
// are less than 2^31 apart, which bounded queues guarantee. Not a total order: do not sort by it.
struct Msn {
  std::uint32_t value = 1;

  [[nodiscard]] static constexpr Msn first() noexcept { return Msn{1}; }
  [[nodiscard]] constexpr Msn next() const noexcept { return Msn{value + 1}; }
  [[nodiscard]] constexpr Msn plus(std::uint32_t count) const noexcept {
    return Msn{value + count};
  }

  // How many messages `this` is ahead of `other`; negative if behind.
  [[nodiscard]] constexpr std::int32_t distance_from(Msn other) const noexcept {
    return static_cast<std::int32_t>(value - other.value);
  }

  constexpr bool operator==(const Msn&) const = default;
  constexpr bool operator<(Msn o) const noexcept { return distance_from(o) < 0; }
  constexpr bool operator>(Msn o) const noexcept { return o < *this; }
  constexpr bool operator<=(Msn o) const noexcept { return !(o < *this); }
  constexpr bool operator>=(Msn o) const noexcept { return !(*this < o); }
};

// Steering tag: names a memory region or window at its owner. The low octet is the key, which the
// verbs layer lets consumers choose; the upper 24 bits are the index.
struct Stag {
  std::uint32_t value = 0;

  [[nodiscard]] constexpr std::uint32_t index() const noexcept { return value >> 8; }
  [[nodiscard]] constexpr std::uint8_t key() const noexcept {
    return static_cast<std::uint8_t>(value & 0xffU);
  }
  [[nodiscard]] static constexpr Stag of(std::uint32_t index, std::uint8_t key) noexcept {
    return Stag{(index << 8) | key};
  }

  constexpr auto operator<=>(const Stag&) const = default;
};

// Position in one direction of a TCP stream. Octet 0 is the first one after the start-up frame of
// that direction (RFC 5044 section 4.3). 64 bits do not wrap in the life of a connection.
using StreamOffset = std::uint64_t;

}  // namespace weft
