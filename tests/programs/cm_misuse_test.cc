// rdma_cm when programs, or their peers, do what they should not, and calls that mean little on
// iWARP.

#include <fcntl.h>
#include <rdma/rsocket.h>
#include <unistd.h>

#include "abi_support.h"

namespace weft::abi {
namespace {

rdma_cm_id* bound_id(const ChannelPtr& channel, const char* address = "127.0.0.1") {
  rdma_cm_id* id = nullptr;
  auto local = v4(address, 0);
  EXPECT_EQ(rdma_create_id(channel.get(), &id, nullptr, RDMA_PS_TCP), 0);
  EXPECT_EQ(rdma_bind_addr(id, generic(local)), 0);
  return id;
}

// An id that has a device: resolved, since a loopback address that it is bound to names none.
rdma_cm_id* id_with_device(const ChannelPtr& channel) {
  rdma_cm_id* id = nullptr;
  auto peer = v4("127.0.0.1", 9);
  EXPECT_EQ(rdma_create_id(channel.get(), &id, nullptr, RDMA_PS_TCP), 0);
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 2000), 0);
  EXPECT_EQ(NextEvent(channel.get()).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
  return id;
}

void expect_usable(const ChannelPtr& channel) {
  rdma_cm_id* id = id_with_device(channel);
  ASSERT_NE(id->verbs, nullptr);
  ASSERT_NE(id->pd, nullptr);
  ibv_qp_init_attr attr = rc_attributes(nullptr);
  EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0) << strerror(errno);
  if (id->qp != nullptr) rdma_destroy_qp(id);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(CmMisuse, AProgramThatClosesTheContextOfItsIdsGetsANewOne) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = id_with_device(channel);
  ASSERT_NE(id->verbs, nullptr);
  EXPECT_EQ(ibv_close_device(id->verbs), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
  expect_usable(channel);
}

TEST(CmMisuse, AProgramThatFreesTheDomainOfItsIdsGetsANewOne) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = id_with_device(channel);
  ASSERT_NE(id->pd, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(id->pd), 0);
  ibv_qp_init_attr attr = rc_attributes(nullptr);
  EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(id->send_cq, nullptr);  // nothing is left behind
  EXPECT_EQ(rdma_destroy_id(id), 0);
  expect_usable(channel);
}

