// Completion queues, their channels and shared receive queues of the verbs ABI.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>

#include "verbs_objects.h"

namespace weft::abi {
namespace {

class VerbsQueues : public VerbsObjects {};

TEST_F(VerbsQueues, CompletionQueuesRefuseBadSizesVectorsAndChannels) {
  const auto errno_for = [&](int cqe, ibv_comp_channel* channel, int vector) {
    errno = 0;
    ibv_cq* cq = ibv_create_cq(context(), cqe, nullptr, channel, vector);
    if (cq != nullptr) ibv_destroy_cq(cq);
    return cq != nullptr ? 0 : errno;
  };
  ibv_comp_channel* freed = ibv_create_comp_channel(context());
  ASSERT_EQ(ibv_destroy_comp_channel(freed), 0);
  EXPECT_EQ(errno_for(0, nullptr, 0), EINVAL);
  EXPECT_EQ(errno_for(-1, nullptr, 0), EINVAL);
  EXPECT_EQ(errno_for(1 << 30, nullptr, 0), EINVAL);
  EXPECT_EQ(errno_for(16, nullptr, -1), EINVAL);
  EXPECT_EQ(errno_for(16, nullptr, context()->num_comp_vectors), EINVAL);
  EXPECT_EQ(errno_for(16, freed, 0), EINVAL);
  EXPECT_EQ(errno_for(1, nullptr, 0), 0);
}

TEST_F(VerbsQueues, QueuesChannelsAndDomainsInUseAreBusy) {
  ibv_qp* qp = make_qp();
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_cq(cq_), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_channel(channel_), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), EINVAL);
}

TEST_F(VerbsQueues, ACqCanGrowAndSaysHowLargeItIs) {
  EXPECT_EQ(ibv_resize_cq(cq_, 500), 0);
  EXPECT_GE(cq_->cqe, 500);
  EXPECT_EQ(ibv_resize_cq(cq_, 0), EINVAL);
}

// Programs fill a receive queue as far as it says, and make a completion queue of the same length.
TEST_F(VerbsQueues, ACqHoldsTheCompletionsOfAReceiveQueueThatWasAskedForAsLong) {
  for (const std::uint32_t length : {1U, 5U, 100U, 4095U}) {
    ibv_cq* cq = ibv_create_cq(context(), static_cast<int>(length), nullptr, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    ibv_srq_init_attr init{};
    init.attr = {length, 1, 0};
    ibv_srq* srq = ibv_create_srq(pd_, &init);
    ASSERT_NE(srq, nullptr);
    ibv_qp_init_attr attr = rc_attributes(cq);
    attr.cap.max_recv_wr = length;
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_GE(cq->cqe, static_cast<int>(init.attr.max_wr));
    EXPECT_GE(cq->cqe, static_cast<int>(attr.cap.max_recv_wr));
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_resize_cq(cq, static_cast<int>(length + 2)), 0);
    ibv_srq_attr longer{length + 2, 1, 0};
    EXPECT_EQ(ibv_modify_srq(srq, &longer, IBV_SRQ_MAX_WR), 0);
    EXPECT_EQ(ibv_query_srq(srq, &longer), 0);
    EXPECT_GE(cq->cqe, static_cast<int>(longer.max_wr));
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
  }
}

TEST_F(VerbsQueues, DestroyingACqWaitsForTheAcknowledgementOfItsEvents) {
  ibv_comp_channel* channel = ibv_create_comp_channel(context());
  ibv_cq* cq = ibv_create_cq(context(), 8, &channel, channel, 0);
  ibv_qp_init_attr attr = rc_attributes(cq);
  ibv_qp* qp = ibv_create_qp(pd_, &attr);
  ASSERT_NE(qp, nullptr);
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  ASSERT_EQ(set_state(qp, IBV_QPS_ERR), 0);
  ibv_recv_wr recv{1, nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qp, &recv, &bad), 0);
  ibv_cq* woken = nullptr;
  void* its_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &woken, &its_context), 0);
  EXPECT_EQ(woken, cq);
  EXPECT_EQ(its_context, &channel);
  ASSERT_EQ(ibv_destroy_qp(qp), 0);
  auto destroyed = std::async(std::launch::async, [&] { return ibv_destroy_cq(cq); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(destroyed.get(), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(VerbsQueues, ChannelsObeyTheirDescriptorsNonBlockingFlag) {
  ASSERT_EQ(fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK), 0);
  ibv_cq* cq = nullptr;
  void* its_context = nullptr;
  EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &its_context), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_EQ(fcntl(context()->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event{};
  EXPECT_EQ(ibv_get_async_event(context(), &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(VerbsQueues, SharedReceiveQueuesCanBeAskedChangedAndAreBusyInUse) {
  ibv_srq_init_attr init{};
  init.attr = {32, 2, 0};
  ibv_srq* srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  EXPECT_GE(init.attr.max_wr, 32U);
  ibv_qp_init_attr attr = rc_attributes(cq_);
  attr.srq = srq;
  ibv_qp* qp = ibv_create_qp(pd_, &attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
  ibv_recv_wr recv{1, nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(qp, &recv, &bad), EINVAL);  // its receives come from the SRQ
  EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad), 0);
  ibv_srq_attr change{0, 0, 1000000};
  EXPECT_EQ(ibv_modify_srq(srq, &change, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(ibv_modify_srq(srq, &change, 1 << 6), EINVAL);
  change = {64, 0, 0};
  EXPECT_EQ(ibv_modify_srq(srq, &change, IBV_SRQ_MAX_WR), 0);
  ibv_srq_attr now{};
  EXPECT_EQ(ibv_query_srq(srq, &now), 0);
  EXPECT_GE(now.max_wr, 64U);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), EINVAL);
}

}  // namespace
}  // namespace weft::abi
