// Asynchronous events of verbs objects: their descriptor, whom they name, and what waits for their
// acknowledgement.

#include <fcntl.h>

#include <atomic>

#include "abi_support.h"

namespace weft::abi {
namespace {

// What a QP's peer does to it so that it gets an asynchronous event: a Write that no region allows.
void violate(const Connected::Side& peer, const Connected::Side& victim) {
  ibv_sge sge = peer.sge(0, 8);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(victim.memory.data());
  wr.wr.rdma.rkey = victim.mr->rkey + 1;
  EXPECT_EQ(post_send(peer, wr), 0);
}

bool is_qp_error(ibv_event_type type) {
  return type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_QP_REQ_ERR ||
         type == IBV_EVENT_QP_FATAL;
}

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
  Connected pair;
  ibv_context* context = pair.passive.id->verbs;
  violate(pair.active, pair.passive);
  ASSERT_TRUE(readable(context->async_fd));
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_TRUE(is_qp_error(event.event_type)) << ibv_event_type_str(event.event_type);
  EXPECT_TRUE(event.element.qp == pair.passive.id->qp || event.element.qp == pair.active.id->qp);
  ibv_ack_async_event(&event);
}

TEST(VerbsEvents, DestroyingAQpWaitsForTheAcknowledgementOfItsEvents) {
  Connected pair;
  ibv_context* context = pair.passive.id->verbs;
  violate(pair.active, pair.passive);
  ASSERT_TRUE(readable(context->async_fd));
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  ASSERT_TRUE(is_qp_error(event.event_type));
  ibv_qp* qp = event.element.qp;
  rdma_cm_id* owner = qp == pair.passive.id->qp ? pair.passive.id : pair.active.id;
  std::atomic<bool> gone{false};
  std::thread destroyer([&] {
    rdma_destroy_qp(owner);
    gone.store(true);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(gone.load());
  ibv_ack_async_event(&event);
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
  Connected pair;
  ibv_context* context = pair.passive.id->verbs;
  violate(pair.active, pair.passive);
  ASSERT_TRUE(readable(context->async_fd));
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  ibv_ack_async_event(&event);
  ibv_ack_async_event(&event);
  ibv_qp destroyed{};
  event.element.qp = &destroyed;
  ibv_ack_async_event(&event);
}

}  // namespace
}  // namespace weft::abi
