#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/seq.h"
#include "base/time.h"

namespace weft {
namespace {

using namespace std::chrono_literals;

TEST(Msn, StartsAtOneAndWrapsToZero) {
  EXPECT_EQ(Msn{}, Msn::first());
  EXPECT_EQ(Msn::first().value, 1U);
  EXPECT_EQ(Msn{0xffffffff}.next(), Msn{0});
  EXPECT_EQ(Msn{0}.next(), Msn{1});
  EXPECT_EQ(Msn{0xfffffffe}.plus(5), Msn{3});
}

TEST(Msn, ComparesAcrossTheWrap) {
  EXPECT_LT(Msn{0xffffffff}, Msn{0});
  EXPECT_GT(Msn{5}, Msn{0xfffffff0});
  EXPECT_LE(Msn{7}, Msn{7});
  EXPECT_GE(Msn{7}, Msn{7});
  EXPECT_FALSE(Msn{7} < Msn{7});
  EXPECT_EQ(Msn{2}.distance_from(Msn{0xfffffffe}), 4);
  EXPECT_EQ(Msn{0xfffffffe}.distance_from(Msn{2}), -4);
}

TEST(Msn, OrdersUpToJustUnderHalfTheRange) {
  EXPECT_LT(Msn{10}, Msn{10 + 0x7fffffffU});
  EXPECT_FALSE(Msn{10} < Msn{10 + 0x80000001U});
}

TEST(Stag, SplitsIntoIndexAndKey) {
  const Stag stag{0x01020304};
  EXPECT_EQ(stag.index(), 0x010203U);
  EXPECT_EQ(stag.key(), 0x04);
  EXPECT_EQ(Stag::of(0x010203, 0x04), stag);
  EXPECT_LT(Stag{1}, Stag{2});
}

TEST(Instant, AddsAndSubtractsDurations) {
  const Instant t{1000};
  EXPECT_EQ(t + 5ns, Instant{1005});
  EXPECT_EQ(t - 5ns, Instant{995});
  EXPECT_EQ((t + 3s) - t, 3s);
  Instant u = t;
  u += 1us;
  EXPECT_EQ(u, Instant{2000});
}

TEST(Instant, NeverIsAfterEverythingAndStaysNever) {
  EXPECT_TRUE(Instant::never().is_never());
  EXPECT_FALSE(Instant{0}.is_never());
  EXPECT_LT(Instant{std::numeric_limits<std::int64_t>::max() - 1}, Instant::never());
  EXPECT_EQ(Instant::never() + 1h, Instant::never());
  EXPECT_EQ(Instant::never() - 1h, Instant::never());
  EXPECT_EQ(std::min(Instant::never(), Instant{7}), Instant{7});
}

TEST(Instant, AdditionSaturatesInsteadOfWrapping) {
  EXPECT_EQ(Instant{1} + Duration::max(), Instant::never());
  EXPECT_EQ(Instant{std::numeric_limits<std::int64_t>::max() - 10} + 11ns, Instant::never());
  EXPECT_EQ((Instant{std::numeric_limits<std::int64_t>::max() - 10} + 9ns).ns,
            std::numeric_limits<std::int64_t>::max() - 1);
}

}  // namespace
}  // namespace weft
