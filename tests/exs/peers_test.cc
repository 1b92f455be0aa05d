// Who is at the other end: settings, names, peers that have only TCP, plain sockets.
#include <poll.h>

#include <atomic>
#include <thread>

#include "../support/quiet_port.h"
#include "exs_support.h"

namespace weft::exs_test {
namespace {

TEST(Peers, SettingsBelongBeforeTheConnection) {
  const int fd = new_socket(kStream);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_SETIMMEDIATE, 1000), 0);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_GETIMMEDIATE, 0), 1000);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_SETCREDITS, 8), 0);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_GETCREDITS, 0), 8);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_SETRING, 8192), 0);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_GETRING, 0), 8192);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETIMMEDIATE, 2049), EINVAL);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETRING, 3999), EINVAL);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETCREDITS, 7), EINVAL);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETPROVIDER, 9), EINVAL);
  EXPECT_ERRNO(exs_fcntl(fd, 424242, 0), EINVAL);
  int type = 0;
  socklen_t length = sizeof type;
  EXPECT_EQ(exs_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length), 0);
  EXPECT_EQ(type, SOCK_STREAM);
  int ordered = 0;
  EXPECT_EQ(exs_setsockopt(fd, SOL_SOCKET, SO_ASYNC_RECV_ORDERED, &ordered, sizeof ordered), 0);
  EXPECT_EQ(exs_getsockopt(fd, SOL_SOCKET, SO_ASYNC_RECV_ORDERED, &ordered, &length), 0);
  EXPECT_EQ(ordered, 1);
  EXPECT_EQ(exs_close(fd, kBlock, 0), 0);
  Pair pair(kStream);
  EXPECT_ERRNO(exs_fcntl(pair.left, EXS_F_SETRING, 8192), EISCONN);
  EXPECT_EQ(exs_fcntl(pair.left, EXS_F_GETPROVIDER, 0), EXS_PROVIDER_RDMA);
}

TEST(Peers, TheSmallestSettingsWork) {
  for (const Way& way : {kStream, kPacket}) {
    Pair pair(way, {{EXS_F_SETIMMEDIATE, 0}, {EXS_F_SETRING, 4096}, {EXS_F_SETCREDITS, 8}});
    Buffer out(100'000, 1);
    Buffer in(100'000, 2);
    ASSERT_EQ(exs_recv(pair.right, in.data(), in.size(), MSG_WAITALL, pair.right_q, 0, in.mh), 0);
    ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, kBlock, 0, out.mh), 100'000);
    const exs_event_t got = next_event(pair.right_q);
    EXPECT_EQ(exs_evt_length(&got), 100'000U);
    EXPECT_EQ(in.bytes, out.bytes);
  }
}

TEST(Peers, NamesAreThoseOfTheConnection) {
  for (const Way& way : {kStream, kTcp}) {
    const Listener listener(way);
    const int fd = new_socket(way);
    Endpoint to = loopback(AF_INET, listener.port);
    Endpoint name;
    name.length = sizeof name.storage;
    EXPECT_ERRNO(exs_getpeername(fd, name.get(), &name.length), ENOTCONN);
    ASSERT_EQ(exs_connect(fd, to.get(), to.length, 0, kBlock, 0), 0) << std::strerror(errno);
    Endpoint peer;
    Endpoint local;
    exs_acceptaddr_t addresses[] = {{peer.get(), sizeof peer.storage},
                                    {local.get(), sizeof local.storage}};
    const int accepted = exs_accept(listener.fd, addresses, 2, 0, kBlock, 0);
    ASSERT_GE(accepted, 0);
    EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(&peer.storage)->sin_port), port_of(fd));
    EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(&local.storage)->sin_port), listener.port);
    ASSERT_EQ(exs_getpeername(fd, name.get(), &name.length), 0);
    EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(&name.storage)->sin_port), listener.port);
    close_now(fd);
    close_now(accepted);
  }
}

