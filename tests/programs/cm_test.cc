// rdma_cm through its ABI: states, events and their accounting, private data, bad input.
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <future>

#include "../support/quiet_port.h"
#include "abi_support.h"

namespace weft::abi {
namespace {

std::string bytes(std::size_t count) {
  std::string text(count, '\0');
  for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<char>(i * 7);
  return text;
}

rdma_conn_param with_data(const std::string& data) {
  rdma_conn_param params{};
  params.private_data = data.data();
  params.private_data_len = static_cast<std::uint8_t>(data.size());
  params.responder_resources = 1;
  params.initiator_depth = 1;
  return params;
}

TEST(Cm, AChannelWithoutEventsObeysItsNonBlockingFlag) {
  const ChannelPtr channel = make_channel();
  ASSERT_NE(channel, nullptr);
  EXPECT_FALSE(readable(channel->fd, 0));
  ASSERT_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel.get(), &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Cm, PrivateDataArrivesExactlyInBothDirections) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{56}, std::size_t{255}}) {
    Listening server;
    Calling client(server.port);
    client.make_qp();
    const std::string question = bytes(size);
    rdma_conn_param params = with_data(question);
    ASSERT_EQ(rdma_connect(client.id, &params), 0);
    NextEvent request(server.channel.get());
    ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(request.data(), question);
    EXPECT_EQ(request.listener(), server.id);
    rdma_cm_id* child = request.id();
    EXPECT_EQ(child->context, &server);
    EXPECT_NE(child->verbs, nullptr);
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    ASSERT_EQ(rdma_create_qp(child, nullptr, &attr), 0);
    const std::string answer = bytes(255 - size);
    params = with_data(answer);
    ASSERT_EQ(rdma_accept(child, &params), 0);
    NextEvent established(client.channel.get());
    ASSERT_EQ(established.type(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(established.data(), answer);
    EXPECT_EQ(client.id->qp->state, IBV_QPS_RTS);
    request.ack();
    NextEvent accepted(server.channel.get());
    ASSERT_EQ(accepted.type(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(accepted.data(), "");
    accepted.ack();
    rdma_destroy_qp(child);
    rdma_destroy_id(child);
  }
}

TEST(Cm, ARejectionBringsItsReason) {
  Listening server;
  Calling client(server.port);
  client.connect();
  NextEvent request(server.channel.get());
  ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(rdma_reject(request.id(), "no room", 7), 0);
  EXPECT_EQ(rdma_reject(request.id(), "no room", 7), -1);  // answered already
  EXPECT_EQ(errno, EINVAL);
  NextEvent rejected(client.channel.get());
  ASSERT_EQ(rejected.type(), RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status(), -ECONNREFUSED);
  EXPECT_EQ(rejected.data(), "no room");
  rdma_cm_id* child = request.id();
  request.ack();
  EXPECT_EQ(rdma_destroy_id(child), 0);
}

TEST(Cm, APortWithoutAListenerRejects) {
  const weft::test::QuietPort port;
  Calling client(port.number());
  client.connect();
  NextEvent rejected(client.channel.get());
  EXPECT_EQ(rejected.type(), RDMA_CM_EVENT_REJECTED);
  EXPECT_LT(rejected.status(), 0);
}

TEST(Cm, AnUnansweredRequestIsRejectedWhenItsIdIsDestroyed) {
  Listening server;
  Calling client(server.port);
  client.connect();
  NextEvent request(server.channel.get());
  rdma_cm_id* child = request.id();
  request.ack();
  EXPECT_EQ(rdma_destroy_id(child), 0);
  EXPECT_EQ(NextEvent(client.channel.get()).type(), RDMA_CM_EVENT_REJECTED);
}

TEST(Cm, RequestsThatNobodyFetchedAreRejectedWithTheListener) {
  Listening server;
  Calling client(server.port);
  client.connect();
  ASSERT_TRUE(readable(server.channel->fd));
  EXPECT_EQ(rdma_destroy_id(server.id), 0);
  server.id = nullptr;
  EXPECT_FALSE(readable(server.channel->fd, 0));  // its event went with it
  EXPECT_EQ(NextEvent(client.channel.get()).type(), RDMA_CM_EVENT_REJECTED);
}

TEST(Cm, DestroyingAnIdWaitsForTheAcknowledgementOfItsEvents) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  auto peer = v4("127.0.0.1", 9);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 1000), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel.get(), &event), 0);
  auto destroyed = std::async(std::launch::async, [id] { return rdma_destroy_id(id); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  EXPECT_EQ(destroyed.get(), 0);
}

TEST(Cm, StalePointersAreRefused) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  ASSERT_EQ(rdma_destroy_id(id), 0);
  EXPECT_EQ(rdma_destroy_id(id), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_listen(id, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_cm_event invented{};
  EXPECT_EQ(rdma_ack_cm_event(&invented), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_event_channel nowhere{-1};
  EXPECT_EQ(rdma_create_id(&nowhere, &id, nullptr, RDMA_PS_TCP), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Cm, CallsInTheWrongStateChangeNothing) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  const auto refused = [](int result) { return result == -1 && errno == EINVAL; };
  rdma_conn_param params{};
  EXPECT_TRUE(refused(rdma_resolve_route(id, 100)));
  EXPECT_TRUE(refused(rdma_connect(id, &params)));
  EXPECT_TRUE(refused(rdma_accept(id, &params)));
  EXPECT_TRUE(refused(rdma_reject(id, nullptr, 0)));
  EXPECT_TRUE(refused(rdma_disconnect(id)));
  EXPECT_TRUE(refused(rdma_establish(id)));
  auto local = v4("127.0.0.1", 0);
  ASSERT_EQ(rdma_bind_addr(id, generic(local)), 0);
  EXPECT_TRUE(refused(rdma_bind_addr(id, generic(local))));
  ASSERT_EQ(rdma_listen(id, 1), 0);
  EXPECT_TRUE(refused(rdma_listen(id, 1)));
  EXPECT_TRUE(refused(rdma_resolve_addr(id, nullptr, generic(local), 100)));
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(Cm, AddressesThatAreNotOnThisMachineHaveNoDevice) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  auto elsewhere = v4("192.0.2.77", 0);
  EXPECT_EQ(rdma_bind_addr(id, generic(elsewhere)), -1);
  EXPECT_EQ(errno, ENODEV);
  auto here = v4("127.0.0.1", 0);
  EXPECT_EQ(rdma_bind_addr(id, generic(here)), 0);  // the failure changed nothing
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(Cm, AnUnresolvableAddressIsAnEventWithItsErrno) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  auto source = v4("192.0.2.77", 0);
  auto peer = v4("127.0.0.1", 1000);
  ASSERT_EQ(rdma_resolve_addr(id, generic(source), generic(peer), 1000), 0);
  NextEvent failed(channel.get());
  EXPECT_EQ(failed.type(), RDMA_CM_EVENT_ADDR_ERROR);
  EXPECT_EQ(failed.status(), -ENODEV);
  failed.ack();
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(Cm, OtherPortSpacesHaveNoDevice) {
  const ChannelPtr channel = make_channel();
  for (const rdma_port_space ps : {RDMA_PS_UDP, RDMA_PS_IPOIB, RDMA_PS_IB}) {
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_create_id(channel.get(), &id, nullptr, ps), 0);
    auto local = v4("127.0.0.1", 0);
    EXPECT_EQ(rdma_bind_addr(id, generic(local)), -1);
    EXPECT_EQ(errno, ENODEV);
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(local), 100), -1);
    EXPECT_EQ(errno, ENODEV);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

TEST(Cm, ResolvingNamesTheDeviceTheSourceAndAPort) {
  const Listening server;
  const Calling client(server.port);
  EXPECT_NE(client.id->verbs, nullptr);
  EXPECT_NE(client.id->pd, nullptr);
  EXPECT_EQ(client.id->port_num, 1);
  sockaddr_in local{};
  std::memcpy(&local, rdma_get_local_addr(client.id), sizeof local);
  EXPECT_EQ(ntohl(local.sin_addr.s_addr), INADDR_LOOPBACK);
  EXPECT_NE(local.sin_port, 0);
  EXPECT_EQ(ntohs(rdma_get_dst_port(client.id)), server.port);
  int count = 0;
  ibv_context** devices = rdma_get_devices(&count);
  ASSERT_EQ(count, 1);
  EXPECT_EQ(devices[0], client.id->verbs);
  rdma_free_devices(devices);
}

TEST(Cm, AWildcardListenerTakesConnectionsOfBothFamilies) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  ASSERT_EQ(rdma_listen(id, 4), 0);  // never bound: any address, a port of the system's choice
  EXPECT_EQ(id->verbs, nullptr);
  const std::uint16_t port = ntohs(rdma_get_src_port(id));
  ASSERT_NE(port, 0);
  Calling client(port);
  client.connect();
  NextEvent request(channel.get());
  ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* child = request.id();
  EXPECT_NE(child->verbs, nullptr);
  request.ack();
  EXPECT_EQ(rdma_destroy_id(child), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(Cm, TwoListenersOnOnePortAreOneTooMany) {
  const Listening first;
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  auto same = v4("127.0.0.1", first.port);
  const int bound = rdma_bind_addr(id, generic(same));
  if (bound == 0) {
    EXPECT_EQ(rdma_listen(id, 1), -1);
  }
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(Cm, DisconnectingIsSeenOnBothSidesWithFlushedReceives) {
  Connected pair;
  pair.passive.post_recv(5, 0, 64);
  ASSERT_EQ(rdma_disconnect(pair.active.id), 0);
  NextEvent one(pair.active_channel());
  EXPECT_EQ(one.type(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(one.status(), 0);
  EXPECT_EQ(NextEvent(pair.passive_channel()).type(), RDMA_CM_EVENT_DISCONNECTED);
  ibv_wc wc{};
  ASSERT_TRUE(next_completion(pair.passive.id->recv_cq, wc));
  EXPECT_EQ(wc.wr_id, 5U);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(rdma_disconnect(pair.passive.id), 0);  // saying it too is no mistake
}

TEST(Cm, DataSentBeforeDisconnectAndDestroyArrives) {
  for (int round = 0; round < 10; ++round) {
    Connected pair;
    std::fill(pair.active.memory.begin(), pair.active.memory.end(), std::uint8_t{0x5a});
    pair.passive.post_recv(1, 0, Connected::kBytes);
    send_some(pair.active, Connected::kBytes);
    ibv_wc wc{};
    ASSERT_TRUE(next_completion(pair.active.id->send_cq, wc));
    ASSERT_EQ(rdma_disconnect(pair.active.id), 0);
    rdma_destroy_qp(pair.active.id);  // does not wait for DISCONNECTED
    ASSERT_TRUE(next_completion(pair.passive.id->recv_cq, wc));
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, Connected::kBytes);
  }
}

TEST(Cm, MigratingTakesPendingEventsAlongInOrder) {
  const ChannelPtr before = make_channel();
  const ChannelPtr after = make_channel();
  rdma_cm_id* id = make_id(before.get());
  auto peer = v4("127.0.0.1", 9);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 1000), 0);
  ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
  ASSERT_EQ(rdma_migrate_id(id, after.get()), 0);
  EXPECT_EQ(id->channel, after.get());
  EXPECT_FALSE(readable(before->fd, 0));
  EXPECT_EQ(NextEvent(after.get()).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(NextEvent(after.get()).type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_EQ(rdma_migrate_id(id, nullptr), 0);  // synchronous now
  EXPECT_EQ(rdma_migrate_id(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(rdma_migrate_id(id, before.get()), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(Cm, ParametersAboveTheDevicesAreRefusedBeforeAnythingIsSent) {
  const Listening server;
  Calling client(server.port);
  client.make_qp();
  rdma_conn_param params{};
  params.responder_resources = 200;
  EXPECT_EQ(rdma_connect(client.id, &params), -1);
  EXPECT_EQ(errno, EINVAL);
  params = {};
  params.initiator_depth = 200;
  EXPECT_EQ(rdma_connect(client.id, &params), -1);
  EXPECT_EQ(errno, EINVAL);
  params = {};
  params.responder_resources = RDMA_MAX_RESP_RES;
  params.initiator_depth = RDMA_MAX_INIT_DEPTH;
  EXPECT_EQ(rdma_connect(client.id, &params), 0);
  NextEvent request(server.channel.get());
  ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_GT(request.parameters().initiator_depth, 0);
  EXPECT_GT(request.parameters().responder_resources, 0);
  rdma_cm_id* child = request.id();
  request.ack();
  EXPECT_EQ(rdma_destroy_id(child), 0);
}

TEST(Cm, AQpOfTheProgramsOwnIsConnectedByItsNumber) {
  const Listening server;
  Calling client(server.port);
  ibv_cq* cq = ibv_create_cq(client.id->verbs, 64, nullptr, nullptr, 0);
  const auto make = [&](rdma_cm_id* id) {
    ibv_qp_init_attr attr = rc_attributes(cq);
    ibv_qp* qp = ibv_create_qp(id->pd, &attr);
    ibv_qp_attr state{};
    int mask = 0;
    for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      state.qp_state = to;
      EXPECT_EQ(rdma_init_qp_attr(id, &state, &mask), 0);
      EXPECT_EQ(ibv_modify_qp(qp, &state, mask), 0);
    }
    return qp;
  };
  ibv_qp* mine = make(client.id);
  rdma_conn_param params = with_data("");
  params.qp_num = mine->qp_num;
  ASSERT_EQ(rdma_connect(client.id, &params), 0);
  NextEvent request(server.channel.get());
  rdma_cm_id* child = request.id();
  request.ack();
  ibv_qp* other = make(child);
  params.qp_num = other->qp_num;
  ASSERT_EQ(rdma_accept(child, &params), 0);
  EXPECT_EQ(NextEvent(client.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(NextEvent(server.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(rdma_establish(client.id), 0);
  EXPECT_EQ(mine->state, IBV_QPS_RTS);
  params.qp_num = 0xffffff;
  EXPECT_EQ(ibv_destroy_qp(mine), 0);
  EXPECT_EQ(ibv_destroy_qp(other), 0);
  EXPECT_EQ(rdma_destroy_id(child), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST(Cm, ManyConnectionsAtOnceEachKeepTheirIdentity) {
  constexpr std::size_t kCount = 40;
  const Listening server(64);
  std::vector<std::unique_ptr<Calling>> clients;
  for (std::size_t i = 0; i < kCount; ++i) {
    clients.push_back(std::make_unique<Calling>(server.port));
    clients.back()->make_qp();
    const std::string name = "client " + std::to_string(i);
    rdma_conn_param params = with_data(name);
    ASSERT_EQ(rdma_connect(clients.back()->id, &params), 0);
  }
  std::vector<rdma_cm_id*> children;
  std::size_t established = 0;
  while (established < kCount) {
    NextEvent event(server.channel.get());
    ASSERT_TRUE(event.type() == RDMA_CM_EVENT_CONNECT_REQUEST ||
                event.type() == RDMA_CM_EVENT_ESTABLISHED);
    if (event.type() == RDMA_CM_EVENT_ESTABLISHED) {
      ++established;
      continue;
    }
    children.push_back(event.id());
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    ASSERT_EQ(rdma_create_qp(event.id(), nullptr, &attr), 0);
    const std::string echo = event.data();
    rdma_conn_param params = with_data(echo);
    ASSERT_EQ(rdma_accept(event.id(), &params), 0);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    NextEvent event(clients[i]->channel.get());
    EXPECT_EQ(event.type(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(event.data(), "client " + std::to_string(i));
  }
  for (rdma_cm_id* child : children) {
    rdma_destroy_qp(child);
    EXPECT_EQ(rdma_destroy_id(child), 0);
  }
}

}  // namespace
}  // namespace weft::abi
