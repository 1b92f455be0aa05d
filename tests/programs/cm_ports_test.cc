// The ports of rdma_cm are a space of their own, on both kinds of device: a TCP listener of the
// program may have the same number, whichever comes first.
#include <sys/socket.h>
#include <unistd.h>

#include "abi_support.h"

namespace weft::abi {
namespace {

// A TCP listener of the program's own, on 127.0.0.1.
class OwnListener {
 public:
  explicit OwnListener(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int on = 1;  // connections of rdma_cm may linger there
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    auto address = v4("127.0.0.1", port);
    listening_ = bind(fd_, generic(address), sizeof address) == 0 && listen(fd_, 8) == 0;
    socklen_t size = sizeof address;
    getsockname(fd_, generic(address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~OwnListener() { close(fd_); }
  OwnListener(const OwnListener&) = delete;
  OwnListener& operator=(const OwnListener&) = delete;
  [[nodiscard]] bool listening() const { return listening_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Somebody has connected.
  [[nodiscard]] bool was_called() const { return readable(fd_, 0); }

 private:
  int fd_;
  bool listening_ = false;
  std::uint16_t port_ = 0;
};

rdma_conn_param parameters() {
  rdma_conn_param params{};
  params.responder_resources = 1;
  params.initiator_depth = 1;
  params.retry_count = 7;
  params.rnr_retry_count = 7;
  return params;
}

// A listener of rdma_cm on `port`, which has a QP for each caller.
void expect_connection(const Listening& server) {
  Calling client(server.port);
  client.connect();
  NextEvent request(server.channel.get());
  ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* const child = request.id();
  EXPECT_EQ(ntohs(rdma_get_src_port(child)), server.port);
  EXPECT_EQ(ntohs(rdma_get_dst_port(client.id)), server.port);
  ibv_qp_init_attr attr = rc_attributes(nullptr);
  ASSERT_EQ(rdma_create_qp(child, nullptr, &attr), 0);
  rdma_conn_param params = parameters();
  ASSERT_EQ(rdma_accept(child, &params), 0);
  request.ack();
  EXPECT_EQ(NextEvent(client.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(NextEvent(server.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  rdma_destroy_qp(child);
  rdma_destroy_id(child);
}

TEST(CmPorts, AListenerOfTheProgramMayHaveTheSameNumberBefore) {
  const OwnListener own(0);
  ASSERT_TRUE(own.listening());
  Listening server(16, own.port());
  ASSERT_EQ(server.port, own.port());
  expect_connection(server);
  EXPECT_FALSE(own.was_called());
}

TEST(CmPorts, AListenerOfTheProgramMayHaveTheSameNumberAfter) {
  // A number that TCP has free: on a RoCE-like device rdma_cm does not ask it.
  const std::uint16_t port = [] { return OwnListener(0).port(); }();
  const Listening server(16, port);
  ASSERT_EQ(server.port, port);
  expect_connection(server);
  const OwnListener own(port);
  ASSERT_TRUE(own.listening()) << std::strerror(errno);
  // Asked anew, however soon.
  expect_connection(server);
  EXPECT_FALSE(own.was_called());
}

TEST(CmPorts, TwoListenersOfRdmaCmMayNot) {
  const Listening server;
  const ChannelPtr channel = make_channel();
  rdma_cm_id* const other = make_id(channel.get());
  auto address = v4("127.0.0.1", server.port);
  EXPECT_EQ(rdma_bind_addr(other, generic(address)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_EQ(rdma_destroy_id(other), 0);
}

TEST(CmPorts, ANumberIsFreeAgainWhenItsListenerIsGone) {
  std::uint16_t port = 0;
  {
    const Listening first;
    port = first.port;
  }
  Listening second(16, port);
  EXPECT_EQ(second.port, port);
  expect_connection(second);
}

TEST(CmPorts, WhereNobodyListensTheCallerIsRefused) {
  std::uint16_t port = 0;
  {
    const Listening gone;
    port = gone.port;
  }
  Calling client(port);
  client.connect();
  EXPECT_EQ(NextEvent(client.channel.get()).type(), RDMA_CM_EVENT_REJECTED);
}

}  // namespace
}  // namespace weft::abi