TEST(Peers, NobodyListens) {
  const weft::test::QuietPort port;
  for (const int provider : {EXS_PROVIDER_RDMA, EXS_PROVIDER_TCP, EXS_PROVIDER_AUTO}) {
    const int fd = new_socket({SOCK_STREAM, provider, AF_INET});
    Endpoint to = loopback(AF_INET, port.number());
    EXPECT_ERRNO(exs_connect(fd, to.get(), to.length, 0, kBlock, 0), ECONNREFUSED);
    EXPECT_EQ(exs_close(fd, kBlock, 0), 0);
  }
}

TEST(Peers, APeerWithAnotherTypeIsRefused) {
  const Listener listener(kStream);
  const int fd = new_socket(kPacket);
  Endpoint to = loopback(AF_INET, listener.port);
  EXPECT_ERRNO(exs_connect(fd, to.get(), to.length, 0, kBlock, 0), EPROTOTYPE);
  EXPECT_EQ(exs_close(fd, kBlock, 0), 0);
}

TEST(Peers, WithoutEXSAtTheOtherEndThereIsTCP) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  Endpoint any = loopback(AF_INET);
  ASSERT_EQ(bind(listener, any.get(), any.length), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(getsockname(listener, any.get(), &any.length), 0);
  const exs_qhandle_t q = exs_qcreate(4);
  const int fd = new_socket({SOCK_STREAM, EXS_PROVIDER_AUTO, AF_INET});
  ASSERT_EQ(exs_connect(fd, any.get(), any.length, 0, q, 0), 0);
  // The attempt by RDMA is a connection as well: a server of TCP closes what it cannot understand.
  std::thread server([listener] {
    const int first = accept(listener, nullptr, nullptr);
    close(first);
    const int second = accept(listener, nullptr, nullptr);
    EXPECT_EQ(write(second, "hello", 5), 5);
    close(second);
  });
  EXPECT_EQ(next_event(q).error, 0);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_GETPROVIDER, 0), EXS_PROVIDER_TCP);
  char text[5];
  EXPECT_EQ(exs_recv(fd, text, 5, MSG_WAITALL, kBlock, 0, kPlain), 5);
  EXPECT_EQ(std::memcmp(text, "hello", 5), 0);
  server.join();
  close_now(fd);
  close(listener);
  EXPECT_EQ(exs_qdelete(q), 0);
}

TEST(Peers, APlainSocketStaysPlainTCP) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  Endpoint any = loopback(AF_INET);
  ASSERT_EQ(bind(listener, any.get(), any.length), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(getsockname(listener, any.get(), &any.length), 0);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const exs_qhandle_t q = exs_qcreate(4);
  ASSERT_EQ(exs_connect(fd, any.get(), any.length, 0, q, tag(1)), 0) << std::strerror(errno);
  const int other = accept(listener, nullptr, nullptr);
  EXPECT_EQ(next_event(q).type, EXS_EVT_CONNECT);
  ASSERT_EQ(exs_send(fd, "abc", 3, 0, q, tag(2), kPlain), 0);
  char text[8] = {};
  ASSERT_EQ(read(other, text, sizeof text), 3);
  EXPECT_STREQ(text, "abc");
  EXPECT_EQ(next_event(q).ahandle, tag(2));
  ASSERT_EQ(write(other, "xy", 2), 2);
  ASSERT_EQ(exs_recv(fd, text, 2, MSG_WAITALL, kBlock, 0, kPlain), 2);
  // Its owner closes it; the number names another socket, which is a new one to the library.
  close(fd);
  const int again = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_ERRNO(exs_send(again, "abc", 3, 0, kBlock, 0, kPlain), ENOTCONN);
  close(again);
  close(other);
  close(listener);
  EXPECT_EQ(exs_qdelete(q), 0);
}

