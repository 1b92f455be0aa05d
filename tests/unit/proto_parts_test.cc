// The parts of a stream by themselves: what each remembers, and what it says of it.
#include <gtest/gtest.h>

#include "proto/acks.h"
#include "proto/batch_pace.h"
#include "proto/ending.h"
#include "proto/path_switch.h"
#include "proto/refusal.h"
#include "proto/stream_requests.h"

namespace weft::proto {
namespace {

constexpr Instant kNow{1'000'000};

SendWqe request(SendOp op, SendFlags flags = SendFlags::kNone) {
  SendWqe wqe;
  wqe.op = op;
  wqe.flags = flags;
  return wqe;
}

// --- our half of the connection ---

TEST(Ending, GivesFinOnceAndOnlyWhenStopped) {
  Ending e;
  EXPECT_FALSE(e.take_fin());
  e.stop();
  EXPECT_TRUE(e.take_fin());
  EXPECT_FALSE(e.take_fin());
  e.stop();
  EXPECT_FALSE(e.take_fin());
}

TEST(Ending, ALostHalfGivesNoFin) {
  Ending e;
  e.stop();
  e.lose();
  EXPECT_TRUE(e.is_lost());
  EXPECT_FALSE(e.take_fin());
  e.stop();
  EXPECT_FALSE(e.take_fin());
}

TEST(Ending, IsClosedWhenBothHalvesAreAndTheEndHasBegun) {
  Ending e;
  e.stop();
  EXPECT_TRUE(e.peer_closes());
  EXPECT_FALSE(e.peer_closes());
  EXPECT_TRUE(e.take_fin());
  EXPECT_FALSE(e.closed());
  EXPECT_TRUE(e.begin(StreamEnd::kOrderly, {}, false, {}));
  EXPECT_TRUE(e.closed());
}

TEST(Ending, TheFirstEndStands) {
  Ending e;
  EXPECT_FALSE(e.is_told());
  EXPECT_TRUE(e.begin(StreamEnd::kTerminated, {}, true, {}));
  EXPECT_FALSE(e.begin(StreamEnd::kLost, {}, false, {}));
  EXPECT_EQ(e.how(), StreamEnd::kTerminated);
  EXPECT_TRUE(e.by_peer());
  EXPECT_TRUE(e.is_due());
  EXPECT_FALSE(e.is_told());
  e.tell();
  EXPECT_TRUE(e.is_told());
}

// --- Acks ---

TEST(Acks, NothingAsksWhereNoneAreWanted) {
  Acks acks(false);
  SendWqe wqe = request(SendOp::kSend, SendFlags::kSignaled);
  EXPECT_EQ(acks.ask_bit(wqe, 2), 0);
  acks.number(wqe, 0);
  EXPECT_TRUE(acks.cover(wqe));
  EXPECT_FALSE(acks.unasked());
}

TEST(Acks, AnAckCoversAllBeforeTheLastThatAsked) {
  Acks acks(true);
  SendWqe silent = request(SendOp::kWrite);
  SendWqe asks = request(SendOp::kSend, SendFlags::kSignaled);
  SendWqe behind = request(SendOp::kWrite);
  for (SendWqe* wqe : {&silent, &asks, &behind}) acks.number(*wqe, acks.ask_bit(*wqe, 64));
  EXPECT_FALSE(acks.cover(silent));
  EXPECT_TRUE(acks.placed(1));
  EXPECT_TRUE(acks.cover(silent));
  EXPECT_TRUE(acks.cover(asks));
  EXPECT_FALSE(acks.cover(behind));
}

TEST(Acks, AnAckOfMoreThanHasAskedIsRefused) {
  Acks acks(true);
  EXPECT_FALSE(acks.placed(1));
  SendWqe wqe = request(SendOp::kSend, SendFlags::kSignaled);
  acks.number(wqe, acks.ask_bit(wqe, 64));
  EXPECT_FALSE(acks.placed(2));
  EXPECT_TRUE(acks.placed(1));
  EXPECT_TRUE(acks.placed(0));  // an old one that was overtaken
  EXPECT_TRUE(acks.cover(wqe));
}

TEST(Acks, HalfOfTheQueueAsksAtLeastOnce) {
  Acks acks(true);
  for (int i = 0; i < 3; ++i) {
    SendWqe wqe = request(SendOp::kWrite);
    EXPECT_EQ(acks.ask_bit(wqe, 8), 0);
    acks.number(wqe, 0);
  }
  EXPECT_EQ(acks.ask_bit(request(SendOp::kWrite), 8), kAskBit);
}

TEST(Acks, AReadIsAnsweredByItsResponse) {
  Acks acks(true);
  acks.delivered(kAskBit, Opcode::kReadRequest);
  EXPECT_FALSE(acks.ack_due());
  acks.delivered(kAskBit, Opcode::kSend);
  EXPECT_TRUE(acks.due_to_receive());
  EXPECT_EQ(acks.received(), 2U);
  EXPECT_TRUE(acks.take_ack());
  EXPECT_FALSE(acks.take_ack());
}

TEST(Acks, GoesBackNoFurtherThanWhatIsAcknowledged) {
  Acks acks(true);
  SendWqe wqe = request(SendOp::kSend, SendFlags::kSignaled);
  acks.number(wqe, kAskBit);
  acks.number(wqe, kAskBit);
  EXPECT_TRUE(acks.placed(1));
  EXPECT_FALSE(acks.go_back(0));
  EXPECT_TRUE(acks.go_back(1));
  EXPECT_EQ(acks.asks_sent(), 1U);
}

// --- refused Sends ---

TEST(Refusal, AnEndThatRefusesDropsUntilThePeerThatWasToldResumes) {
  Refusal r;
  EXPECT_FALSE(r.peer_resumes());
  r.refuse();
  EXPECT_TRUE(r.drops());
  EXPECT_TRUE(r.has_news());
  EXPECT_FALSE(r.peer_resumes());  // it cannot know yet
  EXPECT_TRUE(r.tell_refusal());
  EXPECT_FALSE(r.tell_refusal());
  EXPECT_FALSE(r.has_news());
  EXPECT_TRUE(r.peer_resumes());
  EXPECT_FALSE(r.drops());
}

TEST(Refusal, AnEndThatIsRefusedWaitsAndSaysThatItResumes) {
  Refusal r;
  EXPECT_FALSE(r.tell_resume());
  r.back_off(kNow);
  EXPECT_TRUE(r.backed_off());
  EXPECT_EQ(r.deadline(), kNow);
  r.expired(kNow - Duration{1});
  EXPECT_FALSE(r.tell_resume());
  r.expired(kNow);
  EXPECT_TRUE(r.deadline().is_never());
  EXPECT_TRUE(r.has_news());
  EXPECT_TRUE(r.backed_off());
  EXPECT_TRUE(r.tell_resume());
  EXPECT_FALSE(r.backed_off());
}

TEST(Refusal, CountsTheSameSendOnly) {
  Refusal r;
  r.allow(2);
  EXPECT_TRUE(r.count(Msn{5}));
  EXPECT_TRUE(r.count(Msn{5}));
  EXPECT_FALSE(r.count(Msn{5}));
  EXPECT_TRUE(r.count(Msn{6}));
}

TEST(Refusal, SevenIsForEver) {
  Refusal r;
  r.allow(7);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(r.count(Msn{5}));
}

// --- the path ---

TEST(PathSwitch, HoldsBehindTheMessageThatChangesThePath) {
  PathSwitch p;
  p.send({PathWord::kAnswered, 1});
  p.send({PathWord::kByRing, 2});
  EXPECT_EQ(p.begin().word, PathWord::kAnswered);
  p.built(100);
  EXPECT_FALSE(p.holds());
  EXPECT_EQ(p.begin().word, PathWord::kByRing);
  p.built(200);
  EXPECT_FALSE(p.has_messages());
  EXPECT_TRUE(p.holds());
  EXPECT_FALSE(p.may_change(199));
  EXPECT_EQ(p.may_change(200), PathWord::kByRing);
  p.changed();
  EXPECT_FALSE(p.holds());
}

TEST(PathSwitch, AMessageThatIsTakenBackChangesNothing) {
  PathSwitch p;
  p.send({PathWord::kByTcp, 2});
  (void)p.begin();
  p.built(200);
  p.settle(200);
  EXPECT_TRUE(p.holds());
  p.settle(199);
  EXPECT_FALSE(p.holds());
}

// --- Reads and atomics ---

TEST(InboundRequests, AreKeptUntilTheirResponseIsTaken) {
  InboundRequests r(2);
  ASSERT_TRUE(r.allocate());
  r.slot().request_id = 7;
  r.add();
  EXPECT_TRUE(r.wait());
  EXPECT_EQ(r.next().request_id, 7U);
  r.built(100);
  EXPECT_FALSE(r.wait());
  r.taken(99);
  EXPECT_EQ(r.count(), 1U);
  r.taken(100);
  EXPECT_TRUE(r.empty());
}

TEST(OutstandingReads, ComeInOrderAndAreLimited) {
  OutstandingReads r(2);
  ASSERT_TRUE(r.allocate());
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_FALSE(r.full());
    Outstanding& o = r.add();
    o = {};
    o.wqe = i;
  }
  EXPECT_TRUE(r.full());
  EXPECT_EQ(r.oldest().wqe, 0U);
  EXPECT_EQ(r.at(1).wqe, 1U);
  r.drop_oldest();
  EXPECT_EQ(r.oldest().wqe, 1U);
  r.limit(1);
  EXPECT_TRUE(r.full());
  r.drop_newest();
  EXPECT_TRUE(r.empty());
}

// --- batches ---

TEST(BatchPace, BehindAPauseBatchesBeginSmall) {
  BatchPace p;
  EXPECT_EQ(p.next(), kBatchBytes);
  p.pause(true);
  EXPECT_EQ(p.next(), kBatchBytesFirst);
  EXPECT_TRUE(p.end_pause());
  EXPECT_FALSE(p.end_pause());
  EXPECT_EQ(p.next(), 2 * kBatchBytesFirst);
}

TEST(BatchPace, ThereWasNoPauseWhileThePeerHasABatchToWorkOn) {
  BatchPace p;
  EXPECT_FALSE(p.was_none(kNow));
  p.taken(kBatchBytesFirst - 1, [] { return kNow; });
  EXPECT_FALSE(p.was_none(kNow));
  p.taken(kBatchBytesFirst, [] { return kNow; });
  EXPECT_TRUE(p.was_none(kNow + kBatchPause));
  EXPECT_FALSE(p.was_none(kNow + kBatchPause + Duration{1}));
}

}  // namespace
}  // namespace weft::proto
