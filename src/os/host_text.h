// A host by its number.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <string>

namespace weft::os {

// 192.0.2.1, 2001:db8::1, fe80::1%eth0: without a port. Empty: the address is none.
[[nodiscard]] inline std::string host_text(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> out{};
  const int error =
      getnameinfo(address, length, out.data(), out.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? out.data() : "";
}

}  // namespace weft::os
