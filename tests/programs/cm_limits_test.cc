// Where a process may open few descriptors: as many connections of rdma_cm as ibv_query_device
// says, and completion queues that share what they take.
#include <future>

#include "abi_support.h"
#include "support/descriptor_limit.h"

namespace weft::abi {
namespace {

class CmLimits : public testing::Test {
 protected:
  // One connection of this process with itself. False: a call or an event says no.
  bool connect_one() {
    rdma_cm_id* const active = make_id(calls_.get());
    if (active == nullptr) return false;
    ids_.push_back(active);
    auto peer = v4("127.0.0.1", server_.port);
    if (rdma_resolve_addr(active, nullptr, generic(peer), kWaitMs) != 0) return false;
    if (!comes(calls_, RDMA_CM_EVENT_ADDR_RESOLVED)) return false;
    if (rdma_resolve_route(active, kWaitMs) != 0) return false;
    if (!comes(calls_, RDMA_CM_EVENT_ROUTE_RESOLVED)) return false;
    rdma_conn_param params{};
    if (!make_qp(active) || rdma_connect(active, &params) != 0) return false;
    rdma_cm_id* const passive = next_request();
    if (passive == nullptr) return false;
    ids_.push_back(passive);
    return make_qp(passive) && rdma_accept(passive, &params) == 0 &&
           comes(calls_, RDMA_CM_EVENT_ESTABLISHED) &&
           comes(server_.channel, RDMA_CM_EVENT_ESTABLISHED);
  }
  void TearDown() override {
    for (rdma_cm_id* id : ids_) {
      if (id->qp != nullptr) rdma_destroy_qp(id);
      EXPECT_EQ(rdma_destroy_id(id), 0);
    }
    for (ibv_cq* cq : queues_) {
      ibv_comp_channel* const channel = cq->channel;
      EXPECT_EQ(ibv_destroy_cq(cq), 0);
      if (channel != nullptr) {
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
      }
    }
  }

  // Those made next have completion queues with channels.
  bool channels_ = false;
  std::vector<rdma_cm_id*> ids_;  // the two ends of each connection, one behind the other

 private:
  static bool comes(const ChannelPtr& channel, int type) {
    return NextEvent(channel.get()).type() == type;
  }
  rdma_cm_id* next_request() {
    const NextEvent request(server_.channel.get());
    return request.type() == RDMA_CM_EVENT_CONNECT_REQUEST ? request.id() : nullptr;
  }
  // With a completion queue of its own.
  bool make_qp(rdma_cm_id* id) {
    ibv_comp_channel* const channel = channels_ ? ibv_create_comp_channel(id->verbs) : nullptr;
    ibv_cq* const cq = ibv_create_cq(id->verbs, 4, nullptr, channel, 0);
    if (cq == nullptr || (channels_ && channel == nullptr)) return false;
    queues_.push_back(cq);
    ibv_qp_init_attr attr = rc_attributes(cq, 1);
    return rdma_create_qp(id, nullptr, &attr) == 0;
  }

  Listening server_;
  ChannelPtr calls_ = make_channel();
  std::vector<ibv_cq*> queues_;  // theirs
};

// Arms the queue, and says "ready". Sleeps until something comes, which it returns.
ibv_wc sleep_for_completion(ibv_cq* cq, bool in_verbs, std::promise<void> ready) {
  ibv_wc wc{};
  EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
  EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
  ready.set_value();
  EXPECT_TRUE(in_verbs || readable(cq->channel->fd));
  ibv_cq* told = nullptr;
  void* context = nullptr;
  EXPECT_EQ(ibv_get_cq_event(cq->channel, &told, &context), 0);
  EXPECT_EQ(told, cq);
  ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 1);
  return wc;
}

TEST_F(CmLimits, AsManyConnectionsAsTheDeviceSays) {
  const test::DescriptorLimit few(1024);
  const Opened device;
  ibv_device_attr limits{};
  ASSERT_EQ(ibv_query_device(device.get(), &limits), 0);
  ASSERT_GE(limits.max_qp, 256);
  ASSERT_LT(limits.max_qp, 1024);
  for (int i = 0; i < limits.max_qp / 2; ++i) ASSERT_TRUE(connect_one()) << "pair " << i;
}

// Most of them share a shard, and with it an epoll, with another that somebody polls or sleeps on.
TEST_F(CmLimits, CompletionQueuesThatShareAnEpollWakeTheirOwnSleepers) {
  const test::DescriptorLimit few(384);  // 48 of 80 have one to themselves
  constexpr int kPairs = 40;
  channels_ = true;
  for (int i = 0; i < kPairs; ++i) ASSERT_TRUE(connect_one()) << "pair " << i;
  std::vector<std::future<ibv_wc>> asleep;
  for (std::size_t i = 1; i < ids_.size(); i += 2) {
    ibv_recv_wr receive{i, nullptr, nullptr, 0};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(ids_[i]->qp, &receive, &bad), 0);
    std::promise<void> ready;
    std::future<void> armed = ready.get_future();
    asleep.push_back(std::async(std::launch::async, sleep_for_completion, ids_[i]->qp->recv_cq,
                                i % 4 == 1, std::move(ready)));
    armed.get();
  }
  for (std::size_t i = ids_.size(); i > 0; i -= 2) {
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ibv_qp* const qp = ids_[i - 2]->qp;
    ASSERT_EQ(ibv_post_send(qp, &send, &bad), 0);
    ibv_wc wc{};
    ASSERT_TRUE(next_completion(qp->send_cq, wc));
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    const ibv_wc received = asleep[i / 2 - 1].get();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.wr_id, i - 1);
  }
}

}  // namespace
}  // namespace weft::abi
