// The waits of processes, as `weft timeline report` names them.
#include <gtest/gtest.h>

#include "timeline/waits.h"
#include "timeline_testing.h"

namespace weft::timeline {
namespace {

constexpr std::uint64_t kUs = 1000;

class TimelineWaits : public ::testing::Test {
 protected:
  TimelineWaits() : client_(scene_.process("client")), server_(scene_.process("server")) {
    scene_.connect(client_, server_);
  }

  Largest largest() {
    story_ = scene_.story();
    const Clocks clocks(story_);
    waits_ = waits_of(story_, clocks);
    return largest_of(sums_of(story_, waits_)).value_or(Largest{});
  }

  Scene scene_;
  const std::size_t client_, server_;
  Story story_;
  std::vector<Waits> waits_;
};

// Reads, one at a time, over a link with 500 us one way.
TEST_F(TimelineWaits, Depth1) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    const std::uint64_t t = i * 1010 * kUs + kUs;
    scene_.send(client_, server_, 64,
                {.posted = t, .completed = t + 1000 * kUs, .placed = t + 500 * kUs}, Op::kRead);
  }
  const Largest found = largest();
  EXPECT_EQ(found.cause, Cause::kOneAtATime);
  EXPECT_EQ(found.process, client_);
  EXPECT_EQ(waits_[0].depth, 1U);
}

TEST_F(TimelineWaits, LateReceive) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    const std::uint64_t t = i * 1000 * kUs + kUs;
    scene_.send(client_, server_, 64,
                {.posted = t,
                 .arrived = t + 5 * kUs,
                 .late_until = t + 900 * kUs,
                 .placed = t + 901 * kUs});
    scene_.send(server_, client_, 64, {.posted = t + 910 * kUs, .placed = t + 915 * kUs});
  }
  const Largest found = largest();
  EXPECT_EQ(found.cause, Cause::kReceiveLate);
  EXPECT_EQ(found.process, server_);
  const auto slowest = slowest_of(story_, waits_);
  ASSERT_TRUE(slowest);
  EXPECT_EQ(slowest->process, server_);
}

TEST_F(TimelineWaits, QueuePolledLate) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    const std::uint64_t t = i * 1000 * kUs + kUs;
    scene_.send(client_, server_, 64,
                {.posted = t, .polled = t + 900 * kUs, .placed = t + 5 * kUs});
  }
  const Largest found = largest();
  EXPECT_EQ(found.cause, Cause::kNotPolled);
  EXPECT_EQ(found.process, client_);
  EXPECT_EQ(share_of(found.cause), Share::kProgram);
}

TEST_F(TimelineWaits, SlowLink) {
  for (std::uint64_t i = 0; i < 40; ++i) {
    const std::uint64_t t = i * 800 * kUs + kUs;
    // Four are outstanding at any time.
    scene_.send(client_, server_, 1 << 20,
                {.posted = t,
                 .taken = t + 2400 * kUs,
                 .out = t + 3190 * kUs,
                 .arrived = t + 2500 * kUs,
                 .placed = t + 3300 * kUs},
                Op::kWrite);
  }
  const Largest found = largest();
  EXPECT_EQ(found.cause, Cause::kTransport);
  EXPECT_EQ(share_of(found.cause), Share::kWeft);
  EXPECT_EQ(waits_[0].depth, 4U);
}

TEST_F(TimelineWaits, PeerBusy) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    const std::uint64_t t = i * 1000 * kUs + kUs;
    scene_.send(client_, server_, 64, {.posted = t, .placed = t + 5 * kUs});
    scene_.send(server_, client_, 64, {.posted = t + 950 * kUs, .placed = t + 955 * kUs});
  }
  const Largest found = largest();
  EXPECT_EQ(found.cause, Cause::kPeerBusy);
  EXPECT_EQ(found.process, client_);
  const auto slowest = slowest_of(story_, waits_);
  ASSERT_TRUE(slowest);
  EXPECT_EQ(slowest->process, server_);
}

TEST_F(TimelineWaits, ASleepingThreadIsWoken) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    const std::uint64_t t = i * 1000 * kUs + kUs;
    scene_.send(client_, server_, 64,
                {.posted = t, .polled = t + 900 * kUs, .placed = t + 5 * kUs});
    scene_.call(client_, "ibv_get_cq_event", t + kUs, t + 899 * kUs);
  }
  EXPECT_EQ(largest().cause, Cause::kWakeUp);
}

// It waits for another queue.
TEST_F(TimelineWaits, ASleepingThreadThatPollsNothingHidesNothing) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    const std::uint64_t t = i * 1000 * kUs + kUs;
    scene_.send(client_, server_, 64,
                {.posted = t, .polled = t + 900 * kUs, .placed = t + 5 * kUs});
    scene_.call(client_, "ibv_get_cq_event", t + kUs, t + 899 * kUs, true);
  }
  scene_.call(client_, "ibv_get_cq_event", 1, 20'000 * kUs, true);
  EXPECT_EQ(largest().cause, Cause::kNotPolled);
}

