// rdma_cm on a RoCE-like device: the connection carries the numbers of queue pairs, as InfiniBand's
// does, and the queue pairs behave as those that programs connect out of band.
#include <filesystem>
#include <iterator>

#include "wired_end.h"

namespace weft::abi {
namespace {

rdma_conn_param parameters(std::uint32_t number = 0) {
  rdma_conn_param params{};
  params.responder_resources = 3;
  params.initiator_depth = 2;
  params.retry_count = 6;
  params.rnr_retry_count = 7;
  params.qp_num = number;
  params.private_data = "words";
  params.private_data_len = 5;
  return params;
}

// --- the connection alone, with numbers of queue pairs that it knows nothing of ---

struct Carrier {
  Listening server;
  Calling client{server.port};
  rdma_cm_id* child = nullptr;

  // The request is there, and says `number`.
  void ask(std::uint32_t number) {
    rdma_conn_param params = parameters(number);
    ASSERT_EQ(rdma_connect(client.id, &params), 0);
    const NextEvent request(server.channel.get());
    ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    child = request.id();
    EXPECT_EQ(request.parameters().qp_num, number);
    EXPECT_EQ(request.data(), "words");
    EXPECT_EQ(request.parameters().responder_resources, 2);  // what the caller asks for at once
    EXPECT_EQ(request.parameters().initiator_depth, 3);
  }
  ~Carrier() {
    if (child != nullptr) rdma_destroy_id(child);
  }
};

ibv_qp_attr attributes_of(rdma_cm_id* id, ibv_qp_state state, int mask) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  int named = 0;
  EXPECT_EQ(rdma_init_qp_attr(id, &attr, &named), 0);
  EXPECT_EQ(named, mask | IBV_QP_STATE);
  return attr;
}

TEST(WiredCm, ANumberIsCarriedWhosesoeverItIs) {
  // As UCX does: a queue pair that never leaves RESET, of another type.
  const Opened device;
  ibv_pd* const pd = ibv_alloc_pd(device.get());
  ibv_cq* const cq = ibv_create_cq(device.get(), 1, nullptr, nullptr, 0);
  ibv_qp_init_attr init = rc_attributes(cq, 1);
  init.qp_type = IBV_QPT_UD;
  ibv_qp* const unused = ibv_create_qp(pd, &init);
  Carrier c;
  c.ask(unused->qp_num);
  rdma_conn_param answer = parameters(0xabcdef);
  ASSERT_EQ(rdma_accept(c.child, &answer), 0);
  {
    const NextEvent response(c.client.channel.get());
    ASSERT_EQ(response.type(), RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(response.parameters().qp_num, 0xabcdefU);
    EXPECT_EQ(response.data(), "words");
  }
  ASSERT_EQ(rdma_establish(c.client.id), 0);
  EXPECT_EQ(NextEvent(c.server.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_EQ(rdma_disconnect(c.client.id), 0);
  EXPECT_EQ(NextEvent(c.server.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(NextEvent(c.client.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
  ibv_destroy_qp(unused);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
}

TEST(WiredCm, InitQpAttrSaysWhereThePeerIs) {
  Carrier c;
  c.ask(77);
  rdma_conn_param answer = parameters(88);
  ASSERT_EQ(rdma_accept(c.child, &answer), 0);
  ASSERT_EQ(NextEvent(c.client.channel.get()).type(), RDMA_CM_EVENT_CONNECT_RESPONSE);
  const ibv_qp_attr init = attributes_of(c.client.id, IBV_QPS_INIT,
                                         IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(init.port_num, 1);
  const ibv_qp_attr there = attributes_of(c.client.id, IBV_QPS_RTR, End::kRtr);
  const ibv_qp_attr back = attributes_of(c.child, IBV_QPS_RTR, End::kRtr);
  EXPECT_EQ(there.dest_qp_num, 88U);
  EXPECT_EQ(back.dest_qp_num, 77U);
  ibv_gid gid{};
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_gid(c.client.id->verbs, 1, 0, &gid), 0);
  ASSERT_EQ(ibv_query_port(c.client.id->verbs, 1, &port), 0);
  EXPECT_EQ(there.ah_attr.is_global, 1);
  EXPECT_EQ(std::memcmp(&there.ah_attr.grh.dgid, &gid, sizeof gid), 0);  // this machine too
  EXPECT_EQ(there.path_mtu, port.active_mtu);
  const ibv_qp_attr rts = attributes_of(c.client.id, IBV_QPS_RTS, End::kRts);
  const ibv_qp_attr rts_back = attributes_of(c.child, IBV_QPS_RTS, End::kRts);
  EXPECT_EQ(rts.sq_psn, back.rq_psn);
  EXPECT_EQ(rts_back.sq_psn, there.rq_psn);
  EXPECT_EQ(rts.retry_cnt, 6);
  EXPECT_EQ(rts_back.retry_cnt, 6);
  EXPECT_EQ(rts.rnr_retry, 7);
}

TEST(WiredCm, ARejectionHasItsDataAndInfinibandsReason) {
  Carrier c;
  c.ask(77);
  ASSERT_EQ(rdma_reject(c.child, "no", 2), 0);
  const NextEvent event(c.client.channel.get());
  EXPECT_EQ(event.type(), RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event.status(), 28);
  EXPECT_EQ(event.data(), "no");
}

TEST(WiredCm, OneThatGoesBeforeItEstablishesIsMissed) {
  Carrier c;
  c.ask(77);
  rdma_conn_param answer = parameters(88);
  ASSERT_EQ(rdma_accept(c.child, &answer), 0);
  ASSERT_EQ(NextEvent(c.client.channel.get()).type(), RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(rdma_destroy_id(std::exchange(c.client.id, nullptr)), 0);
  EXPECT_EQ(NextEvent(c.server.channel.get()).type(), RDMA_CM_EVENT_REJECTED);
}

// --- queue pairs of rdma_cm ---

ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

ibv_wc next_of(ibv_cq* cq) {
  ibv_wc wc{};
  EXPECT_TRUE(next_completion(cq, wc));
  return wc;
}

// As Connected, with retries for a peer that has no receive.
struct Linked {
  Listening server;
  Calling client{server.port};
  rdma_cm_id* child = nullptr;
  std::array<char, 256> memory{};
  ibv_mr* mr = nullptr;

  Linked() {
    client.make_qp();
    rdma_conn_param params = parameters();
    EXPECT_EQ(rdma_connect(client.id, &params), 0);
    {
      const NextEvent request(server.channel.get());
      EXPECT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
      EXPECT_EQ(request.parameters().qp_num, client.id->qp->qp_num);
      child = request.id();
    }
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_qp(child, nullptr, &attr), 0);
    EXPECT_EQ(rdma_accept(child, &params), 0);
    const NextEvent up(client.channel.get());
    EXPECT_EQ(up.type(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(up.data(), "words");
    EXPECT_EQ(NextEvent(server.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
    mr = ibv_reg_mr(child->pd, memory.data(), memory.size(), kRights);
  }
  ~Linked() {
    rdma_destroy_qp(client.id);
    if (child != nullptr) rdma_destroy_qp(child);
    ibv_dereg_mr(mr);
    if (child != nullptr) rdma_destroy_id(child);
  }
  void forget_child() {
    rdma_destroy_qp(child);
    EXPECT_EQ(rdma_destroy_id(child), 0);
    child = nullptr;
  }
  void receive(std::uint64_t id) {
    ibv_sge sge = sge_of(memory.data(), 64, mr);
    ibv_recv_wr wr{id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(child->qp, &wr, &bad), 0);
  }
  void send(std::uint64_t id) {
    ibv_sge sge = sge_of(memory.data() + 128, 8, mr);
    ibv_send_wr wr = send_request(sge, id);
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(client.id->qp, &wr, &bad), 0);
  }
};

TEST(WiredCm, ASendWaitsForItsReceiveAndEndsWithTheAck) {
  Linked l;
  EXPECT_EQ(state_of(l.client.id->qp), IBV_QPS_RTS);
  EXPECT_EQ(state_of(l.child->qp), IBV_QPS_RTS);
  l.send(1);
  ibv_wc wc{};
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(ibv_poll_cq(l.client.id->send_cq, 1, &wc), 0);
  l.receive(2);
  wc = next_of(l.client.id->send_cq);
  EXPECT_EQ(wc.wr_id, 1U);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
  wc = next_of(l.child->recv_cq);
  EXPECT_EQ(wc.wr_id, 2U);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(state_of(l.client.id->qp), IBV_QPS_RTS);
  EXPECT_EQ(state_of(l.child->qp), IBV_QPS_RTS);
}

TEST(WiredCm, AQueuePairStaysInRtsUntilItsOwnDisconnect) {
  Linked l;
  l.receive(1);
  l.send(2);
  EXPECT_EQ(next_of(l.child->recv_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_of(l.client.id->send_cq).status, IBV_WC_SUCCESS);
  l.receive(3);
  ASSERT_EQ(rdma_disconnect(l.client.id), 0);
  EXPECT_EQ(state_of(l.client.id->qp), IBV_QPS_ERR);
  EXPECT_EQ(NextEvent(l.server.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(state_of(l.child->qp), IBV_QPS_RTS);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(l.child->recv_cq, 1, &wc), 0);
  // As from an adapter, the answer is the peer program's (InfiniBand's DREP).
  EXPECT_FALSE(readable(l.client.channel->fd, 20));
  ASSERT_EQ(rdma_disconnect(l.child), 0);
  EXPECT_EQ(state_of(l.child->qp), IBV_QPS_ERR);
  wc = next_of(l.child->recv_cq);
  EXPECT_EQ(wc.wr_id, 3U);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(NextEvent(l.client.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
}

TEST(WiredCm, ToLetAnIdGoAnswersItsPeersDisconnect) {
  Linked l;
  ASSERT_EQ(rdma_disconnect(l.client.id), 0);
  EXPECT_EQ(NextEvent(l.server.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
  l.forget_child();
  EXPECT_EQ(NextEvent(l.client.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_FALSE(readable(l.server.channel->fd, 0));
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST(WiredCm, ToLetAnIdGoAnswersWhileItsRequestIsNotAcknowledged) {
  const Listening server;
  Calling client(server.port);
  rdma_conn_param params = parameters(1);
  ASSERT_EQ(rdma_connect(client.id, &params), 0);
  const NextEvent request(server.channel.get());
  ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* const child = request.id();
  ASSERT_EQ(rdma_accept(child, &params), 0);
  EXPECT_EQ(NextEvent(client.channel.get()).type(), RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(rdma_establish(client.id), 0);
  EXPECT_EQ(NextEvent(server.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_EQ(rdma_disconnect(client.id), 0);
  EXPECT_EQ(NextEvent(server.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
  const auto before = open_descriptors();
  EXPECT_EQ(rdma_destroy_id(child), 0);
  EXPECT_LT(open_descriptors(), before);  // its socket is closed: that is the answer
  EXPECT_EQ(NextEvent(client.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
}

TEST(WiredCm, BothMayDisconnectAtOnceAndEachHearsOnce) {
  Linked l;
  ASSERT_EQ(rdma_disconnect(l.client.id), 0);
  ASSERT_EQ(rdma_disconnect(l.child), 0);
  EXPECT_EQ(NextEvent(l.server.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(NextEvent(l.client.channel.get()).type(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(rdma_disconnect(l.client.id), 0);
  EXPECT_EQ(rdma_disconnect(l.child), 0);
  EXPECT_FALSE(readable(l.server.channel->fd, 0));
  EXPECT_FALSE(readable(l.client.channel->fd, 0));
}

TEST(WiredCm, TheTimeLimitOfAnOptionIsThatOfTheQueuePair) {
  const Listening server;
  Calling client(server.port);
  std::uint8_t timeout = 21;
  ASSERT_EQ(rdma_set_option(client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                            sizeof timeout),
            0);
  client.make_qp();
  rdma_conn_param params = parameters();
  ASSERT_EQ(rdma_connect(client.id, &params), 0);
  rdma_cm_id* child = nullptr;
  {
    const NextEvent request(server.channel.get());
    ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    child = request.id();
  }
  ibv_qp_init_attr init = rc_attributes(nullptr);
  ASSERT_EQ(rdma_create_qp(child, nullptr, &init), 0);
  ASSERT_EQ(rdma_accept(child, &params), 0);
  ASSERT_EQ(NextEvent(client.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  ibv_qp_attr attr{};
  ASSERT_EQ(ibv_query_qp(client.id->qp, &attr, IBV_QP_TIMEOUT, &init), 0);
  EXPECT_EQ(attr.timeout, 21);
  EXPECT_EQ(attr.dest_qp_num, child->qp->qp_num);
  EXPECT_EQ(attr.max_rd_atomic, 2);
  rdma_destroy_qp(child);
  rdma_destroy_id(child);
}

}  // namespace
}  // namespace weft::abi
