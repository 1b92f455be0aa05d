// How the ends of a connection find each other: the table, and the segment that it names.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "sockets/granted/rendezvous_table.h"
#include "sockets/granted/segment.h"

namespace weft::sockets::granted {
namespace {

using rendezvous::Answer;
using rendezvous::Found;
using rendezvous::Made;

constexpr std::int32_t kNobodysPid = 4'194'303;  // above any that a test's machine gives
constexpr std::uint32_t kSpace = 11;
constexpr std::int64_t kNsPerS = 1'000'000'000;

Key key_of(std::uint32_t number) {
  Key key;
  std::memcpy(key.octets.data(), &number, sizeof number);
  return key;
}

class Rendezvous : public ::testing::Test {
 protected:
  Found post(const Key& key, unsigned end, Ticket& ticket, std::int64_t now = 0) {
    return table_->post(me_, now, {key, end, 5 + end}, ticket);
  }

  const Member me_{static_cast<std::int32_t>(getpid()), kSpace};
  const Member other_{static_cast<std::int32_t>(getppid()), kSpace};
  std::unique_ptr<RendezvousTable> table_ = std::make_unique<RendezvousTable>();
};

TEST_F(Rendezvous, SecondEndGivesTheFirstASegment) {
  Ticket first;
  Ticket second;
  Made made;
  ASSERT_EQ(post(key_of(1), 0, first), Found::kPosted);
  EXPECT_EQ(table_->look(first, made), Answer::kNotYet);
  ASSERT_EQ(post(key_of(1), 1, second), Found::kPeer);
  table_->give(second, {77, 88});
  ASSERT_EQ(table_->look(first, made), Answer::kSegment);
  EXPECT_EQ(made.segment, 77);
  EXPECT_EQ(made.nonce, 88U);
  EXPECT_EQ(table_->look(first, made), Answer::kGone);
}

TEST_F(Rendezvous, EntryIsWithdrawnThoughAnotherIsAtTheTable) {
  Ticket first;
  Ticket second;
  ASSERT_EQ(post(key_of(1), 0, first), Found::kPosted);
  ASSERT_TRUE(table_->try_lock(other_, 0));
  table_->withdraw(first);
  table_->unlock();
  EXPECT_EQ(post(key_of(1), 1, second), Found::kPosted);
}

// A process that is stopped while it makes a segment keeps no other connection from its ring.
TEST_F(Rendezvous, TableIsFreeWhileASegmentIsMade) {
  Ticket first;
  Ticket second;
  Ticket third;
  Made made;
  ASSERT_EQ(post(key_of(1), 0, first), Found::kPosted);
  ASSERT_EQ(post(key_of(1), 1, second), Found::kPeer);
  EXPECT_EQ(table_->post(other_, 0, {key_of(2), 0, 5}, third), Found::kPosted);
  EXPECT_EQ(table_->look(first, made), Answer::kNotYet);
  table_->withdraw(first);
  table_->give(second, {77, 88});
  EXPECT_EQ(table_->look(first, made), Answer::kGone);
}

TEST_F(Rendezvous, SegmentForAPlaceThatIsAnothersIsNotSeenThere) {
  Ticket first;
  Ticket second;
  Ticket again;
  Made made;
  ASSERT_EQ(post(key_of(1), 0, first), Found::kPosted);
  ASSERT_EQ(post(key_of(1), 1, second), Found::kPeer);
  table_->withdraw(first);
  ASSERT_EQ(post(key_of(1), 0, again), Found::kPosted);
  ASSERT_EQ(again.index, first.index);
  table_->give(second, {77, 88});
  EXPECT_EQ(table_->look(again, made), Answer::kNotYet);
}

TEST_F(Rendezvous, LockOfADeadProcessIsTakenOver) {
  ASSERT_TRUE(table_->try_lock({kNobodysPid, kSpace}, 0));
  EXPECT_TRUE(table_->try_lock(me_, 0));
}

TEST_F(Rendezvous, LockOfAProcessThatCannotBeAskedForIsKeptForAWhile) {
  ASSERT_TRUE(table_->try_lock({kNobodysPid, kSpace + 1}, 0));
  EXPECT_FALSE(table_->try_lock(me_, kNsPerS));
  EXPECT_TRUE(table_->try_lock(me_, (RendezvousTable::kLongestHoldS + 1) * kNsPerS));
}

TEST_F(Rendezvous, PeerThatCannotBeAskedForIsFound) {
  Ticket first;
  Ticket second;
  const Key key = key_of(1);
  ASSERT_EQ(table_->post({kNobodysPid, kSpace + 1}, 0, {key, 0, 5}, first), Found::kPosted);
  ASSERT_EQ(post(key, 1, second), Found::kPeer);
  table_->give(second, {});
}

TEST_F(Rendezvous, PlaceOfAConnectionWhosePeerNeverCameIsGivenAway) {
  Ticket ticket;
  std::uint32_t number = 0;
  while (post(key_of(number), 0, ticket) == Found::kPosted) {
    ASSERT_LE(++number, RendezvousTable::kEntries);
  }
  EXPECT_EQ(post(key_of(number), 0, ticket, RendezvousTable::kPatienceNs), Found::kNo);
  EXPECT_EQ(post(key_of(number), 0, ticket, RendezvousTable::kPatienceNs + 1), Found::kPosted);
}

TEST_F(Rendezvous, SegmentIsOnlyThatOfItsConnection) {
  Made made;
  Segment* segment = segments::make(key_of(1), made);
  if (segment == nullptr) GTEST_SKIP() << "no SysV shared memory here";
  EXPECT_EQ(segments::attach(key_of(2), made), nullptr);
  EXPECT_EQ(segments::attach(key_of(1), {made.segment, made.nonce + 1}), nullptr);
  Segment* other = segments::attach(key_of(1), made);
  ASSERT_NE(other, nullptr);
  segments::detach(other);
  segments::detach(segment);
  EXPECT_EQ(segments::attach(key_of(1), made), nullptr);
}

}  // namespace
}  // namespace weft::sockets::granted
