#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <weft/address.h>

#include <string>

namespace weft {
namespace {

SocketAddress good(std::string_view text, std::uint16_t port = 0) {
  const auto parsed = SocketAddress::parse(text, port);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(SocketAddress());
}

TEST(SocketAddress, ReadsWhatItPrints) {
  for (const char* text : {"192.0.2.1:18515", "[2001:db8::1]:18515", "0.0.0.0:0", "[::]:65535"}) {
    EXPECT_EQ(good(text).text(), text);
  }
}

TEST(SocketAddress, TakesThePortOfTheTextBeforeTheDefault) {
  EXPECT_EQ(good("192.0.2.1", 7).port(), 7);
  EXPECT_EQ(good("192.0.2.1:9", 7).port(), 9);
  EXPECT_EQ(good("[::1]", 7).port(), 7);
  EXPECT_EQ(good("2001:db8::1", 7).text(), "[2001:db8::1]:7");
  EXPECT_EQ(good("localhost:9").port(), 9);
}

TEST(SocketAddress, PortAloneMeansAnyAddress) {
  const SocketAddress any = good(":18515");
  EXPECT_TRUE(any.is_any());
  EXPECT_EQ(any.family(), AF_INET);
  EXPECT_EQ(any.port(), 18515);
}

TEST(SocketAddress, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "192.0.2.1:", "192.0.2.1:65536", "192.0.2.1:x", "192.0.2.1:-1",
                           "[::1", "[::1]x", "[::1]:", "[]:1", "[192.0.2.1]:1"}) {
    const auto parsed = SocketAddress::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error(), Error::kInvalidArgument) << text;
  }
}

TEST(SocketAddress, NameWithoutAddressIsNotFound) {
  const auto parsed = SocketAddress::parse("no-such-host.invalid:1");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error(), Error::kNotFound);
}

TEST(SocketAddress, KnowsLoopback) {
  EXPECT_TRUE(good("127.0.0.1").is_loopback());
  EXPECT_TRUE(good("127.255.0.9").is_loopback());
  EXPECT_TRUE(good("[::1]").is_loopback());
  EXPECT_TRUE(good("[::ffff:127.0.0.1]").is_loopback());
  EXPECT_FALSE(good("128.0.0.1").is_loopback());
  EXPECT_FALSE(good("[::2]").is_loopback());
  EXPECT_FALSE(good("[::ffff:192.0.2.1]").is_loopback());
  EXPECT_FALSE(good("0.0.0.0").is_loopback());
}

TEST(SocketAddress, IsAnyAlsoAsIPv4Mapped) {
  EXPECT_TRUE(good("[::ffff:0.0.0.0]").is_any());
  EXPECT_FALSE(good("[::ffff:0.0.0.1]").is_any());
}

TEST(SocketAddress, DefaultHasNoFamily) {
  const SocketAddress nothing;
  EXPECT_EQ(nothing.family(), AF_UNSPEC);
  EXPECT_EQ(nothing.port(), 0);
  EXPECT_FALSE(nothing.is_any());
  EXPECT_FALSE(nothing.is_loopback());
}

TEST(SocketAddress, SizeFitsTheFamily) {
  EXPECT_EQ(good("192.0.2.1").size(), sizeof(sockaddr_in));
  EXPECT_EQ(good("[::1]").size(), sizeof(sockaddr_in6));
}

TEST(SocketAddress, CopiesASockaddr) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(80);
  in.sin_addr.s_addr = htonl(0xc0000201);
  SocketAddress address(reinterpret_cast<sockaddr*>(&in), sizeof in);
  EXPECT_EQ(address.text(), "192.0.2.1:80");
  address.set_port(81);
  EXPECT_EQ(address.text(), "192.0.2.1:81");
}

}  // namespace
}  // namespace weft