// Other sleeps of the same thread end before the completion.
TEST_F(TimelineWaits, ASleepCountsFromTheOldestCompletionThatItsThreadPolls) {
  scene_.send(client_, server_, 64,
              {.posted = 10 * kUs, .completed = 100 * kUs, .polled = 700 * kUs}, Op::kRead);
  scene_.send(client_, server_, 64,
              {.posted = 20 * kUs, .completed = 90 * kUs, .polled = 200 * kUs}, Op::kRead);
  scene_.send(client_, server_, 64,
              {.posted = 30 * kUs, .completed = 800 * kUs, .polled = 900 * kUs}, Op::kRead);
  for (const auto& [from, to] : {std::pair{30, 95}, {150, 400}, {450, 699}, {701, 810}})
    scene_.call(client_, "ibv_get_cq_event", static_cast<std::uint64_t>(from) * kUs,
                static_cast<std::uint64_t>(to) * kUs);
  static_cast<void>(largest());
  const Times& times = waits_.front().times;
  // From 90 to 95, 150 to 400, 450 to 699 and 800 to 810.
  EXPECT_EQ(times[static_cast<std::size_t>(Cause::kWakeUp)], 514 * kUs);
  // From 95 to 150, 400 to 450, 699 to 700 and 810 to 900.
  EXPECT_EQ(times[static_cast<std::size_t>(Cause::kNotPolled)], 196 * kUs);
}

TEST_F(TimelineWaits, RegisteringBetweenRequests) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    const std::uint64_t t = i * 1000 * kUs + kUs;
    scene_.send(client_, server_, 64, {.posted = t, .placed = t + 5 * kUs}, Op::kWrite);
    scene_.call(client_, "ibv_reg_mr", t + 20 * kUs, t + 990 * kUs);
  }
  EXPECT_EQ(largest().cause, Cause::kRegistering);
}

// It waits for nobody where the requests would have been under way just as long.
TEST_F(TimelineWaits, RegisteringWhileRequestsAreUnderWay) {
  scene_.send(client_, server_, 64, {.posted = 10 * kUs, .completed = 9'000 * kUs}, Op::kRead);
  scene_.call(client_, "ibv_reg_mr", 100 * kUs, 8'900 * kUs);
  EXPECT_EQ(largest().cause, Cause::kOneAtATime);
  scene_.send(client_, server_, 64, {.posted = 20 * kUs, .completed = 9'000 * kUs}, Op::kRead);
  EXPECT_EQ(largest().cause, Cause::kTransport);
}

// On another connection.
TEST_F(TimelineWaits, RegisteringBesideAConnectionWithARequest) {
  scene_.send(client_, server_, 64, {.posted = 10 * kUs}, Op::kWrite);
  scene_.send(client_, server_, 64, {.posted = 9'000 * kUs}, Op::kWrite);
  scene_.call(client_, "ibv_reg_mr", 100 * kUs, 8'900 * kUs);
  EXPECT_EQ(largest().cause, Cause::kRegistering);
  scene_.connect(client_, server_, 10);
  scene_.send(client_, server_, 64, {.posted = 10 * kUs, .completed = 9'000 * kUs}, Op::kRead);
  EXPECT_EQ(largest().cause, Cause::kOneAtATime);
}

// Calls that were over before count for nothing; one that began before them may still last.
TEST_F(TimelineWaits, ACallThatBeganBeforeTheConnection) {
  scene_.call(client_, "ibv_reg_mr", 10, 9'000 * kUs);
  for (std::uint64_t i = 0; i < 50; ++i) scene_.call(client_, "ibv_reg_mr", 20 + i, 30 + i);
  scene_.call(client_, "ibv_reg_mr", 99'000 * kUs, 99'999 * kUs);
  scene_.call(server_, "ibv_reg_mr", 10, 5'000 * kUs);
  scene_.send(client_, server_, 64, {.posted = 1'000 * kUs, .placed = 1'001 * kUs}, Op::kWrite);
  scene_.send(client_, server_, 64, {.posted = 10'000 * kUs, .placed = 10'001 * kUs}, Op::kWrite);
  const Largest found = largest();
  EXPECT_EQ(found.cause, Cause::kRegistering);
  EXPECT_EQ(found.process, client_);
  EXPECT_GT(found.ns, 7'900 * kUs);
  EXPECT_LT(found.ns, 8'000 * kUs);
}

TEST_F(TimelineWaits, NothingIsPosted) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    const std::uint64_t t = i * 1000 * kUs + kUs;
    scene_.send(client_, server_, 64, {.posted = t, .placed = t + 5 * kUs}, Op::kWrite);
  }
  story_ = scene_.story();
  waits_ = waits_of(story_, Clocks(story_));
  const Times client = sums_of(story_, waits_)[client_];
  EXPECT_GT(client[static_cast<std::size_t>(Cause::kNotPosting)], 8900 * kUs);
}

// As perftest has them: one to agree on the test, and to meet at its end.
TEST_F(TimelineWaits, AnIdleConnectionHidesNothing) {
  scene_.send(client_, server_, 64, {.posted = kUs, .placed = 2 * kUs});
  scene_.send(client_, server_, 64, {.posted = 9'000 * kUs, .placed = 9'001 * kUs});
  scene_.connect(client_, server_, 10);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::uint64_t t = i * 300 * kUs + 1'000 * kUs;
    scene_.send(client_, server_, 1 << 20,
                {.posted = t, .out = t + 590 * kUs, .placed = t + 610 * kUs}, Op::kWrite);
  }
  EXPECT_EQ(largest().cause, Cause::kTransport);
}

TEST_F(TimelineWaits, TheStatesFillTheTime) {
  for (std::uint64_t i = 0; i < 50; ++i) {
    const std::uint64_t t = i * 300 * kUs + kUs;
    scene_.send(client_, server_, 64, {.posted = t, .placed = t + i * 50 * kUs});
    scene_.send(server_, client_, 64, {.posted = t + 90 * kUs, .placed = t + 500 * kUs});
  }
  static_cast<void>(largest());
  for (const Waits& one : waits_) {
    std::uint64_t sum = 0;
    for (const std::uint64_t ns : one.times) sum += ns;
    EXPECT_EQ(sum, one.active);
  }
}

}  // namespace
}  // namespace weft::timeline
