// Who keeps the lanes of a completion queue between two looks at its channel.
#include <array>

#include "verbs/cq.h"
#include "verbs/poller.h"
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
    // A caller that polls without success takes the lanes over.
    std::array<WorkCompletion, 4> out;
    ASSERT_TRUE(eventually([&] {
      static_cast<void>(cq->poll(out));
      return cq->poller().kept_by_callers();
    }));
  }
  Host host;
  std::shared_ptr<CompletionChannel> channel = *host.device->create_channel();
  std::shared_ptr<CompletionQueueImpl> cq;
};

// The relay of `weft run --sockets` does so before it sleeps in epoll: each answer took 10 ms.
TEST_F(ChannelTest, WaitOfNoTimeIsNoSignThatTheCallerSleepsThere) {
  EXPECT_EQ(channel->wait(0ns).error(), Error::kTimedOut);
  ASSERT_TRUE(cq->arm(CompletionQueue::Arm::kNext));
  EXPECT_FALSE(cq->poller().kept_by_callers()) << "nobody runs the lanes while the caller sleeps";
}

}  // namespace
}  // namespace weft::verbs::test
