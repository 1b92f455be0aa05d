// The records of `weft run --timeline`: what is noted of requests and messages.
#include <gtest/gtest.h>

#include <vector>

#include "timeline/growing_ring.h"
#include "timeline/queue_book.h"

namespace weft::timeline {
namespace {

using What = Step::What;

QueueBook::Post write_of(std::uint64_t wr_id, bool signaled = true) {
  return {wr_id, Op::kWrite, 64, signaled};
}

TEST(TimelineRecord, KeepsTimesOfNanosecondsAndOfDays) {
  Record record;
  record.set_times(1000, {1001, kNever, 1000, kNever, kNever, 5'000'000'999});
  EXPECT_EQ(record.start, 1000U);
  EXPECT_EQ(record.at(At::kTaken), kNever);
  EXPECT_EQ(record.at(At::kFirstOut), 1000U);
  EXPECT_NEAR(static_cast<double>(record.at(At::kPolled)), 5'000'000'999.0, 8);
  constexpr std::uint64_t kDays = 400ULL * 86'400 * 1'000'000'000;
  record.set_times(7, {kNever, kNever, kNever, kNever, kNever, kDays});
  EXPECT_NEAR(static_cast<double>(record.at(At::kPolled)), static_cast<double>(kDays), 4e7);
  record.set_times(kNever, {90, 80, kNever, kNever, kNever, kNever});
  EXPECT_EQ(record.start, 80U);
  EXPECT_EQ(record.at(At::kReceivePosted), 90U);
}

TEST(TimelineRecord, AReceiveThatWasPostedLongBeforeBlursNothing) {
  constexpr std::uint64_t kHour = 3'600ULL * 1'000'000'000;
  Record record;
  record.set_times(kNever, {5, kHour, kNever, kHour + 7, kHour + 8, kHour + 1'000'001});
  EXPECT_EQ(record.at(At::kArrived), kHour);
  EXPECT_EQ(record.at(At::kPlaced), kHour + 7);
  EXPECT_EQ(record.at(At::kPolled), kHour + 1'000'001);
  EXPECT_LT(record.at(At::kReceivePosted), kHour - 2'000'000'000);
  record.set_times(kNever, {5, kHour, kNever, kHour + 7, kHour + 8, 2 * kHour});
  EXPECT_EQ(record.at(At::kArrived), kHour);
  EXPECT_NEAR(static_cast<double>(record.at(At::kPolled)), 2.0 * kHour, 4096);
  record.set_times(kNever, {5, kNever, kNever, kNever, kNever, kNever});
  EXPECT_EQ(record.at(At::kReceivePosted), 5U);
}

TEST(TimelineRing, KeepsItsOrderWhereItGrowsAndGoesRound) {
  Ring<int> ring;
  int next = 0, oldest = 0;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 5; ++i) ring.push_back(next++);
    ring.pop_front(3);
    oldest += 3;
    for (std::size_t i = 0; i < ring.size(); ++i)
      ASSERT_EQ(ring[i], oldest + static_cast<int>(i)) << round;
    ASSERT_EQ(ring.back(), next - 1);
  }
  ring.pop_back();
  EXPECT_EQ(ring.back(), next - 2);
  ring.pop_front(ring.size());
  EXPECT_TRUE(ring.empty());
}

class TimelineBook : public ::testing::Test {
 protected:
  TimelineBook() {
    book_.set_number(5);
    book_.connected(3);
  }
  void step(const Step& what, std::uint64_t now) { book_.step(what, now, out_); }
  void poll(std::uint64_t wr_id, std::uint64_t now, std::uint8_t status = 0) {
    book_.polled({wr_id, status, false}, now, out_);
  }
  void begin(std::uint32_t request, std::uint64_t from, std::uint64_t to, std::uint64_t now) {
    step({.what = What::kBegun, .request = request, .offset = from}, now);
    step({.what = What::kBuilt, .request = request, .offset = to}, now);
  }

  QueueBook book_;
  std::vector<Record> out_;
};

TEST_F(TimelineBook, NotesEachStepOfARequest) {
  const std::uint32_t number = book_.posting(write_of(9), 100);
  EXPECT_EQ(number, 0U);
  begin(0, 40, 140, 110);
  step({.what = What::kSent, .offset = 41}, 120);
  step({.what = What::kSent, .offset = 139}, 130);
  step({.what = What::kSent, .offset = 140}, 140);
  book_.post_returned(number, 145);
  step({.what = What::kCompleted, .completes = true, .request = 0, .wr_id = 9}, 150);
  EXPECT_TRUE(out_.empty());
  poll(9, 160);
  ASSERT_EQ(out_.size(), 1U);
  const Record& r = out_.front();
  EXPECT_EQ(r.kind, Kind::kRequest);
  EXPECT_EQ(r.op, Op::kWrite);
  EXPECT_EQ(r.start, 100U);
  EXPECT_EQ(r.at(At::kTaken), 110U);
  EXPECT_EQ(r.at(At::kFirstOut), 120U);
  EXPECT_EQ(r.at(At::kLastOut), 140U);
  EXPECT_EQ(r.at(At::kPostEnd), 145U);
  EXPECT_EQ(r.at(At::kCompleted), 150U);
  EXPECT_EQ(r.at(At::kPolled), 160U);
  EXPECT_EQ(r.end_offset, 140U);
  EXPECT_EQ(r.connection, 3U);
  EXPECT_EQ(r.qp, 5U);
  EXPECT_EQ(r.wr_id, 9U);
}

TEST_F(TimelineBook, OneSentStepMayBeOfManyRequests) {
  for (std::uint32_t i = 0; i < 3; ++i) {
    book_.posting(write_of(i, i == 2), 10 + i);
    begin(i, i * 100, i * 100 + 100, 20);
  }
  step({.what = What::kSent, .offset = 250}, 30);
  step({.what = What::kSent, .offset = 300}, 40);
  poll(2, 50);
  ASSERT_EQ(out_.size(), 3U);
  EXPECT_EQ(out_[0].at(At::kLastOut), 30U);
  EXPECT_EQ(out_[0].at(At::kPolled), kNever) << "it is unsignaled";
  EXPECT_EQ(out_[1].at(At::kLastOut), 30U);
  EXPECT_EQ(out_[2].at(At::kFirstOut), 30U);
  EXPECT_EQ(out_[2].at(At::kLastOut), 40U);
  EXPECT_EQ(out_[2].at(At::kPolled), 50U);
}

TEST_F(TimelineBook, ARequestThatIsSentAgainHasTheTimesOfTheSecond) {
  book_.posting(write_of(1), 10);
  book_.posting(write_of(2), 10);
  begin(0, 0, 100, 20);
  begin(1, 100, 200, 20);
  step({.what = What::kSent, .offset = 200}, 30);
  begin(0, 300, 400, 50);
  begin(1, 400, 500, 50);
  step({.what = What::kSent, .offset = 500}, 60);
  poll(1, 70);
  poll(2, 80);
  ASSERT_EQ(out_.size(), 2U);
  for (const Record& r : out_) {
    EXPECT_EQ(r.at(At::kTaken), 20U);
    EXPECT_EQ(r.at(At::kLastOut), 60U);
  }
  EXPECT_EQ(out_[1].end_offset, 500U);
}

TEST_F(TimelineBook, ARefusedPostLeavesNothing) {
  book_.posting(write_of(1), 10);
  book_.posting(write_of(2), 11);
  book_.not_posted();
  EXPECT_EQ(book_.posting(write_of(3), 12), 1U);
  poll(3, 20);
  ASSERT_EQ(out_.size(), 2U);
  EXPECT_EQ(out_[1].wr_id, 3U);
}

TEST_F(TimelineBook, AFailureMayBeOfAnUnsignaledRequest) {
  book_.posting(write_of(1, false), 10);
  book_.posting(write_of(2), 11);
  poll(1, 20, 12);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(out_[0].status, 12);
}

TEST_F(TimelineBook, NumbersGoOnBehindAReset) {
  book_.posting(write_of(1), 10);
  book_.emptied(out_);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(out_[0].at(At::kPolled), kNever);
  book_.connected(4);
  EXPECT_EQ(book_.posting(write_of(2), 20), 1U);
  begin(1, 0, 10, 21);
  step({.what = What::kSent, .offset = 10}, 22);
  poll(2, 30);
  ASSERT_EQ(out_.size(), 2U);
  EXPECT_EQ(out_[1].at(At::kLastOut), 22U);
  EXPECT_EQ(out_[1].connection, 4U);
}

TEST_F(TimelineBook, AMessageAndItsReceive) {
  step({.what = What::kArrives}, 100);
  book_.receive_taken(50, 101);
  step({.what = What::kPlaced, .op = SendOp::kSend, .length = 7, .offset = 60}, 110);
  step({.what = What::kReceived, .wr_id = 8}, 111);
  EXPECT_TRUE(out_.empty());
  book_.polled({8, 0, true}, 120, out_);
  ASSERT_EQ(out_.size(), 1U);
  const Record& r = out_.front();
  EXPECT_EQ(r.kind, Kind::kReceive);
  EXPECT_EQ(r.start, 50U);
  EXPECT_EQ(r.at(At::kReceivePosted), 50U);
  EXPECT_EQ(r.at(At::kArrived), 100U);
  EXPECT_EQ(r.at(At::kLateUntil), kNever);
  EXPECT_EQ(r.at(At::kPlaced), 110U);
  EXPECT_EQ(r.at(At::kPolled), 120U);
  EXPECT_EQ(r.length, 7U);
  EXPECT_EQ(r.end_offset, 60U);
}

TEST_F(TimelineBook, AMessageThatWaitsForItsReceive) {
  book_.receive_is_late(100);
  book_.receive_taken(190, 200);
  step({.what = What::kPlaced, .op = SendOp::kSend, .offset = 60}, 210);
  step({.what = What::kReceived, .wr_id = 8}, 211);
  book_.polled({8, 0, true}, 220, out_);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(out_[0].at(At::kArrived), 100U);
  EXPECT_EQ(out_[0].at(At::kLateUntil), 200U);
}

TEST_F(TimelineBook, AWriteIsARecordAtOnceAndAFlushedReceiveNone) {
  step({.what = What::kPlaced, .op = SendOp::kWrite, .length = 9, .offset = 60}, 110);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(out_[0].kind, Kind::kMessage);
  EXPECT_EQ(out_[0].at(At::kArrived), 110U);
  step({.what = What::kReceived, .wr_id = 8}, 111);
  book_.polled({8, 5, false}, 120, out_);
  EXPECT_EQ(out_.size(), 1U);
}

TEST_F(TimelineBook, BehindALocalRequestOctetsAreSeenToLeave) {
  for (std::uint64_t i = 0; i < 3; ++i) book_.posting({i, Op::kLocalInvalidate, 0, false}, 10);
  book_.posting(write_of(3), 10);
  for (std::uint32_t i = 0; i < 3; ++i) begin(i, 0, 0, 20);
  begin(3, 0, 100, 20);
  step({.what = What::kSent, .offset = 100}, 30);
  poll(3, 40);
  ASSERT_EQ(out_.size(), 4U);
  EXPECT_EQ(out_[3].at(At::kFirstOut), 30U);
  EXPECT_EQ(out_[3].at(At::kLastOut), 30U);
  EXPECT_EQ(out_[0].at(At::kFirstOut), kNever);
  EXPECT_EQ(out_[0].end_offset, 0U) << "it is no message";
}

TEST_F(TimelineBook, FlushedReceivesThatNobodyPollsHaveNoRecord) {
  step({.what = What::kReceived, .wr_id = 8}, 100);
  step({.what = What::kPlaced, .op = SendOp::kSend, .offset = 60}, 110);
  step({.what = What::kReceived, .wr_id = 9}, 111);
  book_.emptied(out_);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(out_[0].wr_id, 9U);
}

TEST_F(TimelineBook, AFlushedReceiveIsNoRequestWithItsNumber) {
  book_.posting(write_of(1), 10);
  book_.posting(write_of(2), 11);
  step({.what = What::kReceived, .wr_id = 2}, 20);
  step({.what = What::kCompleted, .completes = true, .request = 0, .wr_id = 1}, 30);
  step({.what = What::kCompleted, .completes = true, .request = 1, .wr_id = 2}, 30);
  poll(2, 40, 5);
  EXPECT_TRUE(out_.empty());
  poll(1, 50, 5);
  poll(2, 60, 5);
  ASSERT_EQ(out_.size(), 2U);
  EXPECT_EQ(out_[0].wr_id, 1U);
  EXPECT_EQ(out_[0].status, 5);
  EXPECT_EQ(out_[1].at(At::kPolled), 60U);
  // A request that completed before the receive is polled before it.
  out_.clear();
  book_.posting(write_of(3), 70);
  step({.what = What::kCompleted, .completes = true, .request = 2, .wr_id = 3}, 71);
  step({.what = What::kReceived, .wr_id = 3}, 72);
  poll(3, 80, 5);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(out_[0].kind, Kind::kRequest);
}

TEST_F(TimelineBook, AMessageThatIsLostIsNotTheNextOne) {
  book_.receive_is_late(100);
  book_.message_is_lost();
  step({.what = What::kArrives}, 500);
  book_.receive_taken(450, 501);
  step({.what = What::kPlaced, .op = SendOp::kSend, .offset = 60}, 510);
  step({.what = What::kReceived, .wr_id = 8}, 511);
  book_.polled({8, 0, true}, 520, out_);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(out_[0].at(At::kArrived), 500U);
  EXPECT_EQ(out_[0].at(At::kLateUntil), kNever);
}

}  // namespace
}  // namespace weft::timeline
