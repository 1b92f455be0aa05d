// The parts of a lane, each by itself.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sockets/granted/calls_under_way.h"
#include "sockets/granted/join_states.h"
#include "sockets/granted/late_news.h"
#include "sockets/granted/nodelay_for_ring.h"
#include "sockets/granted/reading_habits.h"
#include "sockets/granted/writers_lock.h"
#include "sockets/granted/writing_habits.h"
#include "sockets/spin.h"

namespace weft::sockets::granted {
namespace {

constexpr std::uint32_t kThread = 7;
using Window = ReadingHabits::Window;

// Reads that each followed a wait.
void read_after_waits(ReadingHabits& habits, std::uint32_t times) {
  for (std::uint32_t i = 0; i < times; ++i) {
    habits.note_named(kThread, i);
    static_cast<void>(habits.note_read(kThread, 1, 1, false));
  }
}

TEST(JoinDirection, JoinsOnlyWhatIsCounted) {
  Direction direction;
  EXPECT_FALSE(direction.on(JoinEvent::kAgreed));
  EXPECT_FALSE(direction.counted());
  EXPECT_TRUE(direction.on(JoinEvent::kCounts));
  EXPECT_TRUE(direction.counted());
  EXPECT_FALSE(direction.joined());
  EXPECT_TRUE(direction.on(JoinEvent::kAgreed));
  EXPECT_TRUE(direction.joined());
}

TEST(JoinDirection, ThatIsForbiddenIsStillCounted) {
  Direction direction;
  EXPECT_FALSE(direction.on(JoinEvent::kForbidden));
  ASSERT_TRUE(direction.on(JoinEvent::kCounts));
  ASSERT_TRUE(direction.on(JoinEvent::kAgreed));
  EXPECT_TRUE(direction.on(JoinEvent::kForbidden));
  EXPECT_TRUE(direction.counted());
  EXPECT_FALSE(direction.joined());
}

TEST(JoinDirection, ThatIsLeftAloneIsApartFromAnyState) {
  Direction direction;
  EXPECT_FALSE(direction.on(JoinEvent::kLeftAlone));
  ASSERT_TRUE(direction.on(JoinEvent::kCounts));
  EXPECT_TRUE(direction.on(JoinEvent::kLeftAlone));
  EXPECT_FALSE(direction.counted());
  ASSERT_TRUE(direction.on(JoinEvent::kCounts));
  ASSERT_TRUE(direction.on(JoinEvent::kAgreed));
  EXPECT_TRUE(direction.on(JoinEvent::kLeftAlone));
  EXPECT_FALSE(direction.counted());
}

TEST(LaneCallsUnderWay, CountsEachKindByItself) {
  CallsUnderWay calls;
  EXPECT_TRUE(calls.none());
  calls.enter(Call::kReceives);
  calls.enter(Call::kVisits);
  EXPECT_EQ(calls.count(Call::kReceives), 1U);
  EXPECT_EQ(calls.count(Call::kSends), 0U);
  calls.leave(Call::kReceives);
  EXPECT_FALSE(calls.none());
  calls.leave(Call::kVisits);
  EXPECT_TRUE(calls.none());
  EXPECT_DEATH(calls.leave(Call::kSends), "before != 0");
}

TEST(LaneReadingHabits, WindowStaysOpenAfterAStreakOfReadsThatFollowWaits) {
  ReadingHabits habits;
  read_after_waits(habits, ReadingHabits::kStreak - 1);
  EXPECT_FALSE(habits.keeps_window());
  habits.note_named(kThread, 0);
  EXPECT_EQ(habits.note_read(kThread, 1, 1, false), Window::kOpens);
  EXPECT_TRUE(habits.keeps_window());
}

TEST(LaneReadingHabits, ReadThatNoWaitPrecedesEndsTheStreakAndClosesTheWindow) {
  ReadingHabits habits;
  read_after_waits(habits, ReadingHabits::kStreak);
  EXPECT_EQ(habits.note_read(kThread + 1, 1, 1, false), Window::kCloses);
  EXPECT_FALSE(habits.keeps_window());
  EXPECT_EQ(habits.note_read(kThread + 1, 1, 1, false), Window::kStays);
}

TEST(LaneReadingHabits, NameLastsUntilAReadFindsLessThanItAskedFor) {
  ReadingHabits habits;
  habits.note_named(kThread, 5);
  EXPECT_TRUE(habits.has_reported(5));
  EXPECT_FALSE(habits.has_reported(6));
  static_cast<void>(habits.note_read(kThread, 8, 8, false));
  EXPECT_TRUE(habits.is_named());
  static_cast<void>(habits.note_read(kThread, 7, 8, false));
  EXPECT_FALSE(habits.is_named());
}

TEST(LaneReadingHabits, ProgramThatPollsLeavesOutMostQuestionsToTheKernel) {
  ReadingHabits habits;
  for (std::uint32_t i = 0; i <= ReadingHabits::kStreak; ++i) {
    static_cast<void>(habits.note_read(kThread, kGrantWouldBlock, 8, false));
  }
  EXPECT_TRUE(habits.polls());
  int asked = 0;
  for (std::uint32_t i = 0; i < 2 * kLeaveOut; ++i) asked += habits.leaves_out() ? 0 : 1;
  EXPECT_EQ(asked, 2);
}

TEST(LaneReadingHabits, KernelsEdgeIsTakenOnceAndEndsPolling) {
  ReadingHabits habits;
  EXPECT_FALSE(habits.take_kernels_edge());
  habits.note_kernels_edge();
  EXPECT_FALSE(habits.polls());
  EXPECT_TRUE(habits.take_kernels_edge());
  EXPECT_FALSE(habits.take_kernels_edge());
}

TEST(LaneReadingHabits, RingThatBroughtNothingIsOfferedAtTrialsUntilItDoes) {
  ReadingHabits habits;
  while (!habits.waits().often()) {
    EXPECT_TRUE(habits.waits().worth_it());
    habits.note_wait(true, true, false);
  }
  EXPECT_FALSE(habits.waits().worth_it());
  habits.note_wait(true, true, true);
  EXPECT_TRUE(habits.waits().worth_it());
}

TEST(LaneReadingHabits, ReadThatFoundItsOctetsInTcpAtOnceSaysNothingOfTheRing) {
  ReadingHabits habits;
  for (int i = 0; i < 1000; ++i) habits.note_wait(true, false, false);
  EXPECT_FALSE(habits.waits().often());
  // Those that are left out count, so that a trial comes.
  for (int i = 0; i < 1000; ++i) habits.note_wait(habits.waits().worth_it(), true, false);
  EXPECT_TRUE(habits.waits().often());
  int left_out = 0;
  while (!habits.waits().worth_it() && left_out < 1000) {
    habits.note_wait(false, false, false);
    ++left_out;
  }
  EXPECT_LT(left_out, 100);
}

TEST(LaneSpin, BudgetIsNoMoreThanHalvedWhereTheThreadDidNotRun) {
  SpinBudget budget{};
  begin_spin(budget);
  const auto look = [] {
    usleep(1000);
    return false;
  };
  EXPECT_FALSE(spin(budget, look));
  EXPECT_EQ(kSpinMaxNs / 2, budget.ns.load());
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(spin(budget, look));
  EXPECT_EQ(kSpinMinNs, budget.ns.load());
}

TEST(LaneWritingHabits, EachBanIsLongerUntilLongAgo) {
  constexpr std::int64_t kFirst = 10'000'000;
  WritingHabits habits;
  const auto banned_at = [&habits](std::int64_t now) {
    return habits.is_banned([now] { return now; });
  };
  EXPECT_FALSE(banned_at(0));
  habits.ban_ring(1);
  EXPECT_TRUE(banned_at(kFirst));
  EXPECT_FALSE(banned_at(1 + kFirst));
  habits.ban_ring(1 + kFirst);
  EXPECT_TRUE(banned_at(1 + 2 * kFirst));
  EXPECT_FALSE(banned_at(1 + 3 * kFirst));
  const std::int64_t later = 1000 * kFirst;
  habits.ban_ring(later);
  EXPECT_FALSE(banned_at(later + kFirst));
}

TEST(LaneWritingHabits, OctetsRestWhoseReaderHasNotMovedBetweenTwoTicks) {
  WritingHabits habits;
  EXPECT_FALSE(habits.rests(8, true));
  EXPECT_FALSE(habits.rests(10, true));
  EXPECT_TRUE(habits.rests(10, true));
  EXPECT_FALSE(habits.rests(10, false));
  EXPECT_FALSE(habits.rests(10, true));
}

TEST(LaneWritersLock, BelongsToOneThreadUntilItUnlocks) {
  WritersLock lock;
  const std::uint32_t me = this_thread();
  ASSERT_TRUE(lock.try_lock(me));
  EXPECT_TRUE(lock.held_by(me));
  EXPECT_FALSE(lock.try_lock(me + 1));
  lock.unlock(me + 1);  // not its own
  EXPECT_TRUE(lock.held_by(me));
  EXPECT_DEATH(lock.lock(me), "held_by");
  lock.unlock(me);
  EXPECT_TRUE(lock.try_lock(me + 1));
}

TEST(LaneNews, ErrorIsTakenOnceAndTheEndStays) {
  LateNews news;
  EXPECT_EQ(news.take_error(), 0);
  news.keep_error(ECONNRESET);
  news.note_end();
  EXPECT_EQ(news.take_error(), ECONNRESET);
  EXPECT_EQ(news.take_error(), 0);
  EXPECT_TRUE(news.ended());
}

class LaneNodelay : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_GE(fd_, 0); }
  void TearDown() override { close(fd_); }
  [[nodiscard]] bool kernel_has_it_on() const {
    int on = 0;
    socklen_t length = sizeof on;
    EXPECT_EQ(getsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, &length), 0);
    return on != 0;
  }

  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
  NodelayForRing nodelay_;
};

TEST_F(LaneNodelay, IsOnForTheRingAndGivenBackAsTheProgramHadIt) {
  EXPECT_EQ(nodelay_.programs(), NodelayForRing::Program::kUnknown);
  nodelay_.turn_on(fd_);
  EXPECT_TRUE(kernel_has_it_on());
  EXPECT_EQ(nodelay_.programs(), NodelayForRing::Program::kOff);
  nodelay_.give_back(fd_);
  EXPECT_FALSE(kernel_has_it_on());
}

TEST_F(LaneNodelay, StaysOnThoughTheProgramTurnsItOff) {
  nodelay_.turn_on(fd_);
  nodelay_.note_set(fd_, true);
  EXPECT_EQ(nodelay_.programs(), NodelayForRing::Program::kOn);
  nodelay_.give_back(fd_);
  EXPECT_TRUE(kernel_has_it_on());
  nodelay_.note_set(fd_, false);
  EXPECT_TRUE(kernel_has_it_on());
  nodelay_.give_back(fd_);
  EXPECT_FALSE(kernel_has_it_on());
}

}  // namespace
}  // namespace weft::sockets::granted