TEST(CmMisuse, AnIdThatCouldNotBeResolvedKeepsItsPort) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = bound_id(channel, "0.0.0.0");
  const std::uint16_t port = rdma_get_src_port(id);
  auto everybody = v4("255.255.255.255", 1000);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(everybody), 1000), 0);
  NextEvent failed(channel.get());
  EXPECT_EQ(failed.type(), RDMA_CM_EVENT_ADDR_ERROR);
  EXPECT_LT(failed.status(), 0);
  failed.ack();
  EXPECT_EQ(rdma_listen(id, 1), 0);
  EXPECT_EQ(rdma_get_src_port(id), port);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(CmMisuse, ABoundIdResolvesFromWhereItIsBound) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = bound_id(channel);
  const std::uint16_t port = rdma_get_src_port(id);
  auto elsewhere = v4("192.0.2.77", 0);
  auto peer = v4("127.0.0.1", 1000);
  ASSERT_EQ(rdma_resolve_addr(id, generic(elsewhere), generic(peer), 1000), 0);
  NextEvent resolved(channel.get());
  EXPECT_EQ(resolved.type(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(rdma_get_src_port(id), port);
  resolved.ack();
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(CmMisuse, AcceptingNeedsAQpAndDataWithALengthNeedsData) {
  Listening server;
  Calling client(server.port);
  client.make_qp();
  rdma_conn_param params{};
  params.private_data_len = 4;
  EXPECT_EQ(rdma_connect(client.id, &params), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_connect(client.id, nullptr), 0);
  NextEvent request(server.channel.get());
  ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(rdma_accept(request.id(), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_cm_id* child = request.id();
  request.ack();
  EXPECT_EQ(rdma_destroy_id(child), 0);
  EXPECT_EQ(NextEvent(client.channel.get()).type(), RDMA_CM_EVENT_REJECTED);
}

TEST(CmMisuse, AcceptingAPeerThatHasGoneFails) {
  Listening server;
  rdma_cm_id* child = nullptr;
  {
    Calling client(server.port);
    client.make_qp();
    EXPECT_EQ(rdma_connect(client.id, nullptr), 0);
    NextEvent request(server.channel.get());
    ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    child = request.id();
  }
  ibv_qp_init_attr attr = rc_attributes(nullptr);
  ASSERT_EQ(rdma_create_qp(child, nullptr, &attr), 0);
  // Either at once, or, when the news is still on its way, by an event.
  if (rdma_accept(child, nullptr) == 0) {
    NextEvent outcome(server.channel.get());
    if (outcome.type() == RDMA_CM_EVENT_ESTABLISHED) {
      outcome.ack();
      EXPECT_EQ(NextEvent(server.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
    } else {
      EXPECT_TRUE(outcome.type() == RDMA_CM_EVENT_CONNECT_ERROR ||
                  outcome.type() == RDMA_CM_EVENT_DISCONNECTED)
          << outcome.type();
    }
  }
  rdma_destroy_qp(child);
  EXPECT_EQ(rdma_destroy_id(child), 0);
}

TEST(CmMisuse, AnEventIsAcknowledgedOnce) {
  Listening server;
  Calling client(server.port);
  EXPECT_EQ(rdma_disconnect(client.id), -1);
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  auto peer = v4("127.0.0.1", server.port);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 1000), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel.get(), &event), 0);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  EXPECT_EQ(rdma_ack_cm_event(event), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// As in the kernel: libfabric binds "localhost" to learn that it should listen everywhere.
TEST(CmMisuse, ALoopbackAddressNamesNoDeviceUntilAConnectionComes) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = bound_id(channel);
  EXPECT_EQ(id->verbs, nullptr);
  EXPECT_NE(rdma_get_src_port(id), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(CmMisuse, QpsNeedADeviceAndComeOncePerId) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  ibv_qp_init_attr attr = rc_attributes(nullptr);
  EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_destroy_qp(id);  // there is none: nothing happens
  auto peer = v4("127.0.0.1", 9);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 2000), 0);
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
  ibv_qp* first = id->qp;
  EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(id->qp, first);
  rdma_destroy_qp(id);
  EXPECT_EQ(id->send_cq, nullptr);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(CmMisuse, WhatIwarpDoesNotHaveIsRefusedOrEmpty) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = bound_id(channel);
  auto group = v4("239.1.1.1", 0);
  EXPECT_EQ(rdma_join_multicast(id, generic(group), nullptr), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(rdma_leave_multicast(id, generic(group)), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_ece ece{1, 2, 3};
  EXPECT_EQ(rdma_set_local_ece(id, &ece), 0);
  EXPECT_EQ(rdma_get_remote_ece(id, &ece), 0);
  EXPECT_EQ(ece.vendor_id, 0U);
  EXPECT_EQ(rdma_notify(id, IBV_EVENT_COMM_EST), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
  EXPECT_EQ(rdma_notify(id, IBV_EVENT_COMM_EST), -1);
}

TEST(CmMisuse, RpollWorksOnPlainDescriptors) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pollfd one{ends[0], POLLIN, 0};
  EXPECT_EQ(rpoll(&one, 1, 0), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_EQ(rpoll(&one, 1, 0), 1);
  EXPECT_EQ(one.revents, POLLIN);
  close(ends[0]);
  close(ends[1]);
}

TEST(CmMisuse, RsocketCallsAnswerAsLinuxDoesForTcp) {
  EXPECT_EQ(rsocket(AF_UNIX, SOCK_STREAM, 0), -1);
  EXPECT_EQ(errno, EAFNOSUPPORT);
  EXPECT_EQ(rsocket(AF_INET, SOCK_RAW, 0), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  EXPECT_EQ(rclose(-1), -1);
  EXPECT_EQ(errno, EBADF);
  const int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(rfcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  EXPECT_EQ(raccept(fd, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  char octet = 0;
  EXPECT_EQ(rrecv(fd, &octet, 1, 0), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(rsend(fd, &octet, 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(rshutdown(fd, SHUT_WR), -1);
  EXPECT_EQ(errno, ENOTCONN);
  int value = 8;
  EXPECT_EQ(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &value, sizeof value), 0);
  EXPECT_EQ(rsetsockopt(fd, SOL_RDMA, 99, &value, sizeof value), -1);
  EXPECT_EQ(errno, ENOPROTOOPT);
  socklen_t length = sizeof value;
  EXPECT_EQ(rgetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &value, &length), 0);
  EXPECT_EQ(value, 384);
  EXPECT_EQ(rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length), 0);
  EXPECT_EQ(value, SOCK_STREAM);
  EXPECT_EQ(rclose(fd), 0);
}

}  // namespace
}  // namespace weft::abi