TEST(Peers, TwoThreadsMayBeTheFirstToUseAPlainSocket) {
  const Listener listener(kTcp);
  Endpoint to = loopback(AF_INET, listener.port);
  const exs_qhandle_t q = exs_qcreate(4);
  for (int round = 0; round < 200; ++round) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(fd, to.get(), to.length), 0);
    std::atomic<int> ready{0};
    const auto meet = [&ready] {
      ++ready;
      while (ready != 2) std::this_thread::yield();
    };
    std::thread sender([&] {
      meet();
      EXPECT_EQ(exs_send(fd, "x", 1, 0, kBlock, 0, kPlain), 1) << std::strerror(errno);
    });
    char byte = 0;
    meet();
    EXPECT_EQ(exs_recv(fd, &byte, 1, 0, q, tag(round), kPlain), 0) << std::strerror(errno);
    sender.join();
    close_now(fd);
    EXPECT_EQ(next_event(q).error, ECANCELED);
    if (HasFailure()) break;
    close_now(exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0));
  }
  EXPECT_EQ(exs_qdelete(q), 0);
}

// What it held of the library's is given back: a queue that its time limit names.
TEST(Peers, APlainSocketThatItsOwnerHasClosedHoldsNoQueue) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const exs_qhandle_t q = exs_qcreate(4);
  exs_timeout_t limit{};
  limit.tv.tv_sec = 100;
  limit.qhandle = q;
  ASSERT_EQ(exs_setsockopt(fd, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &limit, sizeof limit), 0);
  EXPECT_ERRNO(exs_qdelete(q), EBUSY);
  close(fd);
  const int again = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(again, fd);
  EXPECT_ERRNO(exs_send(again, "abc", 3, 0, kBlock, 0, kPlain), ENOTCONN);
  EXPECT_EQ(exs_qdelete(q), 0);
  EXPECT_EQ(close(again), 0);
}

// A receive without room for any of it.
TEST(Peers, AMessageOfWhichAPartWasDroppedIsNotGivenToTheNextReceive) {
  const Listener listener(kTcpPacket);
  const int plain = plain_client(listener.port);
  ASSERT_GE(plain, 0);
  const int fd = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_GE(fd, 0);
  const exs_qhandle_t q = exs_qcreate(4);
  ASSERT_EQ(exs_recv(fd, nullptr, 0, 0, q, tag(1), kPlain), 0);
  // The greeting, and half of a message of six bytes.
  const std::string begin("EXSP\0\0\0\1\0\0\0\6\0\0\0\0abc", 19);
  ASSERT_EQ(write(plain, begin.data(), begin.size()), 19);
  while (stats_of(fd).bytes_received != 3) std::this_thread::yield();
  ASSERT_EQ(exs_cancel(fd, EXS_CAF_FILDES, 0), 0);
  const std::string rest("def\0\0\0\2\0\0\0\0xy", 13);
  ASSERT_EQ(write(plain, rest.data(), rest.size()), 13);
  EXPECT_EQ(next_event(q).ahandle, tag(1));
  char text[8] = {};
  ASSERT_EQ(exs_recv(fd, text, sizeof text, 0, q, tag(2), kPlain), 0);
  const exs_event_t second = next_event(q);
  EXPECT_EQ(second.ahandle, tag(2));
  EXPECT_EQ(second.error, 0);
  EXPECT_EQ(exs_evt_length(&second), 2U);
  EXPECT_STREQ(text, "xy");
  close_now(fd);
  close(plain);
  EXPECT_EQ(exs_qdelete(q), 0);
}

