// Data through the verbs ABI: every operation between two connected QPs of this process.
#include <endian.h>
#include <unistd.h>

#include <array>
#include <numeric>

#include "abi_support.h"

namespace weft::abi {
namespace {

ibv_send_wr request(ibv_wr_opcode opcode, std::uint64_t wr_id, ibv_sge* sge) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = sge;
  wr.num_sge = sge != nullptr ? 1 : 0;
  return wr;
}

std::uint64_t address_of(const Connected::Side& side, std::size_t offset) {
  return reinterpret_cast<std::uintptr_t>(side.memory.data() + offset);
}

void fill(Connected::Side& side, std::uint8_t first) {
  std::iota(side.memory.begin(), side.memory.end(), first);
}

// The next completion of the CQ that rdma_cm made for one direction.
ibv_wc completion(ibv_cq* cq) {
  ibv_wc wc{};
  EXPECT_TRUE(next_completion(cq, wc));
  return wc;
}

TEST(VerbsData, ASendArrivesInThePostedReceive) {
  Connected pair;
  fill(pair.active, 3);
  pair.passive.post_recv(11, 100, 200);
  ibv_sge sge = pair.active.sge(0, 150);
  ASSERT_EQ(post_send(pair.active, request(IBV_WR_SEND, 12, &sge)), 0);
  const ibv_wc sent = completion(pair.active.id->send_cq);
  EXPECT_EQ(sent.wr_id, 12U);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  const ibv_wc got = completion(pair.passive.id->recv_cq);
  EXPECT_EQ(got.wr_id, 11U);
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.opcode, IBV_WC_RECV);
  EXPECT_EQ(got.byte_len, 150U);
  EXPECT_EQ(got.qp_num, pair.passive.id->qp->qp_num);
  EXPECT_EQ(std::memcmp(pair.passive.memory.data() + 100, pair.active.memory.data(), 150), 0);
}

TEST(VerbsData, AWriteLandsAndAReadBringsItBack) {
  Connected pair;
  fill(pair.active, 5);
  ibv_sge sge = pair.active.sge(0, 1000);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, 1, &sge);
  write.wr.rdma = {address_of(pair.passive, 10), pair.passive.mr->rkey};
  ASSERT_EQ(post_send(pair.active, write), 0);
  EXPECT_EQ(completion(pair.active.id->send_cq).opcode, IBV_WC_RDMA_WRITE);
  ibv_sge back = pair.active.sge(2000, 1000);
  ibv_send_wr read = request(IBV_WR_RDMA_READ, 2, &back);
  read.wr.rdma = write.wr.rdma;
  ASSERT_EQ(post_send(pair.active, read), 0);
  const ibv_wc wc = completion(pair.active.id->send_cq);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 1000U);
  EXPECT_EQ(std::memcmp(pair.active.memory.data() + 2000, pair.active.memory.data(), 1000), 0);
}

TEST(VerbsData, AWriteWithImmediateTakesAReceiveAndBringsItsFourBytes) {
  Connected pair;
  pair.passive.post_recv(21, 0, 0);
  ibv_sge sge = pair.active.sge(0, 64);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE_WITH_IMM, 1, &sge);
  write.wr.rdma = {address_of(pair.passive, 0), pair.passive.mr->rkey};
  write.imm_data = htobe32(0x12345678);
  ASSERT_EQ(post_send(pair.active, write), 0);
  const ibv_wc got = completion(pair.passive.id->recv_cq);
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_NE(got.wc_flags & IBV_WC_WITH_IMM, 0U);
  EXPECT_EQ(be32toh(got.imm_data), 0x12345678U);
  EXPECT_EQ(got.wr_id, 21U);
}

