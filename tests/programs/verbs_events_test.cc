// Asynchronous events of verbs objects: their descriptor, whom they name, and what waits for their
// acknowledgment.

#include <fcntl.h>

#include <array>
#include <atomic>

#include "abi_support.h"

namespace weft::abi {
namespace {

bool is_qp_error(ibv_event_type type) {
  return type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_QP_REQ_ERR ||
         type == IBV_EVENT_QP_FATAL;
}

// A connected pair, and the event of the side whose peer broke the rules.
struct Violated {
  Connected pair;
  ibv_async_event event{};

  Violated() {
    ibv_context* context = pair.passive.id->verbs;
    violate(pair.active, pair.passive);
    EXPECT_TRUE(readable(context->async_fd));
    EXPECT_EQ(ibv_get_async_event(context, &event), 0);
    EXPECT_TRUE(is_qp_error(event.event_type)) << ibv_event_type_str(event.event_type);
  }
};

TEST(VerbsEvents, ADescriptorWithoutEventsObeysItsNonBlockingFlag) {
  const Opened device;
  const int fd = device.get()->async_fd;
  ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
  ibv_async_event event{};
  EXPECT_EQ(ibv_get_async_event(device.get(), &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(readable(fd, 0));
}

TEST(VerbsEvents, AViolationNamesTheQpOfTheVictim) {
  Violated v;
  const ibv_qp* qp = v.event.element.qp;
  EXPECT_TRUE(qp == v.pair.passive.id->qp || qp == v.pair.active.id->qp);
  ibv_ack_async_event(&v.event);
}

// UCX reads the count in the public struct, where rdma-core keeps it.
TEST(VerbsEvents, AcknowledgedCompletionEventsAreCountedInTheQueue) {
  Connected pair;
  rdma_cm_id* const id = pair.active.id;
  ibv_cq* const cq = id->send_cq;
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  std::array<char, 8> data{};
  ibv_mr* const mr = ibv_reg_mr(id->pd, data.data(), data.size(), kLocalWrite);
  ibv_sge sge = sge_of(data.data(), 0, mr);
  ibv_send_wr wr = send_request(sge, 1);
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.num_sge = 0;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(id->qp, &wr, &bad), 0);
  ibv_cq* of = nullptr;
  void* context = nullptr;
  ASSERT_TRUE(readable(id->send_cq_channel->fd));
  ASSERT_EQ(ibv_get_cq_event(id->send_cq_channel, &of, &context), 0);
  EXPECT_EQ(cq->comp_events_completed, 0U);
  ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(cq->comp_events_completed, 1U);
  ibv_dereg_mr(mr);
}

TEST(VerbsEvents, DestroyingAQpWaitsForTheAcknowledgementOfItsEvents) {
  Violated v;
  const ibv_qp* qp = v.event.element.qp;
  rdma_cm_id* owner = qp == v.pair.passive.id->qp ? v.pair.passive.id : v.pair.active.id;
  std::atomic<bool> gone{false};
  std::thread destroyer([&] {
    rdma_destroy_qp(owner);
    gone.store(true);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(gone.load());
  ibv_ack_async_event(&v.event);
  destroyer.join();
  EXPECT_TRUE(gone.load());
}

TEST(VerbsEvents, EventsThatNobodyFetchedGoWithTheirQp) {
  ibv_context* context = nullptr;
  {
    Connected pair;
    context = pair.passive.id->verbs;
    violate(pair.active, pair.passive);
    ASSERT_TRUE(readable(context->async_fd));
  }
  EXPECT_FALSE(readable(context->async_fd, 0));
}

TEST(VerbsEvents, AcknowledgingTooOftenOrWhatIsGoneDoesNothing) {
  Violated v;
  ibv_ack_async_event(&v.event);
  ibv_ack_async_event(&v.event);
  ibv_qp destroyed{};
  v.event.element.qp = &destroyed;
  ibv_ack_async_event(&v.event);
}

}  // namespace
}  // namespace weft::abi
