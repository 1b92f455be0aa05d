// Who keeps the lanes of a completion queue between two looks at its channel.
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "verbs/cq.h"
#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

class ChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CqOptions options;
    options.depth = 8;
    options.channel = channel;
    auto made = host.device->create_cq(options);
    ASSERT_TRUE(made);
    cq = std::dynamic_pointer_cast<CompletionQueueImpl>(*made);
    ASSERT_NE(cq, nullptr);
    QpOptions with;
    with.send_cq = with.recv_cq = cq;
    auto queue_pair = host.pd->create_qp(with);
    ASSERT_TRUE(queue_pair);
    qp = std::move(*queue_pair);
    ASSERT_EQ(cq->shards().all().size(), 1U);
    // A caller that polls without success takes the lanes over.
    std::array<WorkCompletion, 4> out;
    ASSERT_TRUE(eventually([&] {
      static_cast<void>(cq->poll(out));
      return kept_by_callers();
    }));
  }
  [[nodiscard]] bool kept_by_callers() const {
    return cq->shards().all().front()->owner().is_callers();
  }
  Host host;
  std::shared_ptr<CompletionChannel> channel = *host.device->create_channel();
  std::shared_ptr<CompletionQueueImpl> cq;
  std::shared_ptr<QueuePair> qp;
};

// The relay of `weft run --sockets` does so before it sleeps in epoll: each answer took 10 ms.
TEST_F(ChannelTest, WaitOfNoTimeIsNoSignThatTheCallerSleepsThere) {
  EXPECT_EQ(channel->wait(0ns).error(), Error::kTimedOut);
  ASSERT_TRUE(cq->arm(CompletionQueue::Arm::kNext));
  EXPECT_FALSE(kept_by_callers()) << "nobody runs the lanes while the caller sleeps";
}

// ibv_destroy_cq() waits so. A thread in ibv_get_cq_event() got a CQ that was gone.
TEST_F(ChannelTest, EventThatNobodyHasTakenIsDroppedBeforeTheCqGoes) {
  auto& events = dynamic_cast<CompletionChannelImpl&>(*channel);
  events.queue_event(*cq);
  cq->wait_for_acks();
  EXPECT_EQ(channel->wait(0ns).error(), Error::kTimedOut);
  events.queue_event(*cq);  // by a thread that was about to
  EXPECT_EQ(channel->wait(0ns).error(), Error::kTimedOut);
}

// Threads that take events meet one that destroys CQs, as ibv_destroy_cq() does: who has got an
// event has a CQ that lives until he acknowledges it.
TEST_F(ChannelTest, CqLivesUntilEveryEventTakenIsAcknowledged) {
  auto& events = dynamic_cast<CompletionChannelImpl&>(*channel);
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> gone{0};  // CQs destroyed so far; a CQ's context is its number
  std::atomic<int> early{0};
  std::vector<std::thread> takers;
  for (int i = 0; i < 2; ++i) {
    takers.emplace_back([&] {
      while (!over) {
        const auto event = channel->wait(0ns);
        if (!event) continue;
        const auto number = reinterpret_cast<std::uintptr_t>((*event)->context());
        std::this_thread::yield();
        if (gone >= number) ++early;
        (*event)->ack_events(1);
      }
    });
  }
  CqOptions options;
  options.depth = 8;
  options.channel = channel;
  for (std::uintptr_t number = 1; number <= 3000; ++number) {
    options.context = reinterpret_cast<void*>(number);
    auto made = host.device->create_cq(options);
    if (!made) break;
    events.queue_event(dynamic_cast<CompletionQueueImpl&>(**made));
    if (number % 3 != 0) std::this_thread::yield();
    (*made)->wait_for_acks();
    gone = number;
    made->reset();
  }
  over = true;
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(gone, 3000U);
  EXPECT_EQ(early, 0);
}

}  // namespace
}  // namespace weft::verbs::test
