// Who connects, who is let in, and how long is waited.
#include "roce/rules.h"

#include <gtest/gtest.h>

#include "roce/qp_number.h"

namespace weft::roce {
namespace {

using namespace std::chrono_literals;

const End kMine{{1}, to_number({40000, 2})};
const End kPeer{{2}, to_number({50000, 3})};

Hello hello() {
  Hello h;
  h.from = kPeer;
  h.to = kMine;
  return h;
}
Standing ready() { return {.wired = true, .mine = kMine, .peer = kPeer}; }

TEST(RoceRules, ExactlyOneOfTwoGoesFirst) {
  EXPECT_NE(goes_first(kMine, kPeer), goes_first(kPeer, kMine));
  const End same_host{kMine.gid, kMine.number + 1};
  EXPECT_TRUE(goes_first(kMine, same_host));
  EXPECT_FALSE(goes_first(same_host, kMine));
  EXPECT_FALSE(goes_first(kMine, kMine));
}

TEST(RoceRules, LetsInWhomItExpects) {
  EXPECT_EQ(judge(hello(), kPeer.gid, ready()), Verdict::kAccept);
}

TEST(RoceRules, LetsNobodyInBeforeItIsWired) {
  Standing standing = ready();
  standing.wired = false;
  EXPECT_EQ(judge(hello(), kPeer.gid, standing), Verdict::kNotYet);
}

TEST(RoceRules, StrangersWait) {
  Hello other = hello();
  other.from.number = to_number({50000, 4});
  EXPECT_EQ(judge(other, kPeer.gid, ready()), Verdict::kNotYet);
  other = hello();
  other.from.gid[5] = 1;
  EXPECT_EQ(judge(other, other.from.gid, ready()), Verdict::kNotYet);
  other = hello();
  other.to.number = to_number({40000, 9});
  EXPECT_EQ(judge(other, kPeer.gid, ready()), Verdict::kNotYet);
}

TEST(RoceRules, AGidFromAnotherAddressIsAStranger) {
  EXPECT_EQ(judge(hello(), kMine.gid, ready()), Verdict::kNotYet);
}

TEST(RoceRules, OneConnectionOnly) {
  Standing standing = ready();
  standing.linked = true;
  EXPECT_EQ(judge(hello(), kPeer.gid, standing), Verdict::kBusy);
  standing = ready();
  standing.committed = true;
  EXPECT_EQ(judge(hello(), kPeer.gid, standing), Verdict::kBusy);
}

// Two ends that connect at once never both let the other in: the one that goes first has said hello
// (and then refuses), or has not (and then gives its own attempt up).
TEST(RoceRules, CrossingHellosLeaveOneConnection) {
  Standing first = ready();
  first.committed = true;
  Standing second{.wired = true, .mine = kPeer, .peer = kMine};
  Hello of_first;
  of_first.from = kMine;
  of_first.to = kPeer;
  EXPECT_EQ(judge(hello(), kPeer.gid, first), Verdict::kBusy);
  EXPECT_EQ(judge(of_first, kMine.gid, second), Verdict::kAccept);
}

TEST(RoceRules, PausesDoubleUpToHalfASecond) {
  EXPECT_EQ(pause_before(0), 20ms);
  EXPECT_EQ(pause_before(1), 40ms);
  EXPECT_EQ(pause_before(4), 320ms);
  EXPECT_EQ(pause_before(5), 500ms);
  EXPECT_EQ(pause_before(0xffffffff), 500ms);
  EXPECT_EQ(handshake_limit(0), 100ms);
  EXPECT_EQ(handshake_limit(3), 800ms);
  EXPECT_EQ(handshake_limit(0xffffffff), 6400ms);
}

TEST(RoceRules, RetriesLastAsTheAttributesSay) {
  EXPECT_EQ(retry_budget(14, 7), Duration(4096LL << 14U) * 8);
  EXPECT_EQ(retry_budget(1, 0), kRetryFloor);
  EXPECT_EQ(retry_budget(0, 7), Duration::max());
  EXPECT_EQ(retry_budget(31, 7), Duration(4096LL << 31U) * 8);
}

TEST(RoceRules, PausesOfReceiversThatAreNotReady) {
  EXPECT_EQ(rnr_pause(0), 655'360us);
  EXPECT_EQ(rnr_pause(1), 10us);
  EXPECT_EQ(rnr_pause(12), 640us);
  EXPECT_EQ(rnr_pause(31), 491'520us);
  EXPECT_EQ(rnr_pause(255), 491'520us);
}

}  // namespace
}  // namespace weft::roce
