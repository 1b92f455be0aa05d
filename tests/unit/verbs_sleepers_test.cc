// Several threads sleep on one shard: who finds more than it does tells the others.
#include <functional>
#include <thread>

#include "progress_testing.h"
#include "verbs/completion_channel.h"
#include "verbs/cq.h"
#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

using progress::Look;
using progress::test::kReadsPerTurn;
using progress::test::Meeting;
using progress::test::Rig;

Config without_spinning() {
  Config config = quiet_config();
  config.spin = 0ns;
  return config;
}

// A channel whose CQ is fed by the rig's shard, on which this thread is about to sleep, too.
class Sleepers : public ::testing::Test {
 protected:
  void SetUp() override {
    CqOptions options;
    options.channel = channel;
    cq = std::dynamic_pointer_cast<CompletionQueueImpl>(*host.device->create_cq(options));
    cq->add_shard(rig.shard);
  }
  // So many that no run of the shard reads them all.
  void bring_many() const { rig.owner->transport->bring(100 * kReadsPerTurn); }
  void bring_and_leave_many() const {
    bring_many();
    EXPECT_TRUE(rig.shard->run(Look::kAll).left);
  }
  // Another thread calls `looks`, and receives. Meanwhile this one goes to sleep.
  void sleep_beside(const std::function<void()>& looks, const std::function<void()>& more = {}) {
    rig.owner->transport->on_receive.set([this] { meeting.hold(); });
    std::thread other(looks);
    if (more) more();
    EXPECT_TRUE(meeting.somebody_is_held()) << "the other thread receives";
    EXPECT_TRUE(rig.shard->run(Look::kSettle).busy);
    events().queue_event(*cq);
    meeting.release();
    other.join();
    EXPECT_GT(rig.owner->transport->unread, 0);
    EXPECT_TRUE(rig.reports()) << "this thread sleeps over what the other one left";
  }
  [[nodiscard]] CompletionChannelImpl& events() const {
    return dynamic_cast<CompletionChannelImpl&>(*channel);
  }

  Meeting meeting;
  Rig rig;
  Host host{without_spinning()};
  std::shared_ptr<CompletionChannel> channel = *host.device->create_channel();
  std::shared_ptr<CompletionQueueImpl> cq;
};

TEST_F(Sleepers, WaitThatTakesItsEventBeforeItSleepsTellsTheOthers) {
  bring_and_leave_many();
  sleep_beside([&] { EXPECT_EQ(*channel->wait(kPatience), cq.get()); });
}

TEST_F(Sleepers, WaitThatIsWokenAndTakesItsEventTellsTheOthers) {
  sleep_beside([&] { EXPECT_EQ(*channel->wait(kPatience), cq.get()); },
               [&] {
                 EXPECT_TRUE(eventually([&] { return rig.shard->owner().sleepers() == 2; }))
                     << "the other thread sleeps, or is about to";
                 bring_many();
               });
}

TEST_F(Sleepers, CallerThatDoesNotSleepAfterAllTellsTheOthers) {
  bring_and_leave_many();
  sleep_beside([&] { EXPECT_FALSE(channel->begin_sleep()); });
}

TEST_F(Sleepers, CallerThatHasSleptTellsTheOthers) {
  ASSERT_TRUE(channel->begin_sleep());
  bring_many();
  sleep_beside([&] { channel->end_sleep(); });
}

// Of its lanes only those are left that are over, and nobody has looked since.
TEST(CqThatGoes, LetsGoOfWhatEndedInItsShards) {
  Rig rig;
  Host host;
  rig.leave_to_background();
  auto cq = std::dynamic_pointer_cast<CompletionQueueImpl>(*host.device->create_cq({}));
  cq->add_shard(rig.shard);
  rig.owner->transport->send_error = EPIPE;
  rig.owner->post();
  rig.owner->lane.send_now();
  ASSERT_FALSE(rig.owner->lane.live());
  const std::weak_ptr<progress::test::FakeOwner> gone = rig.owner;
  rig.owner.reset();
  EXPECT_FALSE(gone.expired());
  cq.reset();
  EXPECT_TRUE(gone.expired());
}

}  // namespace
}  // namespace weft::verbs::test
