// Every allocation and every system call of set-up fails once, in calls of libibverbs and
// librdmacm. The call fails with the right errno and leaves nothing, and works straight afterwards.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "nth_fails_check.h"

namespace weft::abi {
namespace {

// How the device looks, without a failure.
bool looks_as_configured() {
  const char* personality = std::getenv("WEFT_PERSONALITY");
  const bool roce = personality != nullptr && std::string_view(personality) == "roce";
  ibv_device** list = ibv_get_device_list(nullptr);
  if (list == nullptr) return false;
  bool good = false;
  for (int i = 0; list[i] != nullptr; ++i) {
    if (std::string_view(ibv_get_device_name(list[i])) != "weft0") continue;
    good = list[i]->node_type == (roce ? IBV_NODE_CA : IBV_NODE_RNIC);
  }
  ibv_free_device_list(list);
  return good;
}

// Before the others: a process learns this once. So each attempt has a process of its own.
TEST(NthFails, TheDeviceLooksAsItIsConfiguredWhateverHasFailedBefore) {
  enum Outcome { kGood = 10, kNothingFailed, kWrong };
  for (const Fails kind : kBoth) {
    int outcome = kGood;
    for (int n = 1; outcome == kGood; ++n) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        NthFails fails(kind, n);
        try {
          ibv_device** list = fails.during([] { return ibv_get_device_list(nullptr); });
          if (list != nullptr) ibv_free_device_list(list);
        } catch (...) {  // out of a function of C
          _exit(kWrong);
        }
        _exit(!looks_as_configured() ? kWrong : fails.has_failed() ? kGood : kNothingFailed);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status)) << "call " << n << ": signal " << WTERMSIG(status);
      outcome = WEXITSTATUS(status);
      EXPECT_NE(outcome, kWrong) << (kind == Fails::kAllocation ? "allocation " : "system call ")
                                 << n;
    }
    EXPECT_EQ(outcome, kNothingFailed);
  }
}

TEST(NthFails, ADeviceIsOpenedOrNot) {
  ibv_device** list = ibv_get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  ibv_device* device = nullptr;
  for (int i = 0; list[i] != nullptr; ++i) {
    if (std::string_view(ibv_get_device_name(list[i])) == "weft0") device = list[i];
  }
  check(thing<ibv_context>(
      "context", [&] { return ibv_open_device(device); }, ibv_close_device));
  ibv_free_device_list(list);
}

