// The calls of <sys/exs.h> on sockets in IWARP mode (<weft/sockets.h>): ordinary sockets of a
// program under `weft run --sockets`, whose stream goes over RDMA. Both ends in this process.
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include <weft/sockets.h>

#include <cstdio>
#include <memory>
#include <numeric>
#include <thread>

#include "exs_support.h"

namespace weft::exs_test {
namespace {

int iwarp_socket() {
  EXPECT_EQ(exs_init(EXS_VERSION), 0);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  EXPECT_EQ(::setsockopt(fd, SOL_RDMA, WEFT_MODE, &on, sizeof on), 0) << std::strerror(errno);
  return fd;
}

bool by_rdma(int fd) {
  int on = 0;
  socklen_t length = sizeof on;
  return ::getsockopt(fd, SOL_RDMA, WEFT_MODE, &on, &length) == 0 && on == 1;
}

std::vector<std::uint8_t> pattern(std::size_t length) {
  std::vector<std::uint8_t> out(length);
  std::uint32_t value = 1;
  for (auto& octet : out) octet = static_cast<std::uint8_t>((value = value * 1664525 + 7) >> 24U);
  return out;
}

class ExsIwarp : public ::testing::Test {
 protected:
  // By the calls of the C library.
  void connect() {
    const int listener = iwarp_socket();
    Endpoint at = loopback(AF_INET);
    ASSERT_EQ(::bind(listener, at.get(), at.length), 0);
    ASSERT_EQ(::listen(listener, 4), 0);
    ASSERT_EQ(::getsockname(listener, at.get(), &at.length), 0);
    client = iwarp_socket();
    std::thread connecting([&] { EXPECT_EQ(::connect(client, at.get(), at.length), 0); });
    server = ::accept(listener, nullptr, nullptr);
    EXPECT_TRUE(by_rdma(server));
    connecting.join();
    ASSERT_TRUE(by_rdma(client));
    ::close(listener);
  }
  // The octets arrive, in order and in one piece.
  void check_transfer(int from, int to, std::size_t length) {
    const auto sent = pattern(length);
    std::vector<std::uint8_t> got(length);
    ASSERT_EQ(exs_recv(to, got.data(), length, MSG_WAITALL, queue, tag(1), kPlain), 0);
    ASSERT_EQ(exs_send(from, sent.data(), length, 0, queue, tag(2), kPlain), 0);
    for (int i = 0; i < 2; ++i) {
      const exs_event_t event = next_event(queue);
      EXPECT_EQ(event.error, 0) << std::strerror(event.error);
      EXPECT_EQ(event.u.xfer.length, length);
    }
    EXPECT_TRUE(got == sent);
  }
  void TearDown() override {
    for (const int fd : {client, server}) {
      if (fd >= 0) close_now(fd);
    }
    EXPECT_EQ(exs_qdelete(queue), 0) << std::strerror(errno);
  }

