// Errors and events of queue pairs connected out of band, as adapters and rxe have them: the status
// at both ends, which queue pair goes down, and what its owner is told.
#include <cerrno>

#include "wired_end.h"

namespace weft::abi {
namespace {

struct Pair {
  explicit Pair(int rights_of_b = kRights, bool shared = false)
      : a(IBV_QPT_RC, shared), b(IBV_QPT_RC, shared, rights_of_b) {
    a.wire(b.address());
    b.wire(a.address());
  }
  // A request of `a` to memory of `b`.
  [[nodiscard]] ibv_send_wr remote(ibv_wr_opcode opcode, ibv_sge& sge, std::uint64_t offset = 0) {
    sge = a.source(8);
    ibv_send_wr wr = send_request(sge, 1);
    wr.opcode = opcode;
    const std::uint64_t to = reinterpret_cast<std::uintptr_t>(b.memory_.data()) + offset;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic.remote_addr = to;
      wr.wr.atomic.rkey = b.mr_->rkey;
    } else {
      wr.wr.rdma.remote_addr = to;
      wr.wr.rdma.rkey = b.mr_->rkey;
    }
    return wr;
  }
  // Both ends are connected and idle.
  void meet() {
    b.receive(100, 64);
    ibv_sge sge = a.source(4);
    ASSERT_EQ(a.post(send_request(sge, 99)), 0);
    ASSERT_EQ(a.next().status, IBV_WC_SUCCESS);
    ASSERT_EQ(b.next().status, IBV_WC_SUCCESS);
  }
  End a, b;
};

TEST(WiredErrors, WhatTheQueuePairItselfDoesNotServeIsAnInvalidRequest) {
  for (const ibv_wr_opcode op :
       {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    Pair pair(IBV_ACCESS_LOCAL_WRITE);
    ibv_sge sge;
    ASSERT_EQ(pair.a.post(pair.remote(op, sge)), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_REM_INV_REQ_ERR) << op;
    EXPECT_EQ(pair.b.event(), IBV_EVENT_QP_REQ_ERR);
  }
}

TEST(WiredErrors, AnUnalignedAtomicIsAnInvalidRequest) {
  Pair pair;
  ibv_sge sge;
  ASSERT_EQ(pair.a.post(pair.remote(IBV_WR_ATOMIC_FETCH_AND_ADD, sge, 4)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(pair.b.event(), IBV_EVENT_QP_REQ_ERR);
}

TEST(WiredErrors, TheReceiveOfAWriteWithImmediateAndABadKeyEndsWithAnAccessError) {
  Pair pair;
  pair.b.receive(7, 64);
  pair.b.receive(8, 64);
  ibv_sge sge;
  ibv_send_wr wr = pair.remote(IBV_WR_RDMA_WRITE_WITH_IMM, sge);
  wr.wr.rdma.rkey ^= 0x100U;
  ASSERT_EQ(pair.a.post(wr), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
  const ibv_wc first = pair.b.next();
  EXPECT_EQ(first.wr_id, 7U);
  EXPECT_EQ(first.status, IBV_WC_LOC_ACCESS_ERR) << ibv_wc_status_str(first.status);
  const ibv_wc second = pair.b.next();
  EXPECT_EQ(second.wr_id, 8U);
  EXPECT_EQ(second.status, IBV_WC_WR_FLUSH_ERR);
}

// The requests before the bad one end as they deserve, and the peer keeps its receives.
TEST(WiredErrors, ALocalErrorIsNoConcernOfThePeer) {
  for (const ibv_wr_opcode op : {IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE}) {
    Pair pair;
    pair.meet();
    pair.b.receive(1, 64);
    pair.b.receive(2, 64);
    ibv_sge good = pair.a.source(8);
    ibv_send_wr send = send_request(good, 11);
    ibv_sge bad;
    ibv_send_wr wr = pair.remote(op, bad);
    wr.wr_id = 12;
    bad.lkey ^= 0x100U;
    ibv_sge last = pair.a.source(8);
    ibv_send_wr behind = send_request(last, 13);
    send.next = &wr;
    wr.next = &behind;
    ASSERT_EQ(pair.a.post(send), 0);
    ibv_wc wc = pair.a.next();
    EXPECT_EQ(wc.wr_id, 11U);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    wc = pair.a.next();
    EXPECT_EQ(wc.wr_id, 12U);
    EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR) << ibv_wc_status_str(wc.status);
    wc = pair.a.next();
    EXPECT_EQ(wc.wr_id, 13U);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(queried(pair.a).qp_state, IBV_QPS_ERR);
    wc = pair.b.next();
    EXPECT_EQ(wc.wr_id, 1U);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    // It finds out by its own retries, and by nothing else.
    ibv_sge sge = pair.b.source(8);
    ASSERT_EQ(pair.b.post(send_request(sge, 21)), 0);
    wc = pair.b.next();
    EXPECT_EQ(wc.wr_id, 21U);
    EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR) << ibv_wc_status_str(wc.status);
    EXPECT_EQ(pair.a.event(0), IBV_EVENT_CLIENT_REREGISTER);
    EXPECT_EQ(pair.b.event(0), IBV_EVENT_CLIENT_REREGISTER);
  }
}

// The bad request waits for the Acks of those before it, which the receiver holds up.
TEST(WiredErrors, AFailureComesBehindTheRequestsBeforeItHoweverLateTheyEnd) {
  Pair pair;
  pair.meet();
  ibv_sge good = pair.a.source(8);
  ASSERT_EQ(pair.a.post(send_request(good, 1)), 0);
  ibv_sge bad = pair.a.source(8);
  bad.lkey ^= 0x100U;
  ASSERT_EQ(pair.a.post(send_request(bad, 2)), 0);
  EXPECT_EQ(pair.a.polled().wr_id, 0U);
  pair.b.receive(3, 64);
  ibv_wc wc = pair.a.next();
  EXPECT_EQ(wc.wr_id, 1U);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
  wc = pair.a.next();
  EXPECT_EQ(wc.wr_id, 2U);
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
}

TEST(WiredErrors, AFullCompletionQueueEndsItsOwnQueuePairOnly) {
  Pair pair;
  pair.meet();
  ASSERT_EQ(ibv_resize_cq(pair.a.cq_, 1), 0);
  pair.b.receive(1, 64);
  const int room = pair.a.cq_->cqe;
  for (int i = 0; i < 2 * room + 8 && queried(pair.a).qp_state == IBV_QPS_RTS; ++i) {
    pair.b.receive(2, 64);
    ibv_sge sge = pair.a.source(8);
    if (pair.a.post(send_request(sge, 1)) != 0) break;
    // The queue pair may end after the post and before the Send leaves: then nothing comes.
    const auto arrived = [&] { return pair.b.polled().wr_id != 0; };
    ASSERT_TRUE(eventually([&] { return arrived() || queried(pair.a).qp_state == IBV_QPS_ERR; }));
  }
  EXPECT_EQ(pair.a.event(), IBV_EVENT_CQ_ERR);
  EXPECT_TRUE(eventually([&] { return queried(pair.a).qp_state == IBV_QPS_ERR; }));
  EXPECT_EQ(queried(pair.b).qp_state, IBV_QPS_RTS);
  EXPECT_EQ(pair.a.event(0), IBV_EVENT_CLIENT_REREGISTER);
  EXPECT_EQ(pair.b.event(0), IBV_EVENT_CLIENT_REREGISTER);
}

// --- the last receive of a queue pair with a shared queue ---

TEST(WiredShared, EveryMoveToErrorReportsTheLastReceive) {
  for (const ibv_qp_state from : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    End a(IBV_QPT_RC, true), b(IBV_QPT_RC, true);
    ibv_qp_attr attr{};
    if (from == IBV_QPS_RESET) {
      attr.qp_state = IBV_QPS_RESET;
      ASSERT_EQ(a.modify(attr, 0), 0);
    } else if (from == IBV_QPS_RTR) {
      attr = End::rtr(b.address());
      ASSERT_EQ(a.modify(attr, End::kRtr), 0);
    } else if (from == IBV_QPS_RTS) {
      a.wire(b.address());
    }
    attr = {};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(a.modify(attr, 0), 0);
    EXPECT_EQ(a.event(), IBV_EVENT_QP_LAST_WQE_REACHED) << from;
    ASSERT_EQ(a.modify(attr, 0), 0);
    EXPECT_EQ(a.event(0), IBV_EVENT_CLIENT_REREGISTER);  // once
  }
}

TEST(WiredShared, SoDoesTheEndOfAConnection) {
  Pair pair(kRights, true);
  pair.meet();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(pair.a.modify(attr, 0), 0);
  EXPECT_EQ(pair.a.event(), IBV_EVENT_QP_LAST_WQE_REACHED);
  ASSERT_EQ(pair.b.modify(attr, 0), 0);
  EXPECT_EQ(pair.b.event(), IBV_EVENT_QP_LAST_WQE_REACHED);
}

// The shared queue's memory is of its own domain.
TEST(WiredShared, ReceivesNameMemoryOfTheDomainOfTheirQueue) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD}) {
    End from(type), to(type);
    ibv_pd* const other = ibv_alloc_pd(to.device_.get());
    std::array<char, 256> memory{};
    ibv_mr* const mr = ibv_reg_mr(other, memory.data(), memory.size(), kLocalWrite);
    ibv_srq_init_attr srq_attr{};
    srq_attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    ibv_srq* const srq = ibv_create_srq(other, &srq_attr);
    ibv_qp_init_attr attr = rc_attributes(to.cq_);
    attr.qp_type = type;
    attr.srq = srq;
    ASSERT_EQ(ibv_destroy_qp(to.qp_), 0);
    to.qp_ = ibv_create_qp(to.pd_, &attr);
    to.to_init(type);
    ibv_sge into = sge_of(memory.data(), memory.size(), mr);
    ibv_recv_wr receive{5, nullptr, &into, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &receive, &bad), 0);
    std::strcpy(from.memory_.data() + End::kSource, "words");
    ibv_sge sge = from.source(6);
    ibv_send_wr wr = send_request(sge, 1);
    ibv_ah* ah = nullptr;
    if (type == IBV_QPT_RC) {
      from.wire(to.address());
      to.wire(from.address());
    } else {
      from.start_datagrams();
      to.start_datagrams();
      ah = from.way_to(to);
      wr.wr.ud = {.ah = ah, .remote_qpn = to.qp_->qp_num, .remote_qkey = kKey};
    }
    ASSERT_EQ(from.post(wr), 0);
    const ibv_wc wc = to.next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    EXPECT_STREQ(memory.data() + (type == IBV_QPT_UD ? kGrh : 0), "words");
    if (ah != nullptr) {
      EXPECT_EQ(ibv_destroy_ah(ah), 0);
    }
    EXPECT_EQ(ibv_destroy_qp(to.qp_), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
    to.qp_ = ibv_create_qp(to.pd_, &(attr.srq = nullptr, attr));  // for the destructor
  }
}

// --- errno ---

TEST(WiredErrors, CallsThatReturnAnErrorNumberLeaveItInErrnoToo) {
  const End end;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  errno = 0;
  EXPECT_EQ(end.modify(attr, 0), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  ibv_sge sge = end.source(8);
  errno = 0;
  const int posted = end.post(send_request(sge));
  EXPECT_NE(posted, 0);
  EXPECT_EQ(errno, posted);
  errno = 0;
  EXPECT_EQ(ibv_dealloc_pd(end.pd_), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  errno = 0;
  EXPECT_EQ(ibv_destroy_cq(end.cq_), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  ibv_port_attr port{};
  errno = 0;
  EXPECT_EQ(ibv_query_port(end.device_.get(), 7, &port), EINVAL);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace weft::abi
