// The host that a connection comes from, for limits that a crowd of one host must not fill alone.
//
// Header only, over the standard libraries alone.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace weft::os {

// Its address, as IPv6 maps it; of IPv6 the network, since one host may have any number of
// addresses there.
using CallingHost = std::array<std::uint8_t, 16>;

inline CallingHost calling_host(const sockaddr* peer) noexcept {
  constexpr std::size_t kNetwork = 8, kMarkAt = 10, kV4At = 12;
  CallingHost out{};
  if (peer->sa_family == AF_INET) {
    out[kMarkAt] = out[kMarkAt + 1] = 0xff;
    const auto& v4 = reinterpret_cast<const sockaddr_in*>(peer)->sin_addr;
    std::memcpy(&out[kV4At], &v4, sizeof v4);
  } else if (peer->sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6*>(peer)->sin6_addr;
    std::memcpy(out.data(), &v6, IN6_IS_ADDR_V4MAPPED(&v6) != 0 ? sizeof v6 : kNetwork);
  }
  return out;
}

}  // namespace weft::os