  int client = -1;
  int server = -1;
  exs_qhandle_t queue = (exs_init(EXS_VERSION), exs_qcreate(64));
};

TEST_F(ExsIwarp, OctetsGoBothWays) {
  connect();
  for (const std::size_t length : {std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20U}) {
    check_transfer(client, server, length);
    check_transfer(server, client, length);
  }
}

TEST_F(ExsIwarp, BlockingCallsAndPieces) {
  connect();
  char head[] = "head ";
  char tail[] = "and tail";
  exs_iovec_t pieces[2] = {{head, 5, kPlain}, {tail, 8, kPlain}};
  const exs_msghdr_t message{pieces, 2, 0};
  EXPECT_EQ(exs_sendmsg(client, &message, 0, kBlock, 0), 13);
  char got[13];
  EXPECT_EQ(exs_recv(server, got, sizeof got, MSG_WAITALL, kBlock, 0, kPlain), 13);
  EXPECT_EQ(std::string(got, 13), "head and tail");
  // The calls of the C library see the same stream.
  EXPECT_EQ(::send(server, "plain", 5, 0), 5);
  EXPECT_EQ(exs_recv(client, got, 5, MSG_WAITALL, kBlock, 0, kPlain), 5);
  EXPECT_EQ(std::string(got, 5), "plain");
}

TEST_F(ExsIwarp, AFileIsSent) {
  connect();
  const auto content = pattern(300'000);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::tmpfile(), &std::fclose);
  ASSERT_EQ(std::fwrite(content.data(), 1, content.size(), file.get()), content.size());
  std::fflush(file.get());
  exs_xferfile_t part{};
  part.tag = EXS_FDVEC;
  part.u.fdvec = {::fileno(file.get()), 1000, content.size() - 1000};
  std::vector<std::uint8_t> got(content.size() - 1000);
  ASSERT_EQ(exs_recv(server, got.data(), got.size(), MSG_WAITALL, queue, tag(1), kPlain), 0);
  ASSERT_EQ(exs_sendfile(client, &part, 1, 0, queue, tag(2)), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(next_event(queue).error, 0);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), content.begin() + 1000));
}

TEST_F(ExsIwarp, ConnectsAndAccepts) {
  const int listener = iwarp_socket();
  Endpoint at = loopback(AF_INET);
  ASSERT_EQ(exs_bind(listener, at.get(), at.length), 0);
  ASSERT_EQ(exs_listen(listener, 4), 0);
  ASSERT_EQ(exs_getsockname(listener, at.get(), &at.length), 0);
  client = iwarp_socket();
  ASSERT_EQ(exs_accept(listener, nullptr, 0, 0, queue, tag(1)), 0);
  ASSERT_EQ(exs_connect(client, at.get(), at.length, 0, queue, tag(2)), 0);
  for (int i = 0; i < 2; ++i) {
    const exs_event_t event = next_event(queue);
    EXPECT_EQ(event.error, 0) << std::strerror(event.error);
    if (event.type == EXS_EVT_ACCEPT) server = event.u.accept.fd;
  }
  ASSERT_GE(server, 0);
  check_transfer(client, server, 100'000);
  check_transfer(server, client, 100'000);
  EXPECT_TRUE(by_rdma(client));
  EXPECT_TRUE(by_rdma(server));
  close_now(listener);
}

TEST_F(ExsIwarp, TheEndAndItsEvents) {
  connect();
  char octet = 'x';
  ASSERT_EQ(exs_recv(server, &octet, 1, 0, queue, tag(1), kPlain), 0);
  ASSERT_EQ(exs_shutdown(client, EXS_SHUT_WR, queue, tag(2)), 0);
  for (int i = 0; i < 2; ++i) {
    const exs_event_t event = next_event(queue);
    EXPECT_EQ(event.error, 0);
    EXPECT_EQ(event.type == EXS_EVT_RECV ? event.u.xfer.length : 0, 0U);
  }
  check_transfer(server, client, 20'000);  // the other half goes on
  ASSERT_EQ(exs_close(client, queue, tag(3)), 0);
  EXPECT_EQ(next_event(queue).type, EXS_EVT_CLOSE);
  client = -1;
  EXPECT_EQ(exs_recv(server, &octet, 1, 0, kBlock, 0, kPlain), 0);
}

TEST_F(ExsIwarp, PollAndCancel) {
  connect();
  exs_pollfd_t one{server, EXS_POLLIN, 0};
  ASSERT_EQ(exs_poll(&one, 1, 0, queue, tag(1)), 0);
  ASSERT_EQ(::send(client, "x", 1, 0), 1);
  const exs_event_t ready = next_event(queue);
  EXPECT_EQ(ready.type, EXS_EVT_POLL);
  EXPECT_EQ(one.revents & EXS_POLLIN, EXS_POLLIN);
  char octets[2];
  ASSERT_EQ(exs_recv(server, octets, 2, MSG_WAITALL, queue, tag(2), kPlain), 0);
  ASSERT_EQ(exs_cancel(server, EXS_CAF_FILDES, 0), 0);
  EXPECT_EQ(next_event(queue).error, ECANCELED);
}

TEST_F(ExsIwarp, BesideMappedMemory) {
  connect();
  std::vector<char> room(4096, '.');
  ASSERT_EQ(::riomap(server, room.data(), room.size(), PROT_WRITE, 0, 0), 0)
      << std::strerror(errno);
  char word = 'r';
  ASSERT_EQ(exs_send(server, &word, 1, 0, kBlock, 0, kPlain), 1);
  ASSERT_EQ(exs_recv(client, &word, 1, 0, kBlock, 0, kPlain), 1);
  ASSERT_EQ(::riowrite(client, "written past it", 15, 100, 0), 15U);
  ASSERT_EQ(exs_send(client, &word, 1, 0, kBlock, 0, kPlain), 1);
  ASSERT_EQ(exs_recv(server, &word, 1, 0, kBlock, 0, kPlain), 1);
  EXPECT_EQ(std::string(&room[100], 15), "written past it");
  // exs_write and its sisters need a socket of exs_socket().
  const exs_mhandle_t memory = exs_mregister(room.data(), room.size(), 0);
  exs_mname_t name;
  EXPECT_ERRNO(exs_mexport(server, memory, room.data(), room.size(), EXS_MEXPORT_READ, &name),
               EOPNOTSUPP);
  EXPECT_EQ(exs_mderegister(memory), 0);
}

}  // namespace
}  // namespace weft::exs_test
