#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

#include "os/abstract_address.h"
#include "os/calling_host.h"

namespace weft::os {
namespace {

CallingHost host_of(const char* text) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    return calling_host(reinterpret_cast<const sockaddr*>(&v4));
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1) << text;
  return calling_host(reinterpret_cast<const sockaddr*>(&v6));
}

TEST(CallingHost, IsAnAddressOfIPv4AndANetworkOfIPv6) {
  EXPECT_NE(host_of("192.0.2.1"), host_of("192.0.2.2"));
  EXPECT_EQ(host_of("192.0.2.1"), host_of("::ffff:192.0.2.1"));
  EXPECT_EQ(host_of("2001:db8::1"), host_of("2001:db8::ffff:1"));
  EXPECT_NE(host_of("2001:db8::1"), host_of("2001:db8:0:1::1"));
  EXPECT_NE(host_of("192.0.2.1"), host_of("::1"));
}

TEST(AbstractAddress, IsTheNameBehindAnOctetOf0) {
  const AbstractAddress address("weft-test");
  const auto* octets = reinterpret_cast<const char*>(address.get());
  EXPECT_EQ(address.get()->sa_family, AF_UNIX);
  EXPECT_EQ(octets[offsetof(sockaddr_un, sun_path)], '\0');
  const std::size_t begin = offsetof(sockaddr_un, sun_path) + 1;
  EXPECT_EQ(std::string_view(octets + begin, address.size() - begin), "weft-test");
}

}  // namespace
}  // namespace weft::os