TEST(VerbsData, AtomicsReturnTheOldValueInHostOrder) {
  Connected pair;
  std::uint64_t value = 40;
  std::memcpy(pair.passive.memory.data() + 64, &value, sizeof value);
  ibv_sge sge = pair.active.sge(0, 8);
  ibv_send_wr add = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &sge);
  add.wr.atomic.remote_addr = address_of(pair.passive, 64);
  add.wr.atomic.rkey = pair.passive.mr->rkey;
  add.wr.atomic.compare_add = 2;
  ASSERT_EQ(post_send(pair.active, add), 0);
  EXPECT_EQ(completion(pair.active.id->send_cq).opcode, IBV_WC_FETCH_ADD);
  std::memcpy(&value, pair.active.memory.data(), sizeof value);
  EXPECT_EQ(value, 40U);
  ibv_send_wr swap = add;
  swap.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  swap.wr.atomic.compare_add = 42;
  swap.wr.atomic.swap = 99;
  ASSERT_EQ(post_send(pair.active, swap), 0);
  EXPECT_EQ(completion(pair.active.id->send_cq).opcode, IBV_WC_COMP_SWAP);
  std::memcpy(&value, pair.active.memory.data(), sizeof value);
  EXPECT_EQ(value, 42U);
  std::memcpy(&value, pair.passive.memory.data() + 64, sizeof value);
  EXPECT_EQ(value, 99U);
}

TEST(VerbsData, InlineDataMayBeOverwrittenAtOnce) {
  Connected pair;
  pair.passive.post_recv(1, 0, 64);
  std::array<char, 32> text{};
  std::memcpy(text.data(), "inline data needs no region", 28);
  ibv_sge sge = sge_of(text.data(), text.size(), nullptr);
  ibv_send_wr send = request(IBV_WR_SEND, 1, &sge);
  send.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(post_send(pair.active, send), 0);
  text.fill('x');
  EXPECT_EQ(completion(pair.passive.id->recv_cq).byte_len, 32U);
  EXPECT_STREQ(reinterpret_cast<const char*>(pair.passive.memory.data()),
               "inline data needs no region");
}

TEST(VerbsData, ASendWithImmediateAndBytesIsRefusedAtThePost) {
  Connected pair;
  ibv_sge sge = pair.active.sge(0, 64);
  EXPECT_EQ(post_send(pair.active, request(IBV_WR_SEND_WITH_IMM, 1, &sge)), EOPNOTSUPP);
  pair.passive.post_recv(5, 0, 0);
  ibv_send_wr empty = request(IBV_WR_SEND_WITH_IMM, 2, nullptr);
  empty.imm_data = htobe32(77);
  EXPECT_EQ(post_send(pair.active, empty), 0);
  const ibv_wc got = completion(pair.passive.id->recv_cq);
  EXPECT_EQ(be32toh(got.imm_data), 77U);
}

