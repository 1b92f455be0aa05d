// What a lane leaves, and who hears of it.
#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

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
    rig.owner->lane.ring_doorbell();
  }
  while (rig.shard->run(Look::kSettle).left) {
  }
  EXPECT_TRUE(eventually([&] { return rig.owner->transport->unread == 0; }))
      << rig.owner->transport->unread << " messages that nothing reports again";
}

// The caller has completions to take yet, and answers some of them: all that it posts then leaves
// with one call.
TEST(ProgressLane, PostsWaitWhileTheirCallerHasMoreToTake) {
  Rig rig;
  rig.shard->owner().end_sleep();
  rig.owner->post_stream();
  for (int i = 0; i < 10; ++i) (void)rig.shard->poll();  // nothing is received
  rig.owner->post_stream();
  const int before = rig.owner->transport->sends;
  (void)rig.shard->poll(Look::kGlance);
  EXPECT_EQ(rig.owner->transport->sends, before);
  EXPECT_TRUE(rig.shard->posts_wait());
  (void)rig.shard->poll();
  EXPECT_EQ(rig.owner->transport->sends, before + 1);
  EXPECT_FALSE(rig.owner->lane.post_waits());
}

// What others have to say is looked at then, and answered.
TEST(ProgressLane, ALaneThatReceivesIsServedWhileItsCallerHasMoreToTake) {
  Rig rig;
  rig.shard->owner().end_sleep();
  rig.owner->transport->bring(1);
  (void)rig.shard->poll();
  rig.owner->post_stream();
  rig.owner->transport->unread = 1;
  (void)rig.shard->poll(Look::kGlance);
  EXPECT_EQ(rig.owner->transport->unread, 0);
}

// Its word says that something has come, too.
TEST(ProgressLane, ALaneWithPostsAndNewsIsServedWhileItsCallerHasMoreToTake) {
  Rig rig;
  rig.shard->owner().end_sleep();
  rig.owner->post_stream();
  for (int i = 0; i < 10; ++i) (void)rig.shard->poll();  // nothing is received
  rig.owner->post_stream();
  rig.owner->transport->bring(1);
  rig.owner->lane.reported(EPOLLIN);
  (void)rig.shard->poll(Look::kGlance);
  EXPECT_EQ(rig.owner->transport->unread, 0);
}

// A pass does not reach all of the lanes that are in the list already.
TEST(ProgressLane, PostsOfManyLanesAreRememberedUntilTheyAreSent) {
  constexpr int kLanes = 200;
  Rig rig;
  std::vector<std::shared_ptr<FakeOwner>> others;
  while (others.size() < kLanes) {
    others.push_back(std::make_shared<FakeOwner>(*rig.host, rig.shard));
    others.back()->open();
  }
  rig.shard->owner().end_sleep();
  // They stay in the list, since there is more to receive than a turn does.
  for (const auto& other : others) other->transport->bring(kLanes * kReadsPerTurn);
  for (int i = 0; i < kLanes / 8; ++i) (void)rig.shard->poll();
  for (const auto& other : others) other->post_stream();
  const auto unsent = [&] {
    return std::ranges::any_of(others, [](const auto& other) { return other->lane.post_waits(); });
  };
  while (unsent()) {
    ASSERT_TRUE(eventually([&] { return rig.shard->posts_wait() || !unsent(); }));
    (void)rig.shard->poll();
  }
  for (const auto& other : others) other->abort();
}

// Both ends of a connection may be this thread's: what one sends the other receives in the same
// pass.
TEST(ProgressLane, PostsAreSentBeforeOthersReceive) {
  Rig rig;
  auto other = std::make_shared<FakeOwner>(*rig.host, rig.shard);
  other->open();
  rig.shard->owner().end_sleep();
  (void)rig.shard->run(Look::kAll);
  other->transport->report();
  rig.owner->post_stream();
  const int before = rig.owner->transport->sends;
  int sent = 0;
  other->transport->on_receive.set([&] { sent = rig.owner->transport->sends; });
  (void)rig.shard->run(Look::kAll);
  EXPECT_EQ(sent, before + 1);
  other->abort();
}

struct Alarm final : public io::Handler {
  void on_timer(io::TimerId) override { rang = true; }
  std::atomic<bool> rang{false};
};

// Until the background's thread has got over whatever it was to do within a millisecond.
template <class Work>
void for_a_millisecond(io::Engine& engine, Work work) {
  const auto alarm = std::make_shared<Alarm>();
  ASSERT_NE(engine.schedule(os::now() + Duration{1'000'000}, alarm), 0U);
  EXPECT_TRUE(eventually([&] {
    work();
    return alarm->rang.load();
  }));
}

// It reads events of a connection, say, and looks at its CQ no more.
TEST(ProgressLane, BackgroundServesWhatACallerThatSleepsElsewhereHasPolled) {
  Rig rig;
  rig.shard->owner().end_sleep();
  ASSERT_TRUE(rig.shard->owner().is_callers());
  (void)rig.shard->poll();
  rig.shard->owner().doubt();
  EXPECT_TRUE(eventually([&] { return !rig.shard->owner().is_callers(); }));
  rig.owner->transport->bring(1);
  EXPECT_TRUE(eventually([&] { return rig.owner->transport->unread == 0; }));
  EXPECT_FALSE(rig.shard->owner().was_abandoned());
}

TEST(ProgressLane, WhatOthersSleepOnStaysTheirs) {
  Rig rig;
  rig.shard->owner().doubt();  // a thread sleeps on it
  for_a_millisecond(*rig.host->engine, [] {});
  EXPECT_TRUE(rig.shard->owner().is_callers());
}

TEST(ProgressLane, WhatOthersPollStaysTheirs) {
  // A poller that had no core for a moment is taken for one that has left: such a round says
  // nothing.
  EXPECT_TRUE(eventually([] {
    Rig rig;
    rig.shard->owner().end_sleep();
    const Instant before = os::now();
    rig.shard->owner().doubt();
    (void)rig.shard->poll();
    const bool in_time = os::now() - before < Doubt::kMoment;
    for_a_millisecond(*rig.host->engine, [&] { (void)rig.shard->poll(); });
    if (in_time) {
      EXPECT_TRUE(rig.shard->owner().is_callers());
    }
    return in_time;
  }));
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
