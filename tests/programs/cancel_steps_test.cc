// Threads that are cancelled in calls of libibverbs and of rdma_cm.
#include "cancel_steps.h"

namespace weft::abi {
namespace {

// --- verbs ---

TEST(CancelSteps, InPostsAndPolls) {
  const Connected pair;
  ibv_cq* const taken = pair.passive.id->recv_cq;
  ibv_cq* const sent = pair.active.id->send_cq;
  const auto poll_one = [](ibv_cq* cq) {
    ibv_wc wc{};
    EXPECT_TRUE(next_completion(cq, wc));
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  };
  Around around;
  around.behind = [&](bool) {
    poll_one(taken);
    poll_one(sent);
    expect_round_trip(pair);
  };
  around.before = [&] { pair.passive.post_recv(1, 0, 4096); };
  cancelled_at_each_step(
      "post_send", [&] { send_some(pair.active, 4096); }, around);
  around.before = [] {};
  cancelled_at_each_step(
      "post_recv",
      [&] {
        pair.passive.post_recv(1, 0, 4096);
        send_some(pair.active, 4096);
      },
      around);
  around.before = [&] {
    pair.passive.post_recv(1, 0, 4096);
    send_some(pair.active, 4096);
  };
  int got = 0;
  ibv_wc wc{};
  around.behind = [&](bool) {
    if (got == 0) poll_one(taken);
    poll_one(sent);
    expect_round_trip(pair);
  };
  cancelled_at_each_step(
      "poll_cq", [&] { got = ibv_poll_cq(taken, 1, &wc); }, around);
  around.before = [] {};
  around.behind = [&](bool) { expect_round_trip(pair); };
  cancelled_at_each_step(
      "empty poll_cq", [&] { EXPECT_EQ(ibv_poll_cq(taken, 1, &wc), 0); }, around);
  cancelled_at_each_step(
      "req_notify_cq", [&] { EXPECT_EQ(ibv_req_notify_cq(sent, 0), 0); }, around);
  cancelled_at_each_step(
      "resize_cq", [&] { EXPECT_EQ(ibv_resize_cq(taken, taken->cqe == 63 ? 127 : 63), 0); },
      around);
  cancelled_at_each_step(
      "query_qp",
      [&] {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        EXPECT_EQ(ibv_query_qp(pair.active.id->qp, &attr, IBV_QP_STATE, &init), 0);
      },
      around);
}

TEST(CancelSteps, InTheSleepForACompletion) {
  const Connected pair;
  ibv_cq* const cq = pair.passive.id->recv_cq;
  ibv_cq* told = nullptr;
  void* context = nullptr;
  int result = -1;
  Around around;
  around.before = [&] {
    result = -1;
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    pair.passive.post_recv(1, 0, 64);
  };
  around.meanwhile = [&] { send_some(pair.active, 64); };
  around.behind = [&](bool back) {
    if (!back) {
      ASSERT_TRUE(readable(cq->channel->fd)) << "the event is lost";
      result = ibv_get_cq_event(cq->channel, &told, &context);
    }
    EXPECT_EQ(result, 0);
    ibv_ack_cq_events(cq, 1);
    ibv_wc wc{};
    EXPECT_TRUE(next_completion(cq, wc));
    EXPECT_TRUE(next_completion(pair.active.id->send_cq, wc));
    expect_round_trip(pair);
  };
  cancelled_at_each_step(
      "get_cq_event", [&] { result = ibv_get_cq_event(cq->channel, &told, &context); }, around);
}

TEST(CancelSteps, InTheSleepForAnAsynchronousEvent) {
  std::unique_ptr<Connected> pair;
  ibv_async_event event{};
  int result = -1;
  Around around;
  around.before = [&] {
    result = -1;
    pair = std::make_unique<Connected>();
  };
  around.meanwhile = [&] { violate(pair->active, pair->passive); };
  around.behind = [&](bool back) {
    ibv_context* const context = pair->passive.id->verbs;
    if (!back) {
      ASSERT_TRUE(readable(context->async_fd)) << "the event is lost";
      result = ibv_get_async_event(context, &event);
    }
    EXPECT_EQ(result, 0);
    ibv_ack_async_event(&event);
    pair.reset();
  };
  cancelled_at_each_step(
      "get_async_event", [&] { result = ibv_get_async_event(pair->passive.id->verbs, &event); },
      around);
}

TEST(CancelSteps, WhereObjectsOfVerbsAreMadeAndDestroyed) {
  const Opened opened;
  ibv_context* const context = opened.get();
  std::vector<char> memory(100'000);
  cancelled_at_each_step("a device", [] { const Opened another; });
  cancelled_at_each_step("objects", [&] {
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_mr* mr = ibv_reg_mr(pd, memory.data(), memory.size(), kLocalWrite);
    EXPECT_NE(mr, nullptr);
    ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* cq = ibv_create_cq(context, 16, nullptr, channel, 0);
    ibv_srq_init_attr shared{nullptr, {16, 1, 0}};
    ibv_srq* srq = ibv_create_srq(pd, &shared);
    ibv_qp_init_attr attr = rc_attributes(cq);
    attr.srq = srq;
    ibv_qp* qp = ibv_create_qp(pd, &attr);
    EXPECT_NE(qp, nullptr);
    ibv_qp_attr move{};
    move.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(qp, &move, IBV_QP_STATE), 0);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  });
}

// --- rdma_cm ---

void expect_event(const ChannelPtr& channel, rdma_cm_event_type type) {
  ASSERT_EQ(NextEvent(channel.get()).type(), static_cast<int>(type));
}

// Two ids on their way to a connection, made as far as a step needs them.
class Way {
 public:
  Way() : here_(make_channel()), active_(make_id(here_.get())) {}
  ~Way() { destroy(); }
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  // What has to have happened, and then a call.
  struct Step {
    const char* name;
    void (Way::*wait)();
    void (Way::*call)();
  };
  static const std::vector<Step> kSteps;