TEST(VerbsData, AWriteOutsideTheRegionFailsWithRemoteAccessAndEndsTheConnection) {
  Connected pair;
  ibv_sge sge = pair.active.sge(0, 64);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, 1, &sge);
  write.wr.rdma = {address_of(pair.passive, Connected::kBytes), pair.passive.mr->rkey};
  pair.passive.post_recv(9, 0, 16);
  ASSERT_EQ(post_send(pair.active, write), 0);
  // The Write itself is done once TCP has it; the peer's answer ends both QPs.
  EXPECT_EQ(NextEvent(pair.active_channel()).type(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(NextEvent(pair.passive_channel()).type(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(completion(pair.passive.id->recv_cq).status, IBV_WC_WR_FLUSH_ERR);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(pair.active.id->qp, &now, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(now.qp_state, IBV_QPS_ERR);
}

TEST(VerbsData, AReadWithTheWrongKeyFailsWithRemoteAccess) {
  Connected pair;
  ibv_sge sge = pair.active.sge(0, 64);
  ibv_send_wr read = request(IBV_WR_RDMA_READ, 31, &sge);
  read.wr.rdma = {address_of(pair.passive, 0), pair.passive.mr->rkey ^ 0x100U};
  ASSERT_EQ(post_send(pair.active, read), 0);
  const ibv_wc wc = completion(pair.active.id->send_cq);
  EXPECT_EQ(wc.wr_id, 31U);
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
}

TEST(VerbsData, ASendWithInvalidateTakesAWindowAway) {
  Connected pair;
  ibv_mw* mw = ibv_alloc_mw(pair.passive.id->pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  ibv_send_wr bind = request(IBV_WR_BIND_MW, 1, nullptr);
  bind.bind_mw.mw = mw;
  bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  bind.bind_mw.bind_info = {pair.passive.mr, address_of(pair.passive, 0), 256,
                            // The local right means nothing here; drivers take and ignore it.
                            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE};
  ASSERT_EQ(post_send(pair.passive, bind), 0);
  const ibv_wc bound = completion(pair.passive.id->send_cq);
  ASSERT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);

  fill(pair.active, 9);
  ibv_sge sge = pair.active.sge(0, 256);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, 2, &sge);
  write.wr.rdma = {address_of(pair.passive, 0), bind.bind_mw.rkey};
  ASSERT_EQ(post_send(pair.active, write), 0);
  EXPECT_EQ(completion(pair.active.id->send_cq).status, IBV_WC_SUCCESS);

  pair.passive.post_recv(3, 1024, 64);
  ibv_send_wr send = request(IBV_WR_SEND_WITH_INV, 4, nullptr);
  send.invalidate_rkey = bind.bind_mw.rkey;
  ASSERT_EQ(post_send(pair.active, send), 0);
  EXPECT_EQ(completion(pair.active.id->send_cq).status, IBV_WC_SUCCESS);
  const ibv_wc got = completion(pair.passive.id->recv_cq);
  EXPECT_NE(got.wc_flags & IBV_WC_WITH_INV, 0U);
  EXPECT_EQ(got.invalidated_rkey, bind.bind_mw.rkey);
  EXPECT_EQ(std::memcmp(pair.passive.memory.data(), pair.active.memory.data(), 256), 0);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST(VerbsData, ATypeOneWindowIsBoundByItsOwnCall) {
  Connected pair;
  ibv_mw* mw = ibv_alloc_mw(pair.passive.id->pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  const std::uint32_t before = mw->rkey;
  ibv_mw_bind bind{};
  bind.wr_id = 8;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {pair.passive.mr, address_of(pair.passive, 0), 64, IBV_ACCESS_REMOTE_READ};
  ASSERT_EQ(ibv_bind_mw(pair.passive.id->qp, mw, &bind), 0);
  EXPECT_NE(mw->rkey, before);
  const ibv_wc bound = completion(pair.passive.id->send_cq);
  EXPECT_EQ(bound.wr_id, 8U);
  ASSERT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(pair.passive.mr), EBUSY);  // a window is bound to it
  ibv_sge sge = pair.active.sge(0, 64);
  ibv_send_wr read = request(IBV_WR_RDMA_READ, 9, &sge);
  read.wr.rdma = {address_of(pair.passive, 0), mw->rkey};
  ASSERT_EQ(post_send(pair.active, read), 0);
  EXPECT_EQ(completion(pair.active.id->send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST(VerbsData, AnUnsignaledRequestGivesNoCompletion) {
  Connected pair;
  pair.passive.post_recv(1, 0, 64);
  pair.passive.post_recv(2, 64, 64);
  ibv_sge sge = pair.active.sge(0, 8);
  ibv_send_wr quiet = request(IBV_WR_SEND, 41, &sge);
  quiet.send_flags = 0;
  ASSERT_EQ(post_send(pair.active, quiet), 0);
  ASSERT_EQ(post_send(pair.active, request(IBV_WR_SEND, 42, &sge)), 0);
  EXPECT_EQ(completion(pair.active.id->send_cq).wr_id, 42U);
  EXPECT_EQ(completion(pair.passive.id->recv_cq).wr_id, 1U);
  EXPECT_EQ(completion(pair.passive.id->recv_cq).wr_id, 2U);
}

TEST(VerbsData, SolicitedArmingWakesForASolicitedSendOnly) {
  Connected pair;
  pair.passive.post_recv(1, 0, 64);
  pair.passive.post_recv(2, 64, 64);
  ASSERT_EQ(ibv_req_notify_cq(pair.passive.id->recv_cq, 1), 0);
  ibv_sge sge = pair.active.sge(0, 8);
  ASSERT_EQ(post_send(pair.active, request(IBV_WR_SEND, 1, &sge)), 0);
  EXPECT_EQ(completion(pair.passive.id->recv_cq).wr_id, 1U);
  EXPECT_FALSE(readable(pair.passive.id->recv_cq_channel->fd, 50));
  ibv_send_wr solicited = request(IBV_WR_SEND, 2, &sge);
  solicited.send_flags |= IBV_SEND_SOLICITED;
  ASSERT_EQ(post_send(pair.active, solicited), 0);
  EXPECT_TRUE(readable(pair.passive.id->recv_cq_channel->fd));
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(pair.passive.id->recv_cq_channel, &cq, &context), 0);
  EXPECT_EQ(context, pair.passive.id);
  ibv_ack_cq_events(cq, 1);
}

TEST(VerbsData, TheSrqLimitIsReportedOnceAsAnAsyncEvent) {
  ibv_srq* srq = nullptr;
  {
    Connected pair([&](ibv_qp_init_attr_ex& attr) {
      if (srq == nullptr) {
        ibv_srq_init_attr init{};
        init.attr = {16, 1, 0};
        srq = ibv_create_srq(attr.pd, &init);
      }
      attr.srq = srq;
    });
    ASSERT_NE(srq, nullptr);
    for (std::uint64_t i = 0; i < 4; ++i) {
      ibv_sge sge = pair.passive.sge(i * 64, 64);
      ibv_recv_wr wr{i, nullptr, &sge, 1};
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    }
    ibv_srq_attr limit{0, 0, 3};
    ASSERT_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
    ibv_sge sge = pair.active.sge(0, 8);
    for (std::uint64_t i = 0; i < 2; ++i) {
      ASSERT_EQ(post_send(pair.active, request(IBV_WR_SEND, i, &sge)), 0);
    }
    ASSERT_TRUE(readable(srq->context->async_fd));
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(srq->context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event.element.srq, srq);
    ibv_ack_async_event(&event);
    EXPECT_FALSE(readable(srq->context->async_fd, 20));
  }
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST(VerbsData, TheBuilderPostsAllOfABatchOrNothing) {
  Connected pair([](ibv_qp_init_attr_ex& attr) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags =
        IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
  });
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.active.id->qp);
  ASSERT_NE(qp, nullptr);
  fill(pair.active, 77);
  pair.passive.post_recv(50, 2048, 64);

  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, pair.passive.mr->rkey, address_of(pair.passive, 0));
  ibv_wr_set_sge(qp, pair.active.mr->lkey, address_of(pair.active, 0), 512);
  qp->wr_id = 2;
  ibv_wr_send(qp);
  std::array<char, 8> text = {'b', 'u', 'i', 'l', 't', '!', '!', 0};
  ibv_wr_set_inline_data(qp, text.data(), text.size());
  text.fill('x');  // copied by the call before
  EXPECT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(completion(pair.active.id->send_cq).wr_id, 1U);
  EXPECT_EQ(completion(pair.active.id->send_cq).wr_id, 2U);
  EXPECT_EQ(completion(pair.passive.id->recv_cq).byte_len, 8U);
  EXPECT_STREQ(reinterpret_cast<const char*>(pair.passive.memory.data() + 2048), "built!!");
  EXPECT_EQ(std::memcmp(pair.passive.memory.data(), pair.active.memory.data(), 512), 0);

  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_rdma_read(qp, 0, 0);
  std::vector<ibv_sge> too_many(64);
  ibv_wr_set_sge_list(qp, too_many.size(), too_many.data());
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_abort(qp);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(pair.active.id->send_cq, 1, &wc), 0);
}

// The slots of requests that are done but not polled are taken.
TEST(VerbsData, TheBuilderPostsNothingOfABatchThatOnlyPollingMakesRoomFor) {
  Connected pair([](ibv_qp_init_attr_ex& attr) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  });
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.active.id->qp);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr now{};
  ibv_qp_init_attr made{};
  ASSERT_EQ(ibv_query_qp(pair.active.id->qp, &now, IBV_QP_CAP, &made), 0);
  ASSERT_GE(now.cap.max_send_wr, 4U);
  constexpr std::uint64_t kReceives = 8;
  const std::uint64_t done = now.cap.max_send_wr - 2;
  for (std::uint64_t id = 0; id < kReceives; ++id) pair.passive.post_recv(id, 0, 64);
  for (std::uint64_t id = 0; id < done; ++id) {
    ASSERT_EQ(post_send(pair.active, request(IBV_WR_SEND, id, nullptr)), 0);
    EXPECT_EQ(completion(pair.passive.id->recv_cq).wr_id, id);
    pair.passive.post_recv(id + kReceives, 0, 64);
  }
  const auto batch_of_four = [&](std::uint64_t first) {
    ibv_wr_start(qp);
    for (std::uint64_t id = first; id < first + 4; ++id) {
      qp->wr_id = id;
      qp->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_send(qp);
    }
    return ibv_wr_complete(qp);
  };
  // The engine is done with the Sends before the last round. So it was before the first, perhaps.
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(batch_of_four(1000), ENOMEM);
    ::usleep(2000);
  }
  for (std::uint64_t id = 0; id < done; ++id) {
    EXPECT_EQ(completion(pair.active.id->send_cq).wr_id, id);
  }
  ASSERT_EQ(batch_of_four(2000), 0);
  for (std::uint64_t id = 0; id < 4; ++id) {
    EXPECT_EQ(completion(pair.active.id->send_cq).wr_id, 2000 + id);
    EXPECT_EQ(completion(pair.passive.id->recv_cq).wr_id, done + id);
  }
}

