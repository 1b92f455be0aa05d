// Whether the callers of a shard have left it.
#include "progress/doubt.h"

#include <gtest/gtest.h>

namespace weft::progress {
namespace {

using Verdict = Doubt::Verdict;
constexpr Instant kStart{1'000'000'000};
constexpr Duration kMoment = Doubt::kMoment;
constexpr Duration kLittle = kMoment / 10;

TEST(Doubt, CallersWhoDoNotLookForAMomentAreGone) {
  Doubt doubt;
  EXPECT_TRUE(doubt.raise(5, kStart));
  EXPECT_EQ(doubt.settle(5, kStart + kMoment), Verdict::kGone);
  EXPECT_TRUE(doubt.raise(5, kStart + kMoment));
  EXPECT_EQ(doubt.settle(6, kStart + 2 * kMoment), Verdict::kThere);
}

// A thread waits for events again and again, while another polls.
TEST(Doubt, RaisedAnewItLeavesAWholeMomentToLook) {
  Doubt doubt;
  EXPECT_TRUE(doubt.raise(5, kStart));
  EXPECT_FALSE(doubt.raise(6, kStart + kMoment - kLittle));
  EXPECT_EQ(doubt.settle(6, kStart + kMoment), Verdict::kTooSoon);
  EXPECT_EQ(doubt.settle(7, kStart + 2 * kMoment), Verdict::kThere);
}

// The thread that looked waits for events itself now, and for one after the other.
TEST(Doubt, RaisedAnewItIsNotPutOffIfNobodyHasLooked) {
  Doubt doubt;
  EXPECT_TRUE(doubt.raise(5, kStart));
  EXPECT_FALSE(doubt.raise(6, kStart + kLittle));
  EXPECT_FALSE(doubt.raise(6, kStart + kMoment));
  EXPECT_EQ(doubt.settle(6, kStart + kLittle + kMoment), Verdict::kGone);
}

TEST(Doubt, WithoutATimerTheNextOneAsksAgain) {
  Doubt doubt;
  EXPECT_TRUE(doubt.raise(5, kStart));
  doubt.drop();
  EXPECT_TRUE(doubt.raise(5, kStart + kLittle));
}

}  // namespace
}  // namespace weft::progress