  void go(const Step& step) {
    (this->*step.wait)();
    (this->*step.call)();
  }

 private:
  void nothing() {}
  void resolve() {
    auto peer = v4("127.0.0.1", listening_.port);
    EXPECT_EQ(rdma_resolve_addr(active_, nullptr, generic(peer), 2000), 0);
  }
  void wait_for_address() { expect_event(here_, RDMA_CM_EVENT_ADDR_RESOLVED); }
  void resolve_route() { EXPECT_EQ(rdma_resolve_route(active_, 2000), 0); }
  void wait_for_route() { expect_event(here_, RDMA_CM_EVENT_ROUTE_RESOLVED); }
  void make_active_qp() { make_qp(active_); }
  void connect() {
    rdma_conn_param params{};
    EXPECT_EQ(rdma_connect(active_, &params), 0);
  }
  void wait_for_request() { EXPECT_TRUE(readable(listening_.channel->fd)); }
  void fetch_request() {
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(listening_.channel.get(), &event), 0);
    EXPECT_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    passive_ = event->id;
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
  }
  void make_passive_qp() { make_qp(passive_); }
  void accept() {
    rdma_conn_param params{};
    EXPECT_EQ(rdma_accept(passive_, &params), 0);
  }
  void wait_for_both() {
    expect_event(here_, RDMA_CM_EVENT_ESTABLISHED);
    expect_event(listening_.channel, RDMA_CM_EVENT_ESTABLISHED);
  }
  void disconnect() { EXPECT_EQ(rdma_disconnect(active_), 0); }
  void wait_for_the_end() { expect_event(listening_.channel, RDMA_CM_EVENT_DISCONNECTED); }
  void disconnect_back() { EXPECT_EQ(rdma_disconnect(passive_), 0); }
  void destroy() {
    for (rdma_cm_id** id : {&active_, &passive_}) {
      if (*id == nullptr) continue;
      rdma_destroy_qp(*id);
      EXPECT_EQ(rdma_destroy_id(*id), 0);
      *id = nullptr;
    }
  }
  static void make_qp(rdma_cm_id* id) {
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
  }

  const Listening listening_;
  const ChannelPtr here_;
  rdma_cm_id* active_;
  rdma_cm_id* passive_ = nullptr;
};

const std::vector<Way::Step> Way::kSteps = {
    {"resolve_addr", &Way::nothing, &Way::resolve},
    {"resolve_route", &Way::wait_for_address, &Way::resolve_route},
    {"create_qp", &Way::wait_for_route, &Way::make_active_qp},
    {"connect", &Way::nothing, &Way::connect},
    {"get_cm_event", &Way::wait_for_request, &Way::fetch_request},
    {"create_qp of a request", &Way::nothing, &Way::make_passive_qp},
    {"accept", &Way::nothing, &Way::accept},
    {"disconnect", &Way::wait_for_both, &Way::disconnect},
    {"disconnect of the other end", &Way::wait_for_the_end, &Way::disconnect_back},
    {"destroy", &Way::nothing, &Way::destroy}};

// The connection comes to its end whichever call's thread was cancelled.
TEST(CancelSteps, OnTheWayOfAConnection) {
  for (std::size_t at = 0; at < Way::kSteps.size(); ++at) {
    const Way::Step& step = Way::kSteps[at];
    std::unique_ptr<Way> way;
    Around around;
    around.before = [&] {
      way = std::make_unique<Way>();
      for (std::size_t i = 0; i < at; ++i) way->go(Way::kSteps[i]);
      ((*way).*step.wait)();
    };
    around.behind = [&](bool) {
      for (std::size_t i = at + 1; i < Way::kSteps.size(); ++i) way->go(Way::kSteps[i]);
      way.reset();
    };
    cancelled_at_each_step(
        step.name, [&] { ((*way).*step.call)(); }, around);
  }
}

TEST(CancelSteps, WhereIdsAreMadeBoundAndDestroyed) {
  auto any = v4("127.0.0.1", 0);
  cancelled_at_each_step("channel, id, bind, listen, migrate", [&] {
    const ChannelPtr channel = make_channel();
    const ChannelPtr other = make_channel();
    rdma_cm_id* id = make_id(channel.get());
    EXPECT_EQ(rdma_bind_addr(id, generic(any)), 0);
    EXPECT_EQ(rdma_listen(id, 4), 0);
    EXPECT_EQ(rdma_migrate_id(id, other.get()), 0);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  });
}

TEST(CancelSteps, InTheSleepForAnEventOfAConnection) {
  const Listening listening;
  std::unique_ptr<Calling> calling;
  rdma_cm_event* event = nullptr;
  int result = -1;
  Around around;
  around.before = [&] {
    result = -1;
    calling = std::make_unique<Calling>(listening.port);
  };
  around.meanwhile = [&] { calling->connect(); };
  around.behind = [&](bool back) {
    if (!back) {
      ASSERT_TRUE(readable(listening.channel->fd)) << "the event is lost";
      result = rdma_get_cm_event(listening.channel.get(), &event);
    }
    ASSERT_EQ(result, 0);
    EXPECT_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id* const id = event->id;
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
    EXPECT_EQ(rdma_destroy_id(id), 0);
    EXPECT_EQ(NextEvent(calling->channel.get()).type(), RDMA_CM_EVENT_REJECTED);
    calling.reset();
  };
  cancelled_at_each_step(
      "get_cm_event", [&] { result = rdma_get_cm_event(listening.channel.get(), &event); }, around);
}

}  // namespace
}  // namespace weft::abi
