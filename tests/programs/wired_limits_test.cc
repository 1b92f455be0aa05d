// What ibv_query_device says of a RoCE-like device is so, also where a process may open few
// descriptors.
#include "support/descriptor_limit.h"
#include "wired_end.h"

namespace weft::abi {
namespace {

TEST(WiredLimits, AsManyQueuePairsAsTheDeviceSaysWhateverTheirType) {
  const test::DescriptorLimit few(1024);
  const Opened device;
  ibv_device_attr limits{};
  ASSERT_EQ(ibv_query_device(device.get(), &limits), 0);
  ASSERT_GE(limits.max_qp, 256);
  ASSERT_LT(limits.max_qp, 1024);
  ibv_pd* const pd = ibv_alloc_pd(device.get());
  ibv_cq* const cq = ibv_create_cq(device.get(), 16, nullptr, nullptr, 0);
  for (const ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_RC}) {
    ibv_qp_init_attr attr = rc_attributes(cq, 1);
    attr.qp_type = type;
    std::vector<ibv_qp*> made;
    for (int i = 0; i < limits.max_qp; ++i) {
      ibv_qp* const qp = ibv_create_qp(pd, &attr);
      if (qp == nullptr) break;
      made.push_back(qp);
    }
    EXPECT_EQ(made.size(), static_cast<std::size_t>(limits.max_qp)) << std::strerror(errno);
    for (ibv_qp* qp : made) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
}

// One of the device's many, with a completion queue of its own.
struct One {
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

bool move(ibv_qp* qp, ibv_qp_attr attr, int mask) {
  return ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE) == 0;
}

One make_one(ibv_context* device, ibv_pd* pd) {
  One out;
  out.cq = ibv_create_cq(device, 4, nullptr, nullptr, 0);
  if (out.cq == nullptr) return out;
  ibv_qp_init_attr attr = rc_attributes(out.cq, 1);
  out.qp = ibv_create_qp(pd, &attr);
  if (out.qp == nullptr) return out;
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = 1;
  EXPECT_TRUE(move(out.qp, init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  return out;
}

// Connects `one` to `peer`, has a receive ready, and sends nothing yet.
void wire_one(const One& one, const One& peer, const ibv_gid& gid) {
  ibv_qp_attr rts = End::rts();
  rts.timeout = 0;  // as long as it takes: the machine may be busy
  ASSERT_TRUE(move(one.qp, End::rtr({gid, peer.qp->qp_num}), End::kRtr));
  ASSERT_TRUE(move(one.qp, rts, End::kRts));
  ibv_recv_wr wr{1, nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(one.qp, &wr, &bad), 0);
}

TEST(WiredLimits, AllQueuePairsThatTheDeviceSaysAreConnectedEachWithItsOwnCompletionQueue) {
  const test::DescriptorLimit few(1024);
  const Opened device;
  ibv_device_attr limits{};
  ibv_gid gid{};
  ASSERT_EQ(ibv_query_device(device.get(), &limits), 0);
  ASSERT_EQ(ibv_query_gid(device.get(), 1, 0, &gid), 0);
  ibv_pd* const pd = ibv_alloc_pd(device.get());
  std::vector<One> all;
  for (int i = 0; i < limits.max_qp / 2 * 2; ++i) {
    all.push_back(make_one(device.get(), pd));
    ASSERT_NE(all.back().qp, nullptr) << i << ": " << std::strerror(errno);
  }
  for (std::size_t i = 0; i < all.size(); ++i) wire_one(all[i], all[i ^ 1U], gid);
  for (const One& one : all) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(one.qp, &wr, &bad), 0);
  }
  for (const One& one : all) {
    for (int i = 0; i < 2; ++i) {
      ibv_wc wc{};
      ASSERT_TRUE(next_completion(one.cq, wc));
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    }
  }
  for (const One& one : all) {
    EXPECT_EQ(ibv_destroy_qp(one.qp), 0);
    EXPECT_EQ(ibv_destroy_cq(one.cq), 0);
  }
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(WiredLimits, AsManyCompletionQueuesAsTheDeviceSays) {
  const test::DescriptorLimit few(1024);
  const Opened device;
  ibv_device_attr limits{};
  ASSERT_EQ(ibv_query_device(device.get(), &limits), 0);
  ibv_comp_channel* const channel = ibv_create_comp_channel(device.get());
  ASSERT_NE(channel, nullptr);
  std::vector<ibv_cq*> made;
  for (int i = 0; i < limits.max_cq; ++i) {
    ibv_comp_channel* const events = i % 1024 == 0 ? channel : nullptr;
    ibv_cq* const cq = ibv_create_cq(device.get(), 1, nullptr, events, 0);
    if (cq == nullptr) break;
    made.push_back(cq);
  }
  EXPECT_EQ(made.size(), static_cast<std::size_t>(limits.max_cq)) << std::strerror(errno);
  for (ibv_cq* cq : made) EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST(WiredLimits, AsManyAddressHandlesAsTheDeviceSaysAndNoMore) {
  const End end(IBV_QPT_UD);
  ibv_device_attr limits{};
  ASSERT_EQ(ibv_query_device(end.device_.get(), &limits), 0);
  std::vector<ibv_ah*> made;
  for (int i = 0; i < limits.max_ah; ++i) {
    ibv_ah* const ah = end.way_to(end);
    if (ah == nullptr) break;
    made.push_back(ah);
  }
  EXPECT_EQ(made.size(), static_cast<std::size_t>(limits.max_ah)) << std::strerror(errno);
  errno = 0;
  EXPECT_EQ(end.way_to(end), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_destroy_ah(made.back()), 0);
  made.back() = end.way_to(end);
  EXPECT_NE(made.back(), nullptr);
  for (ibv_ah* ah : made) EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

}  // namespace
}  // namespace weft::abi
