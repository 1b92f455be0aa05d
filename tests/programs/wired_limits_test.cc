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
