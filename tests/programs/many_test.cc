// More connections on one CQ than the engine polls directly (eight), through the verbs ABI.

#include <map>

#include "abi_support.h"

namespace weft::abi {
namespace {

constexpr int kConnections = 12;
constexpr int kMessages = 40;

// All connections of a test, both sides of each on one CQ.
class Many : public testing::Test {
 protected:
  void SetUp() override {
    ibv_context** devices = rdma_get_devices(nullptr);
    ASSERT_NE(devices, nullptr);
    cq_ = ibv_create_cq(devices[0], 4 * kConnections * kMessages, nullptr, nullptr, 0);
    rdma_free_devices(devices);
    ASSERT_NE(cq_, nullptr);
    for (int i = 0; i < kConnections; ++i) {
      pairs_.push_back(std::make_unique<Connected>([this](ibv_qp_init_attr_ex& attr) {
        attr.send_cq = cq_;
        attr.recv_cq = cq_;
        attr.cap = {kMessages, kMessages, 2, 2, 64};
      }));
    }
  }
  void TearDown() override {
    pairs_.clear();
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
  }

  static void post_sends(const Connected::Side& from, int count) {
    for (int i = 0; i < count; ++i) {
      ibv_sge sge = from.sge(0, 32);
      ASSERT_EQ(post_send(from, send_request(sge, static_cast<std::uint64_t>(i))), 0);
    }
  }

  ibv_cq* cq_ = nullptr;
  std::vector<std::unique_ptr<Connected>> pairs_;
};

TEST_F(Many, ConnectionsOnOneQueueGetEachCompletionOnceAndInOrder) {
  for (const auto& pair : pairs_) {
    for (const Connected::Side* side : {&pair->active, &pair->passive}) {
      for (int i = 0; i < kMessages; ++i) side->post_recv(static_cast<std::uint64_t>(i), 64, 32);
    }
  }
  for (const auto& pair : pairs_) {
    post_sends(pair->active, kMessages);
    post_sends(pair->passive, kMessages);
  }
  // By QP: how many Sends and receives have come, which is also the next one's number.
  std::map<std::uint32_t, std::uint64_t> sent;
  std::map<std::uint32_t, std::uint64_t> received;
  for (int i = 0; i < 4 * kConnections * kMessages; ++i) {
    ibv_wc wc{};
    ASSERT_TRUE(next_completion(cq_, wc)) << "after " << i << " completions";
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    std::uint64_t& next = (wc.opcode & IBV_WC_RECV) != 0 ? received[wc.qp_num] : sent[wc.qp_num];
    EXPECT_EQ(wc.wr_id, next++);
  }
  EXPECT_EQ(sent.size(), 2U * kConnections);
  EXPECT_EQ(received.size(), 2U * kConnections);
  ibv_wc none{};
  EXPECT_EQ(ibv_poll_cq(cq_, 1, &none), 0);
}

}  // namespace
}  // namespace weft::abi