TEST(NthFails, ObjectsOfVerbsAreMadeOrNot) {
  const Opened opened;
  ibv_context* const context = opened.get();
  std::vector<char> memory(100'000);
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_comp_channel* const channel = ibv_create_comp_channel(context);
  ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  check(thing<ibv_pd>(
      "domain", [=] { return ibv_alloc_pd(context); }, ibv_dealloc_pd));
  check(thing<ibv_mr>(
      "region", [&] { return ibv_reg_mr(pd, memory.data(), memory.size(), kLocalWrite); },
      ibv_dereg_mr));
  check(thing<ibv_mw>(
      "window", [=] { return ibv_alloc_mw(pd, IBV_MW_TYPE_2); }, ibv_dealloc_mw));
  check(thing<ibv_comp_channel>(
      "channel", [=] { return ibv_create_comp_channel(context); }, ibv_destroy_comp_channel));
  check(thing<ibv_cq>(
      "CQ", [=] { return ibv_create_cq(context, 16, nullptr, nullptr, 0); }, ibv_destroy_cq));
  check(thing<ibv_cq>(
      "CQ with a channel", [=] { return ibv_create_cq(context, 16, nullptr, channel, 0); },
      ibv_destroy_cq));
  EXPECT_EQ(channel->refcnt, 0);
  check(thing<ibv_srq>(
      "SRQ",
      [=] {
        ibv_srq_init_attr attr{nullptr, {16, 1, 0}};
        return ibv_create_srq(pd, &attr);
      },
      ibv_destroy_srq));
  check(thing<ibv_qp>(
      "QP",
      [=] {
        ibv_qp_init_attr attr = rc_attributes(cq);
        return ibv_create_qp(pd, &attr);
      },
      ibv_destroy_qp));
  // Nothing of what failed counts as a user.
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(NthFails, WhatEndsNeedsNoMemory) {
  const Opened opened;
  ibv_context* const context = opened.get();
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_comp_channel* const channel = ibv_create_comp_channel(context);
  check_end("all of a QP", [&](NthFails& fails) {
    ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, channel, 0);
    ibv_qp_init_attr attr = rc_attributes(cq);
    ibv_qp* const qp = ibv_create_qp(pd, &attr);
    return fails.during([&] {
      const int ended = ibv_destroy_qp(qp);
      return ended != 0 ? ended : ibv_destroy_cq(cq);
    });
  });
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

// --- rdma_cm ---

TEST(NthFails, ChannelsAndIdsAreMadeOrNot) {
  check(thing<rdma_event_channel>("event channel", rdma_create_event_channel,
                                  [](rdma_event_channel* channel) {
                                    rdma_destroy_event_channel(channel);
                                    return 0;
                                  }));
  const ChannelPtr channel = make_channel();
  check(thing<rdma_cm_id>(
      "id", [&] { return new_id(channel.get()); }, rdma_destroy_id));
  check(thing<rdma_cm_id>(
      "synchronous id", [] { return new_id(nullptr); }, rdma_destroy_id));
}

TEST(NthFails, StepsOfAnIdAreDoneOrNot) {
  const Listening listening(16, 0, kHere);
  const ChannelPtr channel = make_channel();
  auto any = v4(kHere, 0);
  auto peer = v4(kHere, listening.port);
  const auto fresh = [&] { return make_id(channel.get()); };
  const auto resolved = [&] {
    rdma_cm_id* id = fresh();
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 2000), 0);
    EXPECT_EQ(NextEvent(channel.get()).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
    return id;
  };
  const auto bound = [&] {
    rdma_cm_id* id = fresh();
    EXPECT_EQ(rdma_bind_addr(id, generic(any)), 0);
    return id;
  };
  check_step("bind", fresh, [&](rdma_cm_id* id) { return rdma_bind_addr(id, generic(any)); });
  check_step("listen", bound, [](rdma_cm_id* id) { return rdma_listen(id, 4); });
  check_step("listen anywhere", fresh, [](rdma_cm_id* id) { return rdma_listen(id, 4); });
  check_step("resolve_route", resolved,
             [](rdma_cm_id* id) { return rdma_resolve_route(id, 2000); });
  check_step("create_qp", resolved, [](rdma_cm_id* id) {
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    return rdma_create_qp(id, nullptr, &attr);
  });
}

// Ends what a connect has led to, at both ends.
void end_request(rdma_event_channel* active, rdma_event_channel* passive) {
  pollfd both[] = {{active->fd, POLLIN, 0}, {passive->fd, POLLIN, 0}};
  ASSERT_GT(poll(both, 2, kWaitMs), 0) << "nobody hears of it";
  rdma_cm_event* event = nullptr;
  if ((both[1].revents & POLLIN) == 0) return;  // it has failed, as the active end is told
  ASSERT_EQ(rdma_get_cm_event(passive, &event), 0);
  rdma_cm_id* const id = event->id;
  rdma_ack_cm_event(event);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(NthFails, AConnectIsHeardOfOrFails) {
  const Listening listening(16, 0, kHere);
  const ChannelPtr channel = make_channel();
  auto peer = v4(kHere, listening.port);
  const auto ready = [&] {
    rdma_cm_id* id = make_id(channel.get());
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 2000), 0);
    EXPECT_EQ(NextEvent(channel.get()).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_resolve_route(id, 2000), 0);
    EXPECT_EQ(NextEvent(channel.get()).type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
    return id;
  };
  check_step(
      "connect", ready,
      [](rdma_cm_id* id) {
        rdma_conn_param params{};
        return rdma_connect(id, &params);
      },
      [&](rdma_cm_id*) { end_request(channel.get(), listening.channel.get()); });
}

// The passive end, where a request is answered.
TEST(NthFails, ARequestIsFetchedAndAcceptedOrNot) {
  const Listening listening(16, 0, kHere);
  std::unique_ptr<Calling> calling;
  const auto asked = [&] {
    calling = std::make_unique<Calling>(listening.port, kHere);
    calling->connect();
    NextEvent request(listening.channel.get());
    EXPECT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id* const id = request.id();
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
    return id;
  };
  check_step(
      "accept", asked,
      [](rdma_cm_id* id) {
        rdma_conn_param params{};
        return rdma_accept(id, &params);
      },
      [&](rdma_cm_id*) {
        // Established, or ended, as the other end hears.
        EXPECT_NE(NextEvent(calling->channel.get()).type(), -1) << "the active end hears nothing";
        calling.reset();
      });
  calling.reset();
}

TEST(NthFails, EndpointsAreMadeOrNot) {
  const Listening listening(16, 0, kHere);
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* where = nullptr;
  const std::string port = std::to_string(listening.port);
  ASSERT_EQ(rdma_getaddrinfo(kHere, port.c_str(), &hints, &where), 0);
  check(thing<rdma_cm_id>(
      "active endpoint",
      [&]() -> rdma_cm_id* {
        rdma_cm_id* id = nullptr;
        ibv_qp_init_attr attr = rc_attributes(nullptr);
        return rdma_create_ep(&id, where, nullptr, &attr) == 0 ? id : nullptr;
      },
      [](rdma_cm_id* id) {
        rdma_destroy_ep(id);
        return 0;
      }));
  rdma_freeaddrinfo(where);
  hints.ai_flags = RAI_PASSIVE;
  ASSERT_EQ(rdma_getaddrinfo(kHere, nullptr, &hints, &where), 0);
  check(thing<rdma_cm_id>(
      "passive endpoint",
      [&]() -> rdma_cm_id* {
        rdma_cm_id* id = nullptr;
        return rdma_create_ep(&id, where, nullptr, nullptr) == 0 ? id : nullptr;
      },
      [](rdma_cm_id* id) {
        rdma_destroy_ep(id);
        return 0;
      }));
  rdma_freeaddrinfo(where);
}

// The moves of a queue pair that is wired by hand, to itself.
TEST(NthFails, AQueuePairIsWiredOrNot) {
  const Opened opened;
  if (opened.get()->device->transport_type != IBV_TRANSPORT_IB) {
    return;  // iWARP has no such queue pairs
  }
  ibv_pd* const pd = ibv_alloc_pd(opened.get());
  ibv_cq* const cq = ibv_create_cq(opened.get(), 16, nullptr, nullptr, 0);
  ibv_qp_attr attr{};
  attr.port_num = 1;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  ASSERT_EQ(ibv_query_gid(opened.get(), 1, 0, &attr.ah_attr.grh.dgid), 0);
  struct Move {
    ibv_qp_state to;
    int mask;
  };
  const std::vector<Move> moves{
      {IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
      {IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
      {IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC},
      {IBV_QPS_RESET, IBV_QP_STATE}};
  ibv_qp* qp = nullptr;
  const auto go = [&](std::size_t move) {
    attr.qp_state = moves[move].to;
    attr.dest_qp_num = qp->qp_num;
    return (errno = ibv_modify_qp(qp, &attr, moves[move].mask)) == 0;
  };
  for (std::size_t move = 0; move < moves.size(); ++move) {
    const auto at_move = [&] {
      ibv_qp_init_attr init = rc_attributes(cq);
      qp = ibv_create_qp(pd, &init);
      for (std::size_t i = 0; i < move; ++i) EXPECT_TRUE(go(i));
    };
    for (const Fails kind : kBoth) {
      each_fails(kind, [&](NthFails& fails) {
        at_move();
        errno = 0;
        if (!fails.during([&] { return go(move); })) {
          EXPECT_TRUE(says(errno, fails.error())) << fails.name() << ": " << strerror(errno);
          EXPECT_TRUE(go(move)) << "move " << move << " behind " << fails.name();
        }
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
      });
    }
  }
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(NthFails, DeviceMemoryIsGivenOrNot) {
  const Opened opened;
  ibv_pd* const pd = ibv_alloc_pd(opened.get());
  ibv_alloc_dm_attr attr{};
  attr.length = 4096;
  check(thing<ibv_dm>(
      "device memory", [&] { return ibv_alloc_dm(opened.get(), &attr); }, ibv_free_dm));
  ibv_dm* const dm = ibv_alloc_dm(opened.get(), &attr);
  ASSERT_NE(dm, nullptr);
  check(thing<ibv_mr>(
      "region of device memory",
      [&] {
        return ibv_reg_dm_mr(pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
      },
      ibv_dereg_mr));
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

// A builder keeps its memory for later batches: each attempt has one of its own.
TEST(NthFails, ABatchOfTheBuilderIsPostedOrNot) {
  int refused = 0;
  each_fails(Fails::kAllocation, [&](NthFails& fails) {
    Connected pair([](ibv_qp_init_attr_ex& attr) {
      attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    });
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(pair.active.id->qp);
    ASSERT_NE(qp, nullptr);
    std::array<char, 8> data{};
    const ibv_sge sge = pair.active.sge(0, 8);
    const auto to = reinterpret_cast<std::uintptr_t>(pair.passive.memory.data());
    const int result = fails.during([&] {
      ibv_wr_start(qp);
      qp->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_rdma_write(qp, pair.passive.mr->rkey, to);
      ibv_wr_set_inline_data(qp, data.data(), data.size());
      ibv_wr_rdma_write(qp, pair.passive.mr->rkey, to);
      ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
      return ibv_wr_complete(qp);
    });
    ibv_wc wc{};
    if (result == 0) {
      ASSERT_TRUE(next_completion(pair.active.id->send_cq, wc));
      ASSERT_TRUE(next_completion(pair.active.id->send_cq, wc));
    } else {
      EXPECT_EQ(result, ENOMEM);
      ++refused;
    }
    EXPECT_EQ(ibv_poll_cq(pair.active.id->send_cq, 1, &wc), 0);
  });
  EXPECT_GE(refused, 4);
}

}  // namespace
}  // namespace weft::abi
