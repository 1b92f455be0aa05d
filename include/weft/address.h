// An IPv4 or IPv6 address with a port, as the socket calls take it.
#pragma once

#include <weft/result.h>

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace weft {

// A text of an address that takes no memory from the heap.
class AddressText {
 public:
  static constexpr std::size_t kCapacity = 80;  // an address, the name of an interface, a port

  AddressText() = default;
  // A text that is too long is cut off.
  explicit AddressText(std::string_view text) noexcept;
  [[nodiscard]] std::string_view view() const noexcept { return {octets_.data(), size_}; }
  [[nodiscard]] std::strong_ordering operator<=>(const AddressText& other) const noexcept {
    return view() <=> other.view();
  }
  [[nodiscard]] bool operator==(const AddressText& other) const noexcept {
    return view() == other.view();
  }

 private:
  std::array<char, kCapacity> octets_{};
  std::uint8_t size_ = 0;
};

class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length);

  // "192.0.2.1:18515", "[::1]:18515", "host:port", ":18515" (any address), "host" with `port`.
  // Names are resolved.  kInvalidArgument: not of this form. kNotFound: the name has no address
  // kNoMemory, a system_error(): there was not enough memory, or no descriptor, to find out
  [[nodiscard]] static Result<SocketAddress> parse(std::string_view text, std::uint16_t port = 0);
  [[nodiscard]] static SocketAddress any(int family, std::uint16_t port);

  [[nodiscard]] const sockaddr* get() const;
  [[nodiscard]] sockaddr* get();
  [[nodiscard]] socklen_t size() const;  // bytes in use for the family
  static constexpr socklen_t capacity() { return sizeof(sockaddr_storage); }
  [[nodiscard]] int family() const;  // AF_INET, AF_INET6, AF_UNSPEC
  [[nodiscard]] std::uint16_t port() const;
  void set_port(std::uint16_t port);
  [[nodiscard]] bool is_any() const;
  [[nodiscard]] bool is_loopback() const;
  // An IPv4 address that a socket of IPv6 shows as ::ffff:a.b.c.d, as an IPv4 address; others as
  // they are.
  [[nodiscard]] SocketAddress unmapped() const;
  [[nodiscard]] std::string text() const;  // as parse() takes it
  // The same where no memory may be taken.
  [[nodiscard]] AddressText shown() const noexcept;

 private:
  sockaddr_storage storage_{};
};

}  // namespace weft
#pragma GCC visibility pop
