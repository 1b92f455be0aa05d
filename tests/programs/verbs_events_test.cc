// Asynchronous events of verbs objects: their descriptor, whom they name, and what waits for their
// acknowledgment.

#include <fcntl.h>

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
