// The decisions of `weft run --shake`.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "shake/held_completions.h"
#include "shake/ledger.h"
#include "shake/shake_plan.h"
#include "shake/undefined.h"

namespace weft::shake {
namespace {

constexpr std::uint64_t kLater = 1'000'000'000;  // longer than anything is held

Plan plan_of(const std::string& text) {
  std::string why;
  const auto plan = parse_plan(text, why);
  EXPECT_TRUE(plan) << why;
  return plan.value_or(Plan{});
}

WorkCompletion completion(std::uint32_t qp, WcOp op, std::uint64_t wr_id) {
  WorkCompletion out;
  out.qp_num = qp;
  out.op = op;
  out.wr_id = wr_id;
  return out;
}

std::vector<std::uint64_t> all_of(Held& held, std::uint64_t now) {
  std::array<WorkCompletion, 64> out;
  const std::size_t got = held.take(out, now);
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < got; ++i) ids.push_back(out[i].wr_id);
  return ids;
}

TEST(ShakePlan, TakesASeedAndEffects) {
  EXPECT_EQ(plan_of("7").seed, 7U);
  EXPECT_TRUE(plan_of("7").has(Effect::kArm));
  EXPECT_TRUE(plan_of("18446744073709551615").has(Effect::kOrder));
  EXPECT_TRUE(plan_of("0:2,5").has(Effect::kLate));
  EXPECT_TRUE(plan_of("0:2,5").has(Effect::kErrno));
  EXPECT_TRUE(plan_of("0:3").has(Effect::kPlacement));
  EXPECT_FALSE(plan_of("0:2,5").has(Effect::kArm));
}

TEST(ShakePlan, RefusesWhatIsNeither) {
  for (const char* text : {"", "x", "-1", "7x", "7:", "7:0", "7:8", "7:1,", "7:1,,2", "7:99",
                           "18446744073709551616", ":1", "7:1:2"}) {
    std::string why;
    EXPECT_FALSE(parse_plan(text, why)) << text;
    EXPECT_FALSE(why.empty()) << text;
  }
}

TEST(ShakeDice, TheSameSeedAndStreamGiveTheSameNumbers) {
  Dice one(7, 3), same(7, 3), other_stream(7, 4), other_seed(8, 3);
  const std::uint64_t first = one.next();
  EXPECT_EQ(first, same.next());
  EXPECT_NE(first, other_stream.next());
  EXPECT_NE(first, other_seed.next());
}

TEST(ShakeHeld, EachQueueKeepsItsOrder) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Held held(plan_of(std::to_string(seed)), 0);
    for (std::uint64_t i = 0; i < 10; ++i) {
      held.add(completion(1, WcOp::kSend, i), 0, true);
      held.add(completion(1, WcOp::kRecv, 100 + i), 0, true);
    }
    std::vector<std::uint64_t> sends, receives;
    for (std::uint64_t now = 0; held.size() != 0; now += 10'000) {
      for (const std::uint64_t id : all_of(held, now)) (id < 100 ? sends : receives).push_back(id);
    }
    EXPECT_EQ(sends.size(), 10U);
    EXPECT_EQ(receives.size(), 10U);
    EXPECT_TRUE(std::ranges::is_sorted(sends));
    EXPECT_TRUE(std::ranges::is_sorted(receives));
  }
}

TEST(ShakeHeld, QueuesHaveNoOrderAmongEachOther) {
  std::set<std::uint64_t> firsts;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Held held(plan_of(std::to_string(seed) + ":7"), 0);
    held.add(completion(1, WcOp::kSend, 1), 0, true);
    held.add(completion(1, WcOp::kRecv, 2), 0, true);
    firsts.insert(all_of(held, kLater).front());
  }
  EXPECT_EQ(firsts.size(), 2U);
}

TEST(ShakeHeld, WithoutThatEffectAllKeepTheirOrder) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Held held(plan_of(std::to_string(seed) + ":2"), 0);
    held.add(completion(1, WcOp::kSend, 1), 0, true);
    held.add(completion(2, WcOp::kRecv, 2), 0, true);
    EXPECT_EQ(all_of(held, kLater), (std::vector<std::uint64_t>{1, 2}));
  }
}

TEST(ShakeHeld, ShowsAtOnceWhatMayNotWait) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Held held(plan_of(std::to_string(seed)), 0);
    held.add(completion(1, WcOp::kSend, 1), 5, false);
    EXPECT_EQ(all_of(held, 5).size(), 1U);
    held.add(completion(1, WcOp::kSend, 2), 5, true);
    held.show_all();
    EXPECT_EQ(all_of(held, 5).size(), 1U);
  }
}