// A connection over TCP to a plain socket, of which nothing more can be sent.
class FullConnection {
 public:
  FullConnection() : fd(new_socket(kTcpPacket)) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    Endpoint at = loopback(AF_INET);
    EXPECT_EQ(bind(listener, at.get(), at.length), 0);
    EXPECT_EQ(listen(listener, 4), 0);
    EXPECT_EQ(getsockname(listener, at.get(), &at.length), 0);
    EXPECT_EQ(exs_connect(fd, at.get(), at.length, 0, kBlock, 0), 0);
    plain = accept(listener, nullptr, nullptr);
    close(listener);
    const std::vector<char> filler(100'000, 'f');
    // The last ones singly: there may be room for less than poll() wants to see.
    pollfd room{fd, POLLOUT, 0};
    bool more = true;
    while (more) {
      more = poll(&room, 1, 20) == 1;
      for (ssize_t sent = 1; sent > 0; more = more || sent > 0) {
        sent = send(fd, filler.data(), more ? filler.size() : 1, MSG_DONTWAIT);
        if (sent > 0) bytes += static_cast<std::size_t>(sent);
      }
    }
  }
  ~FullConnection() {
    close_now(fd);
    close(plain);
    EXPECT_EQ(exs_qdelete(q), 0);
  }
  FullConnection(const FullConnection&) = delete;
  FullConnection& operator=(const FullConnection&) = delete;

  // Reads all that as the peer, and `length` octets behind it.
  std::string read_behind(std::size_t length) {
    std::string text(bytes + length, 0);
    EXPECT_EQ(recv(plain, text.data(), text.size(), MSG_WAITALL),
              static_cast<ssize_t>(text.size()));
    return text.substr(bytes);
  }

  int fd;
  int plain = -1;
  std::size_t bytes = 0;
  exs_qhandle_t q = exs_qcreate(4);
};

TEST(Peers, AMessageThatIsTakenBackBeforeItHasBegunLeavesNoHeaderBehind) {
  bool taken_back = false;
  const timeval now{0, 0};
  // The kernel may still find a little room.
  for (int round = 0; round < 50 && !taken_back; ++round) {
    FullConnection full;
    exs_event_t event;
    ASSERT_EQ(exs_send(full.fd, "0123456789", 10, 0, full.q, tag(1), kPlain), 0);
    ASSERT_EQ(exs_cancel(full.fd, EXS_CAF_FILDES, 0), 0);
    taken_back = exs_qdequeue(full.q, &event, 1, &now) == 1 && event.error == ECANCELED;
    if (!taken_back) continue;
    ASSERT_EQ(exs_send(full.fd, "abc", 3, 0, full.q, tag(2), kPlain), 0);
    EXPECT_EQ(full.read_behind(19), std::string("EXSP\0\0\0\1\0\0\0\3\0\0\0\0abc", 19));
    EXPECT_EQ(next_event(full.q).ahandle, tag(2));
  }
  EXPECT_TRUE(taken_back);
}

// It may be posted before it is known how the connection will be made.
TEST(Peers, APersistentSendEndsWhereTheConnectionTurnsOutToBeTCP) {
  const Listener listener(kTcpPacket);
  const exs_qhandle_t q = exs_qcreate(4);
  const int fd = new_socket(kTcpPacket);
  Endpoint to = loopback(AF_INET, listener.port);
  ASSERT_EQ(exs_connect(fd, to.get(), to.length, 0, q, tag(1)), 0);
  // The connection may stand already: then the call itself says so.
  const bool posted = exs_send(fd, "lasting", 7, EXS_PERSISTENT, q, tag(2), kPlain) == 0;
  ASSERT_TRUE(posted || errno == EOPNOTSUPP);
  ASSERT_EQ(exs_send(fd, "once", 4, 0, q, tag(3), kPlain), 0);
  EXPECT_EQ(next_event(q).ahandle, tag(1));
  if (posted) {
    const exs_event_t refused = next_event(q);
    EXPECT_EQ(refused.ahandle, tag(2));
    EXPECT_EQ(refused.error, EOPNOTSUPP);
  }
  EXPECT_EQ(next_event(q).ahandle, tag(3));
  const int accepted = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  char text[8] = {};
  EXPECT_EQ(exs_recv(accepted, text, sizeof text, 0, kBlock, 0, kPlain), 4);
  EXPECT_STREQ(text, "once");
  close_now(fd);
  close_now(accepted);
  EXPECT_EQ(exs_qdelete(q), 0);
}

