#include "weft/perf/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "weft/perf/perf_messages.h"

namespace weft::cli {
namespace {

PlanRequest quick() {
  PlanRequest request;
  request.rounds = 2;
  return request;
}

TEST(Plan, GivesEveryContenderOfASizeATurnInEachRound) {
  PlanRequest request = quick();
  request.transports = {Transport::kRdma, Transport::kTcp};
  request.ops = {Operation::kWrite, Operation::kRead};
  request.sizes = {64, 4096};
  const auto plan = make_plan(request);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->contenders.size(), 6U);  // write, read and one TCP stream, twice
  std::vector<std::pair<std::size_t, std::uint32_t>> order;
  for (const Step& step : plan->steps) order.emplace_back(step.contender, step.round);
  const std::vector<std::pair<std::size_t, std::uint32_t>> expected = {
      {0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {2, 1},
      {3, 0}, {4, 0}, {5, 0}, {3, 1}, {4, 1}, {5, 1}};
  EXPECT_EQ(order, expected);
}

TEST(Plan, PutsTheVerifiedPassFirst) {
  PlanRequest request = quick();
  request.verify = true;
  request.ops = {Operation::kWrite, Operation::kSend};
  const auto plan = make_plan(request);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->steps.size(), 6U);
  EXPECT_TRUE(plan->steps[0].verify && plan->steps[1].verify);
  EXPECT_TRUE(std::none_of(plan->steps.begin() + 2, plan->steps.end(),
                           [](const Step& step) { return step.verify; }));
}

TEST(Plan, OnlyVerifiesWhenNothingIsMeasured) {
  PlanRequest request = quick();
  request.verify = true;
  request.bandwidth = false;
  request.latency = false;
  const auto plan = make_plan(request);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->steps.size(), 1U);
}

TEST(Plan, RunsCombinationsThatMeanTheSameOnce) {
  PlanRequest request = quick();
  request.transports = {Transport::kTcp};
  request.ops = {Operation::kWrite, Operation::kRead, Operation::kSend};
  request.crc = {true, false};
  request.depths = {1, 128};
  const auto plan = make_plan(request);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->contenders.size(), 1U);
  EXPECT_EQ(plan->contenders[0].op, Operation::kSend);
}

TEST(Plan, MeasuresAtomicsWithEightBytesWhateverTheSizes) {
  PlanRequest request = quick();
  request.ops = {Operation::kFetchAdd};
  request.sizes = {64, 4096};
  const auto plan = make_plan(request);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->contenders.size(), 1U);
  EXPECT_EQ(plan->contenders[0].size, 8U);
}

TEST(Plan, LeavesOutBatchesDeeperThanTheQueueInASweepButRefusesThemAlone) {
  PlanRequest request = quick();
  request.depths = {1, 16};
  request.batches = {1, 16};
  const auto sweep = make_plan(request);
  ASSERT_TRUE(sweep.has_value());
  EXPECT_EQ(sweep->contenders.size(), 3U);
  request.depths = {4};
  request.batches = {16};
  const auto alone = make_plan(request);
  ASSERT_FALSE(alone.has_value());
  EXPECT_NE(alone.error().message.find("batch 16"), std::string::npos);
  EXPECT_EQ(alone.error().exit_code, kExitUsage);
}

TEST(Plan, RefusesSizesOutsideTheLimits) {
  PlanRequest request = quick();
  request.sizes = {perf_limits::kMessageBytes};
  EXPECT_TRUE(make_plan(request).has_value());
  request.sizes = {perf_limits::kMessageBytes + 1};
  EXPECT_FALSE(make_plan(request).has_value());
  request.sizes = {0};
  EXPECT_FALSE(make_plan(request).has_value());
}

TEST(TcpCounterpart, IsTheStreamOfTheSameSizeAndMode) {
  PlanRequest request = quick();
  request.transports = {Transport::kRdma, Transport::kTcp};
  request.tcp_modes = {TcpMode::kRaw, TcpMode::kCopy};
  request.sizes = {64, 4096};
  const auto plan = make_plan(request);
  ASSERT_TRUE(plan.has_value());  // per size: write, raw, copy
  EXPECT_EQ(tcp_counterpart(plan->contenders, 0, TcpMode::kRaw), 1);
  EXPECT_EQ(tcp_counterpart(plan->contenders, 0, TcpMode::kCopy), 2);
  EXPECT_EQ(tcp_counterpart(plan->contenders, 3, TcpMode::kRaw), 4);
  request.transports = {Transport::kRdma};
  EXPECT_EQ(tcp_counterpart(make_plan(request)->contenders, 0, TcpMode::kRaw), -1);
}

