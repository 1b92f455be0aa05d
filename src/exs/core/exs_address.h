// A socket address of IPv4 or IPv6.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace weft::exs {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  Address() = default;
  Address(const sockaddr* from, socklen_t size) : length(size) {
    std::memcpy(&storage, from, std::min<std::size_t>(size, sizeof storage));
  }
  // From an address whose family says how long it is.
  explicit Address(const sockaddr* from)
      : Address(from, from->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)) {}

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] bool set() const { return length != 0; }
  void set_port(in_port_t network_order) {
    if (storage.ss_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = network_order;
    } else {
      reinterpret_cast<sockaddr_in*>(&storage)->sin_port = network_order;
    }
  }
  [[nodiscard]] std::uint16_t port() const {
    return ntohs(storage.ss_family == AF_INET6
                     ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                     : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  }
  // As getsockname(2): at most `*size` bytes, and `*size` becomes the real length.
  void copy_to(sockaddr* out, socklen_t* size) const {
    std::memcpy(out, &storage, std::min(*size, length));
    *size = length;
  }
};

}  // namespace weft::exs
