// Waits and the lanes that they look at, while other threads close numbers.
#include <gtest/gtest.h>

#include "sockets/granted/watched.h"
#include "sockets_lanes_testing.h"

namespace weft::sockets::granted {
namespace {

TEST_F(Lanes, WaitDoesNotWatchALaneWhoseNumberAnotherThreadHasClosed) {
  join_both();
  Lane& lane = *lane_of(b_);
  leave_to_close(b_);  // after this thread has found the lane in the list
  ASSERT_FALSE(lane.rings.has_own());
  Watched watched;
  watched.add(lane, 0);
  EXPECT_TRUE(watched.empty());
}

TEST_F(Lanes, MemoryOfALaneStaysUntilTheLastScanEnds) {
  join_both();
  Lane& lane = *lane_of(b_);
  {
    const lanes::Scan first;
    const lanes::Scan second;
    leave_to_close(b_);
    EXPECT_FALSE(lane.live.load());
    EXPECT_TRUE(lane.rings.has_own());
  }
  EXPECT_FALSE(lane.rings.has_own());
}

}  // namespace
}  // namespace weft::sockets::granted
