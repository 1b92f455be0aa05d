// Device memory through an ordinary verbs program: ibv_alloc_dm and its family.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "abi_support.h"

namespace {

constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED;

ibv_context* open_weft() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count && context == nullptr; ++i) {
    if (std::strcmp(ibv_get_device_name(list[i]), "weft0") == 0) context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  return context;
}

class DeviceMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    context_ = open_weft();
    ASSERT_NE(context_, nullptr);
    pd_ = ibv_alloc_pd(context_);
    ASSERT_NE(pd_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    EXPECT_EQ(ibv_close_device(context_), 0);
  }
  ibv_dm* allocate(std::size_t length, std::uint32_t log_align = 0) {
    ibv_alloc_dm_attr attr{length, log_align, 0};
    return ibv_alloc_dm(context_, &attr);
  }
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
};

TEST_F(DeviceMemory, ItsSizeIsInTheExtendedAttributes) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &attr), 0);
  EXPECT_GE(attr.max_dm_size, 1U << 20U);
  EXPECT_EQ(allocate(attr.max_dm_size + 1), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_dm* all = allocate(attr.max_dm_size);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(allocate(1), nullptr);
  EXPECT_EQ(ibv_free_dm(all), 0);
}

TEST_F(DeviceMemory, KeepsWhatIsCopiedInAndChecksItsBorders) {
  ibv_dm* dm = allocate(1000, 6);
  ASSERT_NE(dm, nullptr);
  std::vector<std::uint8_t> in(1000);
  std::iota(in.begin(), in.end(), std::uint8_t{1});
  std::vector<std::uint8_t> out(1000, 0xff);
  ASSERT_EQ(ibv_memcpy_from_dm(out.data(), dm, 0, 1000), 0);
  EXPECT_EQ(out, std::vector<std::uint8_t>(1000, 0));
  ASSERT_EQ(ibv_memcpy_to_dm(dm, 0, in.data(), 1000), 0);
  ASSERT_EQ(ibv_memcpy_from_dm(out.data(), dm, 0, 1000), 0);
  EXPECT_EQ(out, in);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 1000, in.data(), 0), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 4, in.data(), 1000), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(out.data(), dm, ~std::uint64_t{0}, 2), EINVAL);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  EXPECT_NE(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemory, IsCopiedInWholeWordsAsByAdapters) {
  ibv_dm* dm = allocate(64);
  ASSERT_NE(dm, nullptr);
  std::vector<std::uint8_t> octets(64);
  for (const auto& [offset, length] : {std::pair{1, 4}, {4, 1}, {2, 2}, {0, 63}}) {
    EXPECT_EQ(ibv_memcpy_to_dm(dm, offset, octets.data(), length), EINVAL) << offset << length;
    EXPECT_EQ(ibv_memcpy_from_dm(octets.data(), dm, offset, length), EINVAL) << offset << length;
  }
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 60, octets.data(), 4), 0);
  EXPECT_EQ(ibv_memcpy_from_dm(octets.data(), dm, 60, 4), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemory, ASegmentWithARegionIsBusy) {
  ibv_dm* dm = allocate(8192);
  ASSERT_NE(dm, nullptr);
  EXPECT_EQ(ibv_reg_dm_mr(pd_, dm, 0, 8192, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL) << "device memory is zero-based or nothing";
  EXPECT_EQ(ibv_reg_dm_mr(pd_, dm, 1, 8192, kAll), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_mr* mr = ibv_reg_dm_mr(pd_, dm, 4096, 4096, kAll);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, 4096U);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST(DeviceMemoryData, IsTheTargetAndTheSourceOfRdma) {
  weft::abi::Connected pair;
  std::iota(pair.active.memory.begin(), pair.active.memory.end(), std::uint8_t{9});
  ibv_alloc_dm_attr attr{4096, 12, 0};
  ibv_dm* dm = ibv_alloc_dm(pair.passive.id->verbs, &attr);
  ASSERT_NE(dm, nullptr);
  ibv_mr* mr = ibv_reg_dm_mr(pair.passive.id->pd, dm, 1000, 2000, kAll);
  ASSERT_NE(mr, nullptr);
  const auto exchange = [&](ibv_wr_opcode opcode, std::size_t local, std::uint64_t remote,
                            std::size_t length) {
    ibv_sge sge = pair.active.sge(local, length);
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = mr->rkey;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(pair.active.id->qp, &wr, &bad), 0);
    ibv_wc wc{};
    EXPECT_TRUE(weft::abi::next_completion(pair.active.id->send_cq, wc));
    return wc.status;
  };
  ASSERT_EQ(exchange(IBV_WR_RDMA_WRITE, 0, 500, 700), IBV_WC_SUCCESS);
  ASSERT_EQ(exchange(IBV_WR_RDMA_READ, 1000, 500, 700), IBV_WC_SUCCESS);
  const auto* memory = pair.active.memory.data();
  EXPECT_EQ(std::memcmp(memory, memory + 1000, 700), 0);
  std::vector<std::uint8_t> seen(700);
  ASSERT_EQ(ibv_memcpy_from_dm(seen.data(), dm, 1500, 700), 0);
  EXPECT_EQ(std::memcmp(seen.data(), memory, 700), 0);
  // One octet beyond the region, though inside the segment.
  EXPECT_NE(exchange(IBV_WR_RDMA_READ, 1000, 1301, 700), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DeviceMemory, RefusesWhatItDoesNotKnow) {
  ibv_alloc_dm_attr attr{64, 0, 1};
  EXPECT_EQ(ibv_alloc_dm(context_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(allocate(0), nullptr);
  EXPECT_EQ(allocate(64, 63), nullptr);
}

TEST_F(DeviceMemory, AContextThatIsClosedGivesEverythingBack) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &attr), 0);
  for (int round = 0; round < 3; ++round) {
    ibv_context* other = open_weft();
    ASSERT_NE(other, nullptr);
    ibv_alloc_dm_attr want{attr.max_dm_size / 2, 0, 0};
    ibv_dm* dm = ibv_alloc_dm(other, &want);
    ASSERT_NE(dm, nullptr) << "round " << round;
    EXPECT_EQ(ibv_free_dm(dm), 0);
    EXPECT_EQ(ibv_close_device(other), 0);
  }
}

}  // namespace
