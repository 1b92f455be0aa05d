#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "io/socket.h"

namespace weft::io {
namespace {

bool wait_for(int fd, short events) {
  pollfd p{fd, events, 0};
  return poll(&p, 1, 5000) == 1;
}

struct Connected {
  explicit Connected(const char* where = "127.0.0.1:0", const Config& config = {},
                     bool loopback = true) {
    const SocketAddress local = *SocketAddress::parse(where);
    os::Fd listener = *open_socket(local.family());
    EXPECT_TRUE(bind_socket(listener.get(), local, false, false));
    EXPECT_TRUE(listen_socket(listener.get()));
    active = *open_socket(local.family());
    tune_before_connect(active.get(), config);
    EXPECT_TRUE(begin_connect(active.get(), local_address(listener.get())));
    EXPECT_TRUE(wait_for(active.get(), POLLOUT));
    EXPECT_TRUE(take_error(active.get()));
    EXPECT_TRUE(wait_for(listener.get(), POLLIN));
    passive = *accept_socket(listener.get(), peer);
    tune_connected(active.get(), config, loopback);
    tune_connected(passive.get(), config, loopback);
  }
  os::Fd active, passive;
  SocketAddress peer;
};

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(getsockopt(fd, level, name, &value, &size), 0);
  return value;
}

TEST(Socket, IsNonBlockingAndClosedOnExec) {
  const Connected c;
  for (const int fd : {c.active.get(), c.passive.get()}) {
    EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
  }
}

TEST(Socket, AddressesOfBothEndsAgree) {
  for (const char* where : {"127.0.0.1:0", "[::1]:0"}) {
    const Connected c(where);
    EXPECT_EQ(local_address(c.active.get()).text(), c.peer.text());
    EXPECT_EQ(peer_address(c.passive.get()).text(), c.peer.text());
    EXPECT_EQ(peer_address(c.active.get()).text(), local_address(c.passive.get()).text());
    EXPECT_TRUE(is_loopback_path(local_address(c.active.get()), peer_address(c.active.get())));
  }
}

TEST(Socket, LoopbackPathIsAnyPathInsideTheMachine) {
  const auto address = [](const char* text) { return *SocketAddress::parse(text); };
  EXPECT_TRUE(is_loopback_path(address("192.0.2.1:1"), address("192.0.2.1:2")));
  EXPECT_TRUE(is_loopback_path(address("[2001:db8::1]:1"), address("[2001:db8::1]:2")));
  EXPECT_FALSE(is_loopback_path(address("192.0.2.1:1"), address("192.0.2.2:1")));
  EXPECT_FALSE(is_loopback_path(address("[2001:db8::1]:1"), address("[2001:db8::2]:1")));
}

TEST(Socket, CongestionControlIsTheConfiguredOneWhereTheKernelAllows) {
  Config config;
  config.loopback_congestion = "keep";
  const std::string system = congestion_control(Connected("127.0.0.1:0", config).active.get());
  EXPECT_FALSE(system.empty());
  config.loopback_congestion = "no-such-control";
  EXPECT_EQ(congestion_control(Connected("127.0.0.1:0", config).active.get()), system);
  config.loopback_congestion = "reno";
  EXPECT_EQ(congestion_control(Connected("127.0.0.1:0", config).active.get()), "reno");
}

TEST(Socket, BuffersAreLeftToTheKernelUnlessConfigured) {
  const int untouched = option(Connected().active.get(), SOL_SOCKET, SO_RCVBUF);
  Config config;
  config.socket_buffer_bytes = 100U << 10U;
  const Connected c("127.0.0.1:0", config);
  // The kernel doubles what it is told.
  EXPECT_EQ(option(c.active.get(), SOL_SOCKET, SO_RCVBUF), 200 << 10);
  EXPECT_NE(untouched, 200 << 10);
}

TEST(Socket, SendBuffersFitTheCachesInsideAMachineAndAreTheKernelsElsewhere) {
  const Connected c;
  const int bounded = option(c.active.get(), SOL_SOCKET, SO_SNDBUF);
  EXPECT_EQ(bounded, 2 * (192 << 10));
  Connected far("127.0.0.1:0", {}, false);
  EXPECT_NE(option(far.active.get(), SOL_SOCKET, SO_SNDBUF), bounded);
  Config config;
  config.socket_buffer_bytes = 100U << 10U;
  const Connected chosen("127.0.0.1:0", config);
  EXPECT_EQ(option(chosen.active.get(), SOL_SOCKET, SO_SNDBUF), 200 << 10);
}

TEST(Socket, KeepaliveProbesBeginBeforeTheLimitAndNeverEndTheConnectionThemselves) {
  Config config;
  config.keepalive = std::chrono::seconds(30);
  config.user_timeout = std::chrono::seconds(7);
  const Connected on("127.0.0.1:0", config);
  const int fd = on.active.get();
  EXPECT_EQ(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  const int idle = option(fd, IPPROTO_TCP, TCP_KEEPIDLE);
  const int interval = option(fd, IPPROTO_TCP, TCP_KEEPINTVL);
  EXPECT_LE(idle + interval, 30);
  EXPECT_GT(idle + interval * option(fd, IPPROTO_TCP, TCP_KEEPCNT), 30);
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  config.keepalive = config.user_timeout = std::chrono::seconds(0);
  const Connected off("127.0.0.1:0", config);
  EXPECT_EQ(option(off.active.get(), SOL_SOCKET, SO_KEEPALIVE), 0);
}

TEST(Socket, AcceptedOnesInheritWhatTheirListenerHas) {
  Config config;
  config.keepalive = std::chrono::seconds(30);
  const SocketAddress local = *SocketAddress::parse("127.0.0.1:0");
  const os::Fd listener = *open_socket(local.family());
  ASSERT_TRUE(bind_socket(listener.get(), local, false, false));
  tune_listening(listener.get(), config);
  ASSERT_TRUE(listen_socket(listener.get()));
  const os::Fd active = *open_socket(local.family());
  ASSERT_TRUE(begin_connect(active.get(), local_address(listener.get())));
  ASSERT_TRUE(wait_for(listener.get(), POLLIN));
  SocketAddress peer;
  const os::Fd passive = *accept_socket(listener.get(), peer);
  EXPECT_EQ(tune_accepted(passive.get(), config, true), config.loopback_congestion);
  tune_connected(active.get(), config, true);
  for (const int name : {TCP_NODELAY, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT}) {
    EXPECT_EQ(option(passive.get(), IPPROTO_TCP, name), option(active.get(), IPPROTO_TCP, name))
        << name;
  }
  for (const int name : {SO_KEEPALIVE, SO_SNDBUF}) {
    EXPECT_EQ(option(passive.get(), SOL_SOCKET, name), option(active.get(), SOL_SOCKET, name))
        << name;
  }
  EXPECT_EQ(option(passive.get(), IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(congestion_control(passive.get()), congestion_control(active.get()));
}

TEST(Socket, AKeepaliveShorterThanOneProbeLastsAsLongAsThat) {
  EXPECT_EQ(keepalive_limit(std::chrono::seconds(6)), std::chrono::seconds(6));
  EXPECT_EQ(keepalive_limit(std::chrono::milliseconds(200)), std::chrono::seconds(2));
}

TEST(Socket, EffectiveMssIsThatOfTheLoopbackDevice) {
  const Connected c;
  // Far above that of a network, though at first bounded by half the window.
  EXPECT_GT(effective_mss(c.active.get()), 16384U);
  EXPECT_LT(effective_mss(c.active.get()), 65536U);
}

TEST(Socket, ResetReachesThePeerEvenThroughASecondDescriptor) {
  Connected c;
  const os::Fd duplicate(dup(c.active.get()));
  close_with_reset(std::move(c.active));
  ASSERT_TRUE(wait_for(c.passive.get(), POLLIN));
  char octet = 0;
  EXPECT_EQ(recv(c.passive.get(), &octet, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST(Socket, RefusedConnectionIsTold) {
  SocketAddress nobody;
  {
    const os::Fd fd = *open_socket(AF_INET);
    ASSERT_TRUE(bind_socket(fd.get(), *SocketAddress::parse("127.0.0.1:0"), false, false));
    nobody = local_address(fd.get());
  }
  const os::Fd fd = *open_socket(AF_INET);
  auto outcome = begin_connect(fd.get(), nobody);
  if (outcome) {
    ASSERT_TRUE(wait_for(fd.get(), POLLOUT));
    outcome = take_error(fd.get());
  }
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error(), Error::kRefused);
}

TEST(Socket, TakenPortAndForeignAddressAreTold) {
  const os::Fd first = *open_socket(AF_INET);
  ASSERT_TRUE(bind_socket(first.get(), *SocketAddress::parse("127.0.0.1:0"), false, false));
  const os::Fd second = *open_socket(AF_INET);
  const auto taken = bind_socket(second.get(), local_address(first.get()), false, false);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error(), Error::kAddressInUse);
  const auto foreign =
      bind_socket(second.get(), *SocketAddress::parse("192.0.2.1:0"), false, false);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error(), Error::kInvalidArgument);
}

TEST(Socket, NobodyWaitingToBeAcceptedIsATimeout) {
  const os::Fd fd = *open_socket(AF_INET);
  ASSERT_TRUE(bind_socket(fd.get(), *SocketAddress::parse("127.0.0.1:0"), false, false));
  ASSERT_TRUE(listen_socket(fd.get()));
  SocketAddress peer;
  const auto nobody = accept_socket(fd.get(), peer);
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error(), Error::kTimedOut);
}

TEST(Socket, UnacknowledgedOctetsAreCounted) {
  const Connected c;
  EXPECT_EQ(unacknowledged(c.active.get()), 0U);
  ASSERT_EQ(send(c.active.get(), "x", 1, 0), 1);
  ASSERT_TRUE(wait_for(c.passive.get(), POLLIN));
  for (int i = 0; i < 1000 && unacknowledged(c.active.get()) != 0; ++i) usleep(1000);
  EXPECT_EQ(unacknowledged(c.active.get()), 0U);
}

}  // namespace
}  // namespace weft::io