// A listener over RDMA takes peers that have only TCP at a second port.
TEST(Peers, AListenerHasAPortForPeersWithOnlyTCP) {
  const Listener listener(kStream, {{EXS_F_SETTCPPORT, EXS_TCPPORT_ANY}});
  const int port = exs_fcntl(listener.fd, EXS_F_GETTCPPORT, 0);
  ASSERT_GT(port, 0);
  EXPECT_NE(port, listener.port);
  const int plain = plain_client(port);
  ASSERT_GE(plain, 0);
  exs_pollfd_t ready{listener.fd, EXS_POLLIN, 0};
  ASSERT_EQ(exs_poll(&ready, 1, 0, kBlock, 0), 1);
  const int accepted = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_GE(accepted, 0);
  EXPECT_EQ(exs_fcntl(accepted, EXS_F_GETPROVIDER, 0), EXS_PROVIDER_TCP);
  char text[3];
  ASSERT_EQ(write(plain, "tcp", 3), 3);
  ASSERT_EQ(exs_recv(accepted, text, 3, MSG_WAITALL, kBlock, 0, kPlain), 3);
  EXPECT_EQ(std::memcmp(text, "tcp", 3), 0);
  // RDMA comes by the other port, before and after.
  const int fd = new_socket(kStream);
  Endpoint rdma = loopback(AF_INET, listener.port);
  ASSERT_EQ(exs_connect(fd, rdma.get(), rdma.length, 0, kBlock, 0), 0);
  const int second = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_GE(second, 0);
  EXPECT_EQ(exs_fcntl(second, EXS_F_GETPROVIDER, 0), EXS_PROVIDER_RDMA);
  close_now(accepted);
  close_now(second);
  close_now(fd);
  close(plain);
}

TEST(Peers, ThePortForTCPIsChecked) {
  const int fd = new_socket(kTcp);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETTCPPORT, 65536), EINVAL);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETTCPPORT, -2), EINVAL);
  // Over TCP a listener has one port.
  Endpoint any = loopback(AF_INET);
  ASSERT_EQ(exs_fcntl(fd, EXS_F_SETTCPPORT, 1), 0);
  ASSERT_EQ(exs_bind(fd, any.get(), any.length), 0);
  EXPECT_ERRNO(exs_listen(fd, 1), EOPNOTSUPP);
  ASSERT_EQ(exs_fcntl(fd, EXS_F_SETTCPPORT, EXS_TCPPORT_ANY), 0);
  ASSERT_EQ(exs_listen(fd, 1), 0);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_GETTCPPORT, 0), port_of(fd));
  EXPECT_EQ(exs_close(fd, kBlock, 0), 0);
}

TEST(Peers, AcceptIsPostedOnAPlainListenerThatBlocks) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  Endpoint at = loopback(AF_INET);
  ASSERT_EQ(::bind(listener, at.get(), at.length), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, at.get(), &at.length), 0);
  const exs_qhandle_t q = exs_qcreate(4);
  ASSERT_EQ(exs_accept(listener, nullptr, 0, 0, q, tag(1)), 0);  // returns before anybody connects
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(::connect(client, at.get(), at.length), 0);
  const exs_event_t event = next_event(q);
  ASSERT_EQ(event.type, EXS_EVT_ACCEPT);
  EXPECT_EQ(event.error, 0);
  ASSERT_EQ(::send(client, "x", 1, 0), 1);
  char got = 0;
  EXPECT_EQ(exs_recv(event.u.accept.fd, &got, 1, 0, kBlock, 0, kPlain), 1);
  EXPECT_EQ(got, 'x');
  close_now(event.u.accept.fd);
  ::close(client);
  close_now(listener);
  EXPECT_EQ(exs_qdelete(q), 0);
}

}  // namespace
}  // namespace weft::exs_test
