// A device with a domain, a channel and a completion queue on it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "abi_support.h"

namespace weft::abi {

class VerbsObjects : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(device_.get(), nullptr) << "is this running under weft run?";
    pd_ = ibv_alloc_pd(context());
    channel_ = ibv_create_comp_channel(context());
    cq_ = ibv_create_cq(context(), 64, this, channel_, 0);
    ASSERT_NE(pd_, nullptr);
    ASSERT_NE(channel_, nullptr);
    ASSERT_NE(cq_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
  }
  [[nodiscard]] ibv_context* context() const { return device_.get(); }
  [[nodiscard]] ibv_qp* make_qp(std::uint32_t depth = 16) const {
    ibv_qp_init_attr attr = rc_attributes(cq_, depth);
    return ibv_create_qp(pd_, &attr);
  }
  static int set_state(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  }

  Opened device_;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
};

}  // namespace weft::abi
