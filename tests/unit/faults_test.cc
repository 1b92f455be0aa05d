// The decisions of `weft faults sweep`: which call fails, and how a run is judged.
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <limits>
#include <set>

#include "faults/fallible_calls.h"
#include "faults/plan.h"
#include "faults/table.h"

namespace weft::faults {
namespace {

TEST(FaultsPlan, IsReadAsItWasWritten) {
  for (const Plan& plan : {Plan{}, Plan{7, 0, ""}, Plan{7, 2, ""}, Plan{7, 2, "rank 3: a, b"},
                           Plan{std::numeric_limits<std::uint64_t>::max(), 0, ","}}) {
    EXPECT_EQ(plan_of(as_text(plan)), plan) << as_text(plan);
  }
  EXPECT_EQ(plan_of("7"), (Plan{7, 0, ""}));
  EXPECT_EQ(plan_of("7,2"), (Plan{7, 2, ""}));
  EXPECT_EQ(plan_of("7,2,"), (Plan{7, 2, ""}));
}

TEST(FaultsPlan, RefusesWhatIsNoNumber) {
  for (const char* text : {"", "x", "-1", "7x", "7,", "7,x", "7;2", " 7", "18446744073709551616"})
    EXPECT_EQ(plan_of(text), std::nullopt) << text;
}

TEST(FaultsPlan, AProcessIsNamedByItsRankAndItsCommandLine) {
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(identity("", "./a\0-n\0 3\0"sv), "./a -n  3");
  EXPECT_EQ(identity("2", "./a\0"sv), "rank 2: ./a");
  EXPECT_EQ(identity("", ""), "");
}

TEST(FaultsCounter, ExactlyTheNthCallFails) {
  Counter counter({3, 0, ""}, "any");
  EXPECT_FALSE(counter.next(1));
  EXPECT_FALSE(counter.next(1));
  EXPECT_TRUE(counter.next(1));
  EXPECT_FALSE(counter.next(1));
  EXPECT_EQ(counter.count(), 4U);
}

TEST(FaultsCounter, CountsAndFailsNothingForZeroOrInAnotherProcess) {
  for (const Plan& plan : {Plan{0, 0, ""}, Plan{1, 0, "other"}}) {
    Counter counter(plan, "this");
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(counter.next(1));
    EXPECT_EQ(counter.count(), 5U);
  }
  Counter ours({1, 0, "this"}, "this");
  EXPECT_TRUE(ours.next(1));
}

TEST(FaultsCounter, OfAPlaceOnlyTheFirstCallsCount) {
  Counter counter({3, 2, ""}, "");
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(counter.next(1));  // the first two count
  EXPECT_TRUE(counter.next(2));
  EXPECT_EQ(counter.count(), 3U);
}

TEST(FaultsCalls, EachHasAnErrorAndIsNamedOnce) {
  std::set<std::string_view> names;
  for (const FallibleCall& call : fallible_calls()) {
    EXPECT_GT(call.error, 0) << call.name;
    EXPECT_TRUE(names.insert(call.name).second) << call.name;
  }
  EXPECT_EQ(error_of("ibv_alloc_pd"), ENOMEM);
  EXPECT_EQ(error_of("ibv_dealloc_pd"), 0);
}

// A run in which the second call of "a" failed.
SweepRun failed_run() {
  SweepRun run;
  run.nth = 2;
  run.process = "a";
  Image image;
  image.process = "a";
  image.pid = 10;
  image.faults = {{"ibv_reg_mr", "ENOMEM", {"main (a.c:1)"}}};
  run.images = {image};
  return run;
}

TEST(FaultsJudge, ExitStatusAndSignalsSayHowARunEnded) {
  SweepRun run = failed_run();
  EXPECT_EQ(judge(run, {}).result, Result::kIgnored);
  run.status = 1;
  EXPECT_EQ(judge(run, {}).result, Result::kReported);
  run.status = 0;
  run.signal = SIGTERM;
  EXPECT_EQ(judge(run, {}).result, Result::kCrash);
  EXPECT_EQ(judge(run, {}).signal, SIGTERM);
}

TEST(FaultsJudge, AScriptMayKeepAnExitStatusForItself) {
  SweepRun run = failed_run();
  run.images[0].ended = true;
  run.images[0].status = 3;
  EXPECT_EQ(judge(run, {}).result, Result::kReported);
  EXPECT_EQ(judge(run, {}).status, 3);
  SweepRun plain = failed_run();
  plain.images = run.images;  // it always ends so
  EXPECT_EQ(judge(run, plain).result, Result::kIgnored);
}

TEST(FaultsJudge, ACrashBehindAShellIsSeenByItsStatusOrItsRecord) {
  SweepRun run = failed_run();
  run.status = 128 + SIGSEGV;
  EXPECT_EQ(judge(run, {}).signal, SIGSEGV);
  run.status = 128 + SIGTERM;  // of a server that the shell ends
  EXPECT_EQ(judge(run, {}).result, Result::kReported);
  run.status = 0;
  run.timed_out = true;
  run.images[0].signal = SIGABRT;  // and another process waits for it
  EXPECT_EQ(judge(run, {}).result, Result::kCrash);
}

TEST(FaultsJudge, AHangIsOfTheProcessWhoseCallFailed) {
  SweepRun run = failed_run();
  run.timed_out = true;
  run.alive = {9, 10};
  EXPECT_EQ(judge(run, {}).result, Result::kHang);
  EXPECT_FALSE(judge(run, {}).others_wait);
  run.alive = {9};
  EXPECT_EQ(judge(run, {}).result, Result::kReported);  // by _exit(): its status is not known
  EXPECT_TRUE(judge(run, {}).others_wait);
  run.images[0].ended = true;
  EXPECT_EQ(judge(run, {}).result, Result::kIgnored);
  run.images[0].status = 2;
  EXPECT_EQ(judge(run, {}).status, 2);
}

TEST(FaultsJudge, WhatTheRunWithoutAFaultLeavesToIsNoLeak) {
  const Left pd{"protection domain", {"main (a.c:1)"}};
  const Left other{"protection domain", {"main (a.c:2)"}};
  SweepRun plain = failed_run();
  plain.images[0].left = {pd};
  SweepRun run = failed_run();
  run.images[0].left = {pd, pd, other};
  const Verdict verdict = judge(run, plain);
  ASSERT_EQ(verdict.left.size(), 2U);
  EXPECT_EQ(verdict.left[0].at, pd.at);
  EXPECT_EQ(verdict.left[1].at, other.at);
}

TEST(FaultsJudge, LeaksAreThoseOfTheProcessAndFindingsOfAll) {
  SweepRun run = failed_run();
  Image peer;
  peer.process = "b";
  peer.left = {{"queue pair", {}}};
  run.images.push_back(peer);
  run.found = {{"E41", "ibv_destroy_cq", "waits for 0x1", {}}};
  EXPECT_TRUE(judge(run, {}).left.empty());
  EXPECT_EQ(judge(run, {}).found.size(), 1U);
  SweepRun plain;
  plain.found = {{"E41", "ibv_destroy_cq", "waits for 0x2", {}}};
  EXPECT_TRUE(judge(run, plain).found.empty());
}

TEST(FaultsJudge, ARunWithFewerCallsHasNoFault) {
  SweepRun run = failed_run();
  run.process = "b";
  EXPECT_EQ(fault_of(run), nullptr);
  run.process = "a";
  EXPECT_EQ(fault_of(run)->call, "ibv_reg_mr");
}

TEST(FaultsJudge, ProcessesAreNamedOnceAndThoseWithoutCallsNotAtAll) {
  SweepRun plain;
  for (const char* name : {"b", "a", "", "b"}) {
    Image image;
    image.process = name;
    image.calls = plain.images.size();
    plain.images.push_back(image);
  }
  EXPECT_EQ(processes_of(plain), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(calls_of(plain, "b"), 3U);
  EXPECT_EQ(calls_of(plain, "c"), 0U);
}

TEST(FaultsTable, SaysWhatHappenedInEachRunAndInAll) {
  Row reported;
  reported.run = failed_run();
  reported.run.status = 1;
  reported.verdict = judge(reported.run, {});
  Row crash;
  crash.run = failed_run();
  crash.run.nth = 3;
  crash.run.signal = SIGSEGV;
  crash.run.images[0].left = {{"queue pair", {"main (a.c:3)"}}};
  crash.verdict = judge(crash.run, {});
  const std::vector<Row> rows = {reported, crash};
  EXPECT_EQ(table_of(rows),
            "     2  ibv_reg_mr: ENOMEM  main (a.c:1)  reported (exit 1)\n"
            "     3  ibv_reg_mr: ENOMEM  main (a.c:1)  crash (SIGSEGV), 1 handle left\n"
            "Handles that were left:\n"
            "  in 1 run, first 3: queue pair, made at main (a.c:3)\n"
            "2 runs: 1 reported, 0 ignored, 1 crash, 0 hangs\n"
            "In 0 another process waited on, 1 left handles, 0 had findings.\n");
}

}  // namespace
}  // namespace weft::faults
