#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <weft/address.h>
#include <weft/system_error.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>

#include "os/guarded.h"
#include "os/lack.h"

namespace weft {

namespace {

constexpr std::size_t kMappedAt = 12;  // the IPv4 address in ::ffff:a.b.c.d

struct Pieces {
  std::string host;  // empty: any
  std::uint16_t port = 0;
};

bool parse_port(std::string_view text, std::uint16_t& port) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, port);
  return error == std::errc() && at == end && !text.empty();
}

// "host:port", "[v6]:port", "host", "v6" without brackets (two colons or more: no port).
bool split(std::string_view text, Pieces& out) {
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos || close == 1) return false;
    out.host = text.substr(1, close - 1);
    if (out.host.find(':') == std::string::npos) return false;
    const std::string_view rest = text.substr(close + 1);
    if (rest.empty()) return true;
    return rest.front() == ':' && parse_port(rest.substr(1), out.port);
  }
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (colons != 1) {
    out.host = text;
    return !text.empty();
  }
  const std::size_t colon = text.find(':');
  out.host = text.substr(0, colon);
  return parse_port(text.substr(colon + 1), out.port);
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length) {
  std::memcpy(&storage_, address, std::min<std::size_t>(length, sizeof storage_));
}

namespace {

Result<SocketAddress> resolve(std::string_view text, std::uint16_t port) {
  Pieces pieces;
  pieces.port = port;
  if (!split(text, pieces)) return fail(Error::kInvalidArgument);
  if (pieces.host.empty()) return SocketAddress::any(AF_INET, pieces.port);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int refused = getaddrinfo(pieces.host.c_str(), nullptr, &hints, &found);
  if (refused == EAI_MEMORY) return fail(Error::kNoMemory);
  if (refused == EAI_SYSTEM && os::is_lack(errno)) return fail(system_error(errno));
  if (refused != 0 || found == nullptr) return fail(Error::kNotFound);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  SocketAddress out(found->ai_addr, found->ai_addrlen);
  out.set_port(pieces.port);
  return out;
}

}  // namespace

Result<SocketAddress> SocketAddress::parse(std::string_view text, std::uint16_t port) {
  return os::guarded([&] { return resolve(text, port); });
}

SocketAddress SocketAddress::any(int family, std::uint16_t port) {
  SocketAddress out;
  out.storage_.ss_family = static_cast<sa_family_t>(family);
  out.set_port(port);
  return out;
}

const sockaddr* SocketAddress::get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
sockaddr* SocketAddress::get() { return reinterpret_cast<sockaddr*>(&storage_); }

socklen_t SocketAddress::size() const {
  switch (family()) {
    case AF_INET: return sizeof(sockaddr_in);
    case AF_INET6: return sizeof(sockaddr_in6);
    default: return sizeof(sa_family_t);
  }
}

int SocketAddress::family() const { return storage_.ss_family; }

std::uint16_t SocketAddress::port() const {
  switch (family()) {
    case AF_INET: return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
    case AF_INET6: return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
    default: return 0;
  }
}

void SocketAddress::set_port(std::uint16_t port) {
  switch (family()) {
    case AF_INET: reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port); break;
    case AF_INET6: reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port); break;
    default: break;
  }
}

bool SocketAddress::is_any() const {
  switch (family()) {
    case AF_INET:
      return reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr == htonl(INADDR_ANY);
    case AF_INET6: {
      const auto& a = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
      // ... or IPv4's, mapped.
      return IN6_IS_ADDR_UNSPECIFIED(&a) ||
             (IN6_IS_ADDR_V4MAPPED(&a) && std::memcmp(&a.s6_addr[12], "\0\0\0\0", 4) == 0);
    }
    default: return false;
  }
}

bool SocketAddress::is_loopback() const {
  constexpr std::uint8_t kLoopbackNet = 127;
  switch (family()) {
    case AF_INET: {
      const auto& a = reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr;
      return reinterpret_cast<const std::uint8_t*>(&a.s_addr)[0] == kLoopbackNet;
    }
    case AF_INET6: {
      const auto& a = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
      return IN6_IS_ADDR_LOOPBACK(&a) ||
             (IN6_IS_ADDR_V4MAPPED(&a) && a.s6_addr[kMappedAt] == kLoopbackNet);
    }
    default: return false;
  }
}

SocketAddress SocketAddress::unmapped() const {
  if (family() != AF_INET6) return *this;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage_);
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return *this;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + kMappedAt, sizeof v4.sin_addr);
  return {reinterpret_cast<const sockaddr*>(&v4), sizeof v4};
}

AddressText::AddressText(std::string_view text) noexcept
    : size_(static_cast<std::uint8_t>(std::min(text.size(), kCapacity))) {
  std::copy_n(text.data(), size_, octets_.data());
}

std::string SocketAddress::text() const { return std::string(shown().view()); }

AddressText SocketAddress::shown() const noexcept {
  char host[AddressText::kCapacity];
  char all[AddressText::kCapacity];
  if (family() != AF_INET && family() != AF_INET6) return AddressText("unspecified");
  if (getnameinfo(get(), size(), host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) {
    return AddressText("?");
  }
  const char* const format = family() == AF_INET6 ? "[%s]:%u" : "%s:%u";
  const int length = std::snprintf(all, sizeof all, format, host, unsigned{port()});
  return AddressText(
      {all, std::min(static_cast<std::size_t>(std::max(length, 0)), sizeof all - 1)});
}

}  // namespace weft
