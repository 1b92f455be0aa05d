// What a lane leaves, and who hears of it.
#include <thread>

#include "progress_testing.h"

namespace weft::progress::test {
namespace {

// A caller goes to sleep while the background runs the shard; from then on it is the caller's.
TEST(ProgressLane, SleeperIsToldOfWhatTheBackgroundLeaves) {
  Meeting meeting;
  Rig rig;
  rig.leave_to_background();
  rig.owner->transport->on_receive.set([&] { meeting.hold(); });
  rig.owner->transport->bring(20 * kReadsPerTurn);
  ASSERT_TRUE(meeting.somebody_is_held()) << "the background receives";
  rig.shard->owner().begin_sleep();
  EXPECT_TRUE(rig.shard->run(Look::kSettle).busy);
  meeting.release();
  while (rig.owner->transport->unread != 0) {
    ASSERT_TRUE(rig.reports()) << rig.owner->transport->unread << " messages are left";
    rig.shard->run_for_others();
  }
}

// Its next turn begins with a post, and has nothing else to do as far as its word says.
TEST(ProgressLane, TurnThatBeginsWithAPostReadsWhatTheLastOneLeft) {
  constexpr int kStreamOfPosts = 8;  // the last of which waits for the next pass
  Rig rig;
  rig.shard->owner().end_sleep();  // a post is not left beside a sleeper
  rig.owner->transport->bring(kReadsPerTurn + 4);
  (void)rig.shard->run(Look::kAll);
  for (int i = 0; i < kStreamOfPosts; ++i) {
    rig.owner->post();
    rig.owner->lane.ring();
  }
  while (rig.shard->run(Look::kSettle).left) {
  }
  EXPECT_TRUE(eventually([&] { return rig.owner->transport->unread == 0; }))
      << rig.owner->transport->unread << " messages that nothing reports again";
}

// A time limit has the lane just when the pass in which it ended lets its owner go.
TEST(ProgressLane, OwnerIsLetGoThoughSomebodyHadTheLaneBehindItsEnd) {
  Meeting meeting;
  std::thread control;
  Rig rig;
  rig.owner->on_lane_left.set([&] {
    if (control.joinable()) return;
    control = std::thread([&] { rig.owner->lane.exclusively([&] { meeting.hold(); }); });
    EXPECT_TRUE(meeting.somebody_is_held()) << "control has the lane";
  });
  rig.owner->transport->receive_error = ECONNRESET;
  rig.owner->transport->report();
  EXPECT_FALSE(rig.shard->run(Look::kAll).busy);
  EXPECT_FALSE(rig.owner->lane.live());
  meeting.release();
  ASSERT_TRUE(control.joinable());
  control.join();
  const std::weak_ptr<FakeOwner> gone = rig.owner;
  rig.owner.reset();
  EXPECT_TRUE(gone.expired());
}

}  // namespace
}  // namespace weft::progress::test
