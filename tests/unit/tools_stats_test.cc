#include "weft/perf/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace weft::cli {
namespace {

std::vector<std::int64_t> one_to(std::int64_t n) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(n));
  std::iota(samples.begin(), samples.end(), 1);
  std::ranges::shuffle(samples, std::mt19937(1));
  return samples;
}

TEST(Percentile, IsTheNearestRank) {
  auto samples = one_to(100);
  EXPECT_EQ(percentile(samples, 0), 1);
  EXPECT_EQ(percentile(samples, 50), 50);
  EXPECT_EQ(percentile(samples, 99), 99);
  EXPECT_EQ(percentile(samples, 99.9), 100);
  EXPECT_EQ(percentile(samples, 100), 100);
}

TEST(Percentile, OfOneSampleIsThatSample) {
  std::vector<std::int64_t> samples{42};
  for (const double p : {0.0, 50.0, 99.9, 100.0}) EXPECT_EQ(percentile(samples, p), 42);
}

TEST(Percentile, OfNothingIsZero) {
  std::vector<std::int64_t> none;
  EXPECT_EQ(percentile(none, 50), 0);
}

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({}), 0);
}

TEST(Summarize, TurnsNanosecondsOfRoundTripsIntoMicrosecondsOneWay) {
  std::vector<std::int64_t> samples{6000, 2000, 4000};
  const LatencyUs us = summarize(samples, 2);
  EXPECT_DOUBLE_EQ(us.p50, 2);
  EXPECT_DOUBLE_EQ(us.max, 3);
  EXPECT_EQ(us.samples, 3U);
}

TEST(Combine, TakesMediansOfPercentilesAndTheLargestMaximum) {
  const std::vector<LatencyUs> rounds = {
      {1, 2, 3, 4, 5, 10}, {3, 4, 5, 6, 90, 10}, {2, 3, 4, 5, 6, 10}};
  const LatencyUs all = combine(rounds);
  EXPECT_DOUBLE_EQ(all.p50, 2);
  EXPECT_DOUBLE_EQ(all.p99, 4);
  EXPECT_DOUBLE_EQ(all.max, 90);
  EXPECT_EQ(all.samples, 30U);
}

}  // namespace
}  // namespace weft::cli
