// When frames arrive on a cable of `weft lab run`, on a clock of the test's own.
#include "lab/cable.h"

#include <gtest/gtest.h>

namespace weft::lab {
namespace {

using namespace std::chrono_literals;

constexpr Link kSlow{8'000'000, 5ms, 10'000};  // a byte takes a microsecond

TEST(LabCable, AFrameAloneIsDelayedAndTakesItsLengthOnce) {
  Cable cable(kSlow, 2);
  cable.take(0, 1000, 1s, false);
  EXPECT_EQ(cable.deliver(0, 1, 1000), 1s + 5ms + 1ms);
}

TEST(LabCable, FramesOfOneHostFollowEachOtherAtItsRate) {
  Cable cable(kSlow, 2);
  for (int i = 0; i < 100; ++i) {
    cable.take(0, 1000, 1s, false);
    EXPECT_EQ(cable.deliver(0, 1, 1000), 1s + 5ms + (i + 1) * 1ms);
  }
}

TEST(LabCable, ASenderWaitsForItsLine) {
  Cable cable(kSlow, 2);
  EXPECT_LE(cable.next_from(0), 0s);
  cable.take(0, 1000, 1s, false);
  EXPECT_GT(cable.next_from(0), 1s);
  EXPECT_LT(cable.next_from(0), 1s + 1ms);
  EXPECT_LE(cable.next_from(1), 0s);
}

TEST(LabCable, TwoSendersShareAReceiversLine) {
  Cable cable(kSlow, 3);
  cable.take(0, 1000, 1s, false);
  cable.take(1, 1000, 1s, false);
  EXPECT_EQ(cable.deliver(0, 2, 1000), 1s + 6ms);
  EXPECT_EQ(cable.deliver(1, 2, 1000), 1s + 7ms);
}

TEST(LabCable, WhatFindsAFullQueueIsLostAndTheRestIsNot) {
  Cable cable(kSlow, 3);  // 10 ms wait at most
  int lost = 0;
  for (int i = 0; i < 20; ++i) {
    for (const unsigned from : {0U, 1U}) {
      cable.take(from, 1000, 1s, false);
      if (!cable.deliver(from, 2, 1000)) ++lost;
    }
  }
  // 40 ms of frames arrive within 20 ms, so 20 wait in the end, and 10 may.
  EXPECT_GT(lost, 5);
  EXPECT_LT(lost, 15);
  cable.take(0, 1000, 2s, false);
  EXPECT_EQ(cable.deliver(0, 2, 1000), 2s + 6ms);
}

TEST(LabCable, AFrameThatWaitedLosesNoLineTimeToALateTaker) {
  Cable cable(kSlow, 2);
  cable.take(0, 1000, 1s, false);
  cable.take(0, 1000, 1s + 4ms, true);
  EXPECT_EQ(cable.deliver(0, 1, 1000), 1s + 7ms);
  // One that came late by itself did not wait, and very late ones are not made up for.
  cable.take(0, 1000, 1s + 9ms, false);
  EXPECT_EQ(cable.deliver(0, 1, 1000), 1s + 15ms);
  cable.take(0, 1000, 2s, true);
  EXPECT_EQ(cable.deliver(0, 1, 1000), 2s - Cable::kMostLate + 6ms);
}

TEST(LabCable, BothDirectionsAreFreeOfEachOther) {
  Cable cable(kSlow, 2);
  cable.take(0, 1000, 1s, false);
  cable.take(1, 1000, 1s, false);
  EXPECT_EQ(cable.deliver(0, 1, 1000), 1s + 6ms);
  EXPECT_EQ(cable.deliver(1, 0, 1000), 1s + 6ms);
}

TEST(LabCable, WithoutARateNothingWaits) {
  Cable cable({0, 2ms, 0}, 2);
  for (int i = 0; i < 10; ++i) {
    EXPECT_LE(cable.next_from(0), 1s);
    cable.take(0, 65'000, 1s, false);
    EXPECT_EQ(cable.deliver(0, 1, 65'000), 1s + 2ms);
  }
}

TEST(LabCable, WithoutARateFramesThatWaitedAreNeitherLostNorEarly) {
  Cable cable({0, 2ms, 0}, 3);
  cable.take(0, 1000, 1s, false);
  EXPECT_EQ(cable.deliver(0, 2, 1000), 1s + 2ms);
  // They leave when they are taken, though another host's frame was taken in between.
  cable.take(1, 1000, 1s, true);
  EXPECT_EQ(cable.deliver(1, 2, 1000), 1s + 2ms);
  cable.take(0, 1000, 1s + 1ms, true);
  EXPECT_EQ(cable.deliver(0, 2, 1000), 1s + 3ms);
}

}  // namespace
}  // namespace weft::lab