// In another run the program polls earlier, or queues share the completion queue otherwise.
TEST(ShakeHeld, AWaitIsOfTheCompletionAndNotOfWhatCameBefore) {
  bool waits = false;
  for (int seed = 0; seed < 20; ++seed) {
    const auto second = completion(1, WcOp::kSend, 2);
    Held late(plan_of(std::to_string(seed)), 3), early(plan_of(std::to_string(seed)), 3);
    late.add(completion(1, WcOp::kSend, 1), 0, true, 5);
    late.add(completion(2, WcOp::kSend, 9), 0, true, 6);
    const std::uint64_t wait = late.add(second, 0, true, 5);
    early.add(completion(1, WcOp::kSend, 1), 0, true, 5);
    early.add(completion(1, WcOp::kRecv, 8), 0, true, 5);
    EXPECT_EQ(all_of(early, 1'000'000'000).size(), 2U);
    EXPECT_EQ(early.add(second, 0, true, 5), wait) << "seed " << seed;
    waits = waits || wait != 0;
  }
  EXPECT_TRUE(waits);
}

TEST(ShakeHeld, ForgetsOneQueuePair) {
  Held held(plan_of("1"), 0);
  held.add(completion(1, WcOp::kSend, 1), 0, false);
  held.add(completion(2, WcOp::kSend, 2), 0, false);
  held.forget(1);
  EXPECT_EQ(held.size(), 1U);
  EXPECT_EQ(all_of(held, 0), (std::vector<std::uint64_t>{2}));
}

TEST(ShakeHeld, ShowsNoMoreThanThereIsRoomFor) {
  Held held(plan_of("1"), 0);
  for (std::uint64_t i = 0; i < 5; ++i) held.add(completion(1, WcOp::kSend, i), 0, false);
  std::array<WorkCompletion, 2> out;
  EXPECT_EQ(held.take(out, 0), 2U);
  EXPECT_EQ(held.size(), 3U);
}

TEST(ShakeLedger, ACompletionFreesTheSlotsBeforeIt) {
  Ledger ledger;
  ledger.add({1, false, {}});
  ledger.add({2, true, {}});
  ledger.add({2, true, {}});
  ledger.sent(2, true);
  EXPECT_EQ(ledger.size(), 1U);
  ledger.sent(2, true);
  EXPECT_EQ(ledger.size(), 0U);
}

TEST(ShakeLedger, AnUnsignaledRequestCompletesOnlyByAnError) {
  Ledger ledger;
  ledger.add({7, false, {}});
  ledger.add({7, true, {}});
  ledger.sent(7, true);
  EXPECT_EQ(ledger.size(), 0U);
  ledger.add({7, false, {}});
  ledger.add({7, true, {}});
  ledger.sent(7, false);
  EXPECT_EQ(ledger.size(), 1U);
}

// A thread posts, and another one resets the queue pair: the post is refused.
TEST(ShakeLedger, WhatIsClearedBeforeItIsRefusedIsGoneOnce) {
  Ledger ledger;
  ledger.add({1, true, {}});
  ledger.clear();
  ledger.drop_last();
  EXPECT_EQ(ledger.size(), 0U);
  ledger.add({2, true, {}});
  EXPECT_TRUE(ledger.received(2).has_value());
}

TEST(ShakeLedger, KnowsTheMemoryOfItsRequests) {
  Ledger ledger;
  ledger.add({1, true, {{100, 10, 5}}});
  EXPECT_TRUE(ledger.uses({109, 1, 0}));
  EXPECT_TRUE(ledger.uses({90, 11, 0}));
  EXPECT_FALSE(ledger.uses({110, 5, 0}));
  EXPECT_FALSE(ledger.uses({90, 10, 0}));
  EXPECT_TRUE(ledger.received(1).has_value());
  EXPECT_FALSE(ledger.received(1).has_value());
  EXPECT_FALSE(ledger.uses({100, 10, 0}));
}

// Which of two receives with one number it was, the completion does not say.
TEST(ShakeLedger, OfASharedQueueGivesNoMemoryThatIsPerhapsAnothers) {
  Ledger ledger;
  ledger.add({1, true, {Sge{100, 10, 0}}});
  ledger.add({1, true, {Sge{200, 10, 0}}});
  ledger.add({2, true, {Sge{300, 10, 0}}});
  EXPECT_TRUE(ledger.received(2, true).has_value());
  EXPECT_FALSE(ledger.received(1, true).has_value());
  EXPECT_EQ(ledger.size(), 1U);
  EXPECT_TRUE(ledger.received(1, true).has_value());
}

TEST(ShakeTail, IsTheRestOfACacheLineWithinTheSge) {
  const std::array<Sge, 2> sges = {Sge{64, 64, 1}, Sge{200, 10, 2}};
  EXPECT_FALSE(tail(sges, 0));
  EXPECT_FALSE(tail(sges, 64));
  EXPECT_FALSE(tail(sges, 74));
  EXPECT_FALSE(tail(sges, 75));
  const auto line = tail(sges, 13);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->addr, 77U);
  EXPECT_EQ(line->length, 51U);
  EXPECT_EQ(line->lkey, 1U);
  const auto cut = tail(sges, 67);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->addr, 203U);
  EXPECT_EQ(cut->length, 7U);
  EXPECT_EQ(cut->lkey, 2U);
}

TEST(ShakeUndefined, LeavesWhatIsDefined) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Dice dice(seed, 0);
    WorkCompletion failed = completion(3, WcOp::kRecv, 4);
    failed.status = WcStatus::kFlushed;
    failed.vendor_error = 5;
    scramble(failed, false, dice);
    EXPECT_EQ(failed.wr_id, 4U);
    EXPECT_EQ(failed.qp_num, 3U);
    EXPECT_EQ(failed.status, WcStatus::kFlushed);
    EXPECT_EQ(failed.vendor_error, 5U);
    EXPECT_NE(failed.op, WcOp::kRecv);
    EXPECT_TRUE(was_receive(failed));
    WorkCompletion request = completion(3, WcOp::kSend, 4);
    request.status = WcStatus::kFlushed;
    scramble(request, false, dice);
    EXPECT_FALSE(was_receive(request));

    WorkCompletion datagram = completion(3, WcOp::kRecv, 4);
    datagram.byte_len = 6;
    datagram.source_qp = 7;
    datagram.imm_data = 8;
    datagram.flags = WcFlags::kWithImm | WcFlags::kGrh;
    scramble(datagram, true, dice);
    EXPECT_EQ(datagram.op, WcOp::kRecv);
    EXPECT_EQ(datagram.byte_len, 6U);
    EXPECT_EQ(datagram.source_qp, 7U);
    EXPECT_EQ(datagram.imm_data, 8U);
    EXPECT_EQ(datagram.flags, WcFlags::kWithImm | WcFlags::kGrh);
  }
}

}  // namespace
}  // namespace weft::shake
