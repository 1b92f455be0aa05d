// Batches of the ibv_wr_ builder that are not right, and those at the edge of it.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "abi_support.h"

namespace weft::abi {
namespace {

constexpr std::uint64_t kOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                               IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                               IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_BIND_MW;

class VerbsBuilder : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(qp_, nullptr); }

  std::uint64_t theirs(std::size_t offset) {
    return reinterpret_cast<std::uintptr_t>(pair_.passive.memory.data() + offset);
  }
  void set_mine(std::uint32_t length) {
    const auto addr = reinterpret_cast<std::uintptr_t>(pair_.active.memory.data());
    ibv_wr_set_sge(qp_, pair_.active.mr->lkey, addr, length);
  }
  // A batch that begins with a Write to the peer.
  void start_with_write() {
    std::fill(pair_.active.memory.begin(), pair_.active.memory.end(), 0x5a);
    ibv_wr_start(qp_);
    qp_->wr_id = 1;
    qp_->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp_, pair_.passive.mr->rkey, theirs(0));
    set_mine(64);
    qp_->wr_id = 2;
  }
  void expect_nothing_posted() {
    ibv_wc wc{};
    ::usleep(50'000);
    EXPECT_EQ(ibv_poll_cq(pair_.active.id->send_cq, 1, &wc), 0);
    EXPECT_EQ(pair_.passive.memory[0], 0);
  }

  Connected pair_{[](ibv_qp_init_attr_ex& attr) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = kOps;
  }};
  ibv_qp_ex* qp_ = ibv_qp_to_qp_ex(pair_.active.id->qp);
};

TEST_F(VerbsBuilder, AnAtomicOfFourOctetsKeepsTheWholeBatchBack) {
  start_with_write();
  ibv_wr_atomic_fetch_add(qp_, pair_.passive.mr->rkey, theirs(0), 1);
  set_mine(4);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
  expect_nothing_posted();
}

TEST_F(VerbsBuilder, AnInlineReadKeepsTheWholeBatchBack) {
  start_with_write();
  ibv_wr_rdma_read(qp_, pair_.passive.mr->rkey, theirs(0));
  std::array<char, 4> data{};
  ibv_wr_set_inline_data(qp_, data.data(), data.size());
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
  expect_nothing_posted();
}

TEST_F(VerbsBuilder, AMessageThatIsTooLongKeepsTheWholeBatchBack) {
  start_with_write();
  ibv_wr_send(qp_);
  set_mine(~std::uint32_t{0});
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
  expect_nothing_posted();
}

TEST_F(VerbsBuilder, AWindowOfAnotherDomainKeepsTheWholeBatchBack) {
  ibv_pd* pd = ibv_alloc_pd(pair_.active.id->verbs);
  ASSERT_NE(pd, nullptr);
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  start_with_write();
  const ibv_mw_bind_info none{};
  ibv_wr_bind_mw(qp_, mw, ibv_inc_rkey(mw->rkey), &none);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
  expect_nothing_posted();
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(VerbsBuilder, ImmediateDataMayHaveAListWithoutOctets) {
  pair_.passive.post_recv(1, 0, 0);
  pair_.passive.post_recv(2, 0, 0);
  pair_.passive.post_recv(3, 0, 0);
  ibv_wr_start(qp_);
  qp_->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_imm(qp_, 7);
  set_mine(0);
  ibv_wr_send_imm(qp_, 7);
  ibv_wr_set_inline_data(qp_, nullptr, 0);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
  ibv_sge sge = pair_.active.sge(0, 0);
  ibv_send_wr wr = send_request(sge);
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = 7;
  EXPECT_EQ(post_send(pair_.active, wr), 0);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ibv_wc wc{};
    ASSERT_TRUE(next_completion(pair_.passive.id->recv_cq, wc));
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.imm_data, 7U);
  }
}

}  // namespace
}  // namespace weft::abi