TEST(Layout, GivesVerifiedMessagesPlacesOfTheirOwn) {
  TestSpec spec;
  spec.size = 1400000;
  spec.verify = true;
  const Layout layout = layout_of(spec);
  EXPECT_LE(layout.window, layout.slots);
  EXPECT_GE(layout.window, 1U);
  EXPECT_GE(layout.stride, spec.size);
  EXPECT_LT(layout.window, layout.receives);  // one receive is left for a note
}

TEST(Layout, FitsEveryLegalCombination) {
  for (const std::uint64_t size : {1ULL, 63ULL, 64ULL, 65ULL, 65536ULL, 1400000ULL, 1ULL << 30U}) {
    for (const std::uint32_t depth : {1U, 2U, 128U, 8192U}) {
      for (const std::uint32_t connections : {1U, 1000U, 4096U}) {
        for (const bool verify : {false, true}) {
          TestSpec spec;
          spec.size = size;
          spec.depth = depth;
          spec.connections = connections;
          spec.verify = verify;
          const Layout layout = layout_of(spec);
          EXPECT_GE(layout.slots, 1U);
          EXPECT_GE(layout.window, 1U);
          EXPECT_LE(layout.window, depth);
          EXPECT_GE(layout.receives, 2U);
          EXPECT_EQ(layout.stride % 64, 0U);
          if (verify) {
            EXPECT_LE(layout.window, layout.slots);
          }
        }
      }
    }
  }
}

TEST(PhaseLimits, CountInsteadOfTimeWhenAskedTo) {
  PlanRequest request;
  request.iterations = 10;
  TestSpec spec;
  EXPECT_EQ(limits_of(request, spec, Phase::kBandwidth).messages, 10U);
  EXPECT_EQ(limits_of(request, spec, Phase::kLatency).messages, 10U);
  request.iterations = 0;
  request.bytes = 1U << 20U;
  EXPECT_EQ(limits_of(request, spec, Phase::kBandwidth).messages, 16U);
  spec.size = 4U << 20U;
  EXPECT_EQ(limits_of(request, spec, Phase::kBandwidth).messages, 1U);
}

TEST(SpecMessage, ComesBackAsItWasSent) {
  TestSpec spec;
  spec.transport = Transport::kTcp;
  spec.op = Operation::kWriteImm;
  spec.size = 1234;
  spec.depth = 7;
  spec.batch = 3;
  spec.connections = 5;
  spec.idle = 9;
  spec.inline_bytes = 64;
  spec.crc = false;
  spec.markers = true;
  spec.fpdu = FpduPolicy::kMss;
  spec.tcp_mode = TcpMode::kCopy;
  spec.sleep = true;
  spec.verify = true;
  spec.tcp_congestion = "cubic";
  const auto back = spec_from_json(Json::parse(to_json(spec).dump()));
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(*back, spec);
}

TEST(SpecMessage, OfAStrangerIsRefusedWithoutEachMember) {
  const Json good = Json::parse(to_json(TestSpec{}).dump());
  ASSERT_TRUE(spec_from_json(good).has_value());
  for (const char* key :
       {"transport", "op", "size", "depth", "batch", "connections", "fpdu", "tcp_mode"}) {
    Json bad = good;
    bad.erase(key);
    EXPECT_FALSE(spec_from_json(bad).has_value()) << key;
    bad[key] = Json::array({1, 2});
    EXPECT_FALSE(spec_from_json(bad).has_value()) << key;
    bad[key] = -1;
    EXPECT_FALSE(spec_from_json(bad).has_value()) << key;
    bad[key] = ~0ULL;
    EXPECT_FALSE(spec_from_json(bad).has_value()) << key;
  }
}

TEST(SpecMessage, CannotAskForMoreMemoryThanTheLimit) {
  TestSpec spec;
  spec.size = perf_limits::kMessageBytes;
  spec.connections = 5;
  EXPECT_FALSE(spec_from_json(Json::parse(to_json(spec).dump())).has_value());
}

}  // namespace
}  // namespace weft::cli
