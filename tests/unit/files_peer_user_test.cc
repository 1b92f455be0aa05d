// Whose connection it is, by both ways of asking, over both families.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "files/server/peer_user.h"
#include "os/fd.h"

namespace weft::files {
namespace {

struct Connection {
  os::Fd listener, client, server;
  sockaddr_storage from{}, to{};  // as the server sees them
  [[nodiscard]] const sockaddr* client_address() const {
    return reinterpret_cast<const sockaddr*>(&from);
  }
  [[nodiscard]] const sockaddr* server_address() const {
    return reinterpret_cast<const sockaddr*>(&to);
  }
};

// A listener of IPv6 takes a client of IPv4 too. Nothing where this machine has no IPv6.
std::optional<Connection> connect_pair(int listen_family, int client_family) {
  Connection out;
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  const bool v6 = listen_family == AF_INET6;
  const auto* bound = v6 ? reinterpret_cast<sockaddr*>(&any) : reinterpret_cast<sockaddr*>(&any4);
  out.listener = os::Fd(socket(listen_family, SOCK_STREAM, 0));
  if (!out.listener || bind(out.listener.get(), bound, v6 ? sizeof any : sizeof any4) != 0 ||
      listen(out.listener.get(), 1) != 0) {
    return std::nullopt;
  }
  socklen_t length = sizeof out.to;
  getsockname(out.listener.get(), reinterpret_cast<sockaddr*>(&out.to), &length);
  sockaddr_in6 there6{};
  sockaddr_in there4{};
  const std::uint16_t port = v6 ? reinterpret_cast<sockaddr_in6*>(&out.to)->sin6_port
                                : reinterpret_cast<sockaddr_in*>(&out.to)->sin_port;
  there6.sin6_family = AF_INET6;
  there6.sin6_addr = in6addr_loopback;
  there4.sin_family = AF_INET;
  there4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  there6.sin6_port = there4.sin_port = port;
  out.client = os::Fd(socket(client_family, SOCK_STREAM, 0));
  const bool c6 = client_family == AF_INET6;
  const auto* there =
      c6 ? reinterpret_cast<sockaddr*>(&there6) : reinterpret_cast<sockaddr*>(&there4);
  if (connect(out.client.get(), there, c6 ? sizeof there6 : sizeof there4) != 0) {
    return std::nullopt;
  }
  length = sizeof out.from;
  out.server = os::Fd(accept(out.listener.get(), reinterpret_cast<sockaddr*>(&out.from), &length));
  length = sizeof out.to;
  getsockname(out.server.get(), reinterpret_cast<sockaddr*>(&out.to), &length);
  return out;
}

TEST(PeerUser, IsTheOneWhoConnectedWhateverTheFamily) {
  for (const auto& [listens, connects] :
       {std::pair{AF_INET, AF_INET}, std::pair{AF_INET6, AF_INET6}, std::pair{AF_INET6, AF_INET}}) {
    const auto pair = connect_pair(listens, connects);
    if (!pair) continue;  // no IPv6 here
    EXPECT_EQ(user_by_proc(pair->client_address(), pair->server_address()), geteuid());
    const auto by_netlink = user_by_netlink(pair->client_address(), pair->server_address());
    EXPECT_EQ(by_netlink.value_or(geteuid()), geteuid());
    EXPECT_EQ(PeerUsers().user_of(pair->client_address(), pair->server_address()), geteuid());
  }
}

TEST(PeerUser, IsFoundWhereTheServerHasAnotherPortThanItsClientsName) {
  const auto pair = connect_pair(AF_INET, AF_INET);
  ASSERT_TRUE(pair);
  sockaddr_in named = *reinterpret_cast<const sockaddr_in*>(&pair->to);
  named.sin_port = static_cast<std::uint16_t>(~named.sin_port);
  EXPECT_EQ(PeerUsers().user_of(pair->client_address(), reinterpret_cast<sockaddr*>(&named)),
            geteuid());
}

TEST(PeerUser, IsNobodyWhereTheConnectionHasEnded) {
  auto pair = connect_pair(AF_INET, AF_INET);
  ASSERT_TRUE(pair);
  pair->client = os::Fd();
  pair->server = os::Fd();
  EXPECT_FALSE(PeerUsers().user_of(pair->client_address(), pair->server_address()));
}

TEST(PeerUser, IsNobodyWhereThereIsNoSuchConnection) {
  const auto pair = connect_pair(AF_INET, AF_INET);
  ASSERT_TRUE(pair);
  sockaddr_in other = *reinterpret_cast<const sockaddr_in*>(&pair->from);
  other.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  EXPECT_FALSE(PeerUsers().user_of(reinterpret_cast<sockaddr*>(&other), pair->server_address()));
}

TEST(PeerUser, IsFoundOnAPortThatTheServerListensOnSinceItsLastLook) {
  PeerUsers users;
  const auto first = connect_pair(AF_INET, AF_INET);
  ASSERT_TRUE(first);
  EXPECT_EQ(users.user_of(first->client_address(), first->server_address()), geteuid());
  const auto second = connect_pair(AF_INET, AF_INET);
  ASSERT_TRUE(second);
  std::optional<uid_t> user;
  for (int i = 0; i < 100 && !user; ++i) {
    user = users.user_of(second->client_address(), second->server_address());
    usleep(10000);
  }
  EXPECT_EQ(user, geteuid());
}

}  // namespace
}  // namespace weft::files
