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

}  // namespace
}  // namespace weft::files
