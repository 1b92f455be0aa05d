// The end of an extended socket as its application wants it, and the backlog of a listener.
#include <gtest/gtest.h>

#include <chrono>

#include "exs/core/exs_backlog.h"
#include "exs/core/exs_socket_end.h"

namespace weft::exs {
namespace {

using std::chrono::seconds;

constexpr Instant kNow = Instant{} + std::chrono::hours(1);

TEST(SocketEnd, OfCloseIsOneOfShutdownToo) {
  SocketEnd end;
  EXPECT_FALSE(end.shutting() || end.closing());
  end.shut();
  EXPECT_TRUE(end.shutting() && !end.closing());
  end.close();
  EXPECT_TRUE(end.shutting() && end.closing());
  end.shut();
  EXPECT_TRUE(end.closing());
}

TEST(SocketEnd, WaitsAsLongAsItNeedsWithoutLinger) {
  SocketEnd end;
  end.close();
  EXPECT_EQ(end.limit(kNow), Instant::max());
  EXPECT_FALSE(end.abortive());
}

TEST(SocketEnd, OfALingerTimeIsLimitedFromTheCloseOn) {
  SocketEnd end;
  end.linger(true, seconds(3));
  EXPECT_EQ(end.due(), Instant::max());
  end.close();
  EXPECT_EQ(end.limit(kNow), kNow + seconds(3));
  EXPECT_EQ(end.due(), kNow + seconds(3));
  EXPECT_FALSE(end.abortive());
  end.abort();
  EXPECT_TRUE(end.abortive());
  EXPECT_EQ(end.due(), Instant::max());
}

TEST(SocketEnd, OfALingerTimeOfZeroIsAbortiveUntilLingerIsOff) {
  SocketEnd end;
  end.linger(true, seconds(0));
  EXPECT_TRUE(end.abortive());
  end.linger(false, seconds(3));
  EXPECT_FALSE(end.abortive());
  end.close();
  EXPECT_EQ(end.limit(kNow), Instant::max());
}

Arrival arrival() {
  const auto owner = std::make_shared<int>(0);
  Arrival one;
  one.socket = {owner, reinterpret_cast<Socket*>(owner.get())};  // nobody looks at it
  return one;
}

TEST(Backlog, CountsWhatIsBeingSetUpAndWhatWaits) {
  Backlog backlog;
  backlog.limit(2);
  EXPECT_TRUE(backlog.has_room());
  backlog.begin_one();
  EXPECT_TRUE(backlog.has_room());
  backlog.add(arrival());
  EXPECT_FALSE(backlog.has_room());
  backlog.end_one();
  EXPECT_TRUE(backlog.has_room());
  backlog.add(arrival());
  EXPECT_FALSE(backlog.has_room());
}

TEST(Backlog, GivesArrivalsInTheirOrder) {
  Backlog backlog;
  const Arrival one = arrival();
  const Arrival two = arrival();
  backlog.add(one);
  backlog.add(two);
  EXPECT_EQ(backlog.take_first().socket, one.socket);
  EXPECT_EQ(backlog.take_all().size(), 1U);
  EXPECT_TRUE(backlog.empty());
}

}  // namespace
}  // namespace weft::exs
