// The limit of --bwlimit.
#include "files/client/copy_pace.h"

#include <gtest/gtest.h>

namespace weft::files {
namespace {

using std::chrono::seconds;

TEST(Pace, LetsEachRequestWaitForThoseBeforeIt) {
  Pace pace(100);
  const auto start = Pace::Clock::now();
  EXPECT_EQ(pace.due(200, start), seconds(0));
  EXPECT_EQ(pace.due(100, start), seconds(2));
  EXPECT_EQ(pace.due(100, start + seconds(1)), seconds(2));
  EXPECT_EQ(pace.due(100, start + seconds(4)), seconds(0));
}

TEST(Pace, DoesNotMakeUpForIdleTime) {
  Pace pace(100);
  const auto start = Pace::Clock::now();
  EXPECT_EQ(pace.due(100, start), seconds(0));
  EXPECT_EQ(pace.due(100, start + std::chrono::hours(1)), seconds(0));
  EXPECT_EQ(pace.due(100, start + std::chrono::hours(1)), seconds(1));
}

TEST(Pace, HasNoLimitOfZero) {
  Pace pace(0);
  const auto start = Pace::Clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pace.due(~std::uint64_t{0}, start), seconds(0));
}

TEST(FilesPace, NoMoreIsUnderWayThanAQuarterOfASecondBrings) {
  constexpr std::uint64_t kMiB = 1 << 20;
  EXPECT_EQ(Pace(0).blocks_at_once(kMiB), 1024U);
  EXPECT_EQ(Pace(100'000).blocks_at_once(kMiB), 1U);
  EXPECT_EQ(Pace(16 * kMiB).blocks_at_once(kMiB), 4U);
  EXPECT_EQ(Pace(~std::uint64_t{0}).blocks_at_once(kMiB), 1024U);
}

}  // namespace
}  // namespace weft::files