TEST(VerbsData, TheBuilderHoldsNothingOfABindThatItHasPosted) {
  Connected pair([](ibv_qp_init_attr_ex& attr) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_BIND_MW;
  });
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.passive.id->qp);
  ASSERT_NE(qp, nullptr);
  ibv_mw* mw = ibv_alloc_mw(pair.passive.id->pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const ibv_mw_bind_info info = {pair.passive.mr, address_of(pair.passive, 0), 256,
                                 IBV_ACCESS_REMOTE_WRITE};
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(mw->rkey), &info);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ASSERT_EQ(completion(pair.passive.id->send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dereg_mr(pair.passive.mr), 0) << "the window is gone";
  pair.passive.mr = ibv_reg_mr(pair.passive.id->pd, pair.passive.memory.data(),
                               pair.passive.memory.size(), IBV_ACCESS_LOCAL_WRITE);
}

TEST(VerbsData, TheExtendedCqShowsOneCompletionAtATime) {
  Opened device;
  ibv_cq_ex* cq = nullptr;
  {
    Connected pair([&](ibv_qp_init_attr_ex& attr) {
      if (cq == nullptr) {
        ibv_cq_init_attr_ex init{};
        init.cqe = 32;
        init.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM;
        cq = ibv_create_cq_ex(attr.pd->context, &init);
        attr.recv_cq = ibv_cq_ex_to_cq(cq);
      } else {
        attr.recv_cq = ibv_cq_ex_to_cq(cq);
      }
    });
    ibv_poll_cq_attr none{};
    EXPECT_EQ(ibv_start_poll(cq, &none), ENOENT);
    pair.passive.post_recv(71, 0, 64);
    pair.passive.post_recv(72, 64, 64);
    ibv_sge sge = pair.active.sge(0, 24);
    ASSERT_EQ(post_send(pair.active, request(IBV_WR_SEND, 1, &sge)), 0);
    ASSERT_EQ(post_send(pair.active, request(IBV_WR_SEND, 2, &sge)), 0);
    EXPECT_EQ(completion(pair.active.id->send_cq).wr_id, 1U);
    EXPECT_EQ(completion(pair.active.id->send_cq).wr_id, 2U);
    std::vector<std::uint64_t> seen;
    while (seen.size() < 2) {
      if (ibv_start_poll(cq, &none) != 0) continue;
      do {
        EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
        EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
        EXPECT_EQ(ibv_wc_read_byte_len(cq), 24U);
        EXPECT_EQ(ibv_wc_read_qp_num(cq), pair.passive.id->qp->qp_num);
        seen.push_back(cq->wr_id);
      } while (ibv_next_poll(cq) == 0);
      ibv_end_poll(cq);
    }
    EXPECT_EQ(seen, (std::vector<std::uint64_t>{71, 72}));
  }
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST(VerbsData, AFullSendQueueRefusesTheRequestThatDoesNotFit) {
  Connected pair;
  // Reads wait for their answers, so that the queue fills; the peer's answers come from a thread.
  ibv_sge sge = pair.active.sge(0, 8);
  std::vector<ibv_send_wr> list(4000);
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = request(IBV_WR_RDMA_READ, i, &sge);
    list[i].wr.rdma = {address_of(pair.passive, 0), pair.passive.mr->rkey};
    list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(pair.active.id->qp, list.data(), &bad), ENOMEM);
  ASSERT_NE(bad, nullptr);
  for (std::uint64_t i = 0; i < bad->wr_id; ++i) {
    EXPECT_EQ(completion(pair.active.id->send_cq).wr_id, i);
  }
}

}  // namespace
}  // namespace weft::abi
