// The rules about what is left at the end, about children of fork(), and about who serves a
// completion queue, by lists of events.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "check/check_rules.h"

namespace weft::check {
namespace {

int context, cq, other_cq, qp, srq, channel, pd, domain;
constexpr Rules::Thread kMain = 1, kOther = 2;

struct Process {
  std::vector<Finding> found;
  Rules rules{[this](const Finding& finding) { found.push_back(finding); }};
  Origin line = 0;

  Process() {
    make(&context, Kind::kContext, "ibv_open_device");  // line 1
    make(&channel, Kind::kChannel, "ibv_create_comp_channel");
    make(&cq, Kind::kCq, "ibv_create_cq", {&channel});  // line 3
    make(&other_cq, Kind::kCq, "ibv_create_cq", {&channel});
    make(&domain, Kind::kThreadDomain, "ibv_alloc_td");  // line 5
    make(&pd, Kind::kPd, "ibv_alloc_parent_domain", {nullptr, &domain});
    make(&srq, Kind::kSrq, "ibv_create_srq", {&pd});
    make(&qp, Kind::kQp, "ibv_create_qp", {&pd, &cq, &other_cq});  // line 8
  }
  void make(const void* handle, Kind kind, const char* call, std::array<const void*, 4> of = {}) {
    Made made;
    made.handle = handle;
    made.kind = kind;
    made.parents = of;
    made.number = kind == Kind::kQp ? 7 : 0;
    rules.made(made, here(call));
  }
  Here here(const char* call) { return {call, ++line}; }
  void arm(std::size_t queued, Rules::Thread by = kMain) {
    rules.armed(&cq, queued, by, here("ibv_req_notify_cq"));
  }
  void post() {
    Posted request;
    request.qp = &qp;
    request.signaled = true;
    static_cast<void>(rules.posting(request, here("ibv_post_send")));
  }
  void wait(std::size_t armed = 1) {
    rules.waits(&channel, armed, kMain, here("ibv_get_cq_event"));
  }
  void take(Rules::Thread by = kMain) { rules.took_event(&cq, by, here("ibv_get_cq_event")); }
  [[nodiscard]] std::string ids() const {
    std::string out;
    for (const Finding& one : found) out += std::string(one.rule) + " ";
    return out;
  }
};

TEST(CheckEnds, CompletionsThatNobodyHasPolledAreToldWhenTheProcessEnds) {
  Process p;
  p.rules.ended({{&cq, {2, false, {}}}, {&other_cq, {}}, {&qp, {}}});
  ASSERT_EQ(p.ids(), "N42 ");
  EXPECT_EQ(p.found[0].at, 3U);
  EXPECT_EQ(p.found[0].call, "ibv_create_cq");
  EXPECT_EQ(p.found[0].text,
            "the process ends, and 2 completions of this completion queue nobody has polled");
}

TEST(CheckEnds, WhatAQueuePairInErrorHasFlushedIsNotTold) {
  Process p;
  p.rules.ended({{&cq, {2, false, {}}}, {&other_cq, {1, false, {}}}, {&qp, {0, true, {}}}});
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckEnds, DestroyedObjectsHaveNothingLeft) {
  Process p;
  p.rules.destroyed(&cq, p.here("ibv_destroy_cq"));
  p.rules.ended({{&cq, {2, false, {}}}});
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckEnds, AsynchronousEventsThatNobodyHasReadAreNamed) {
  Process p;
  p.rules.ended({{&context, {0, false, {{"SRQ limit reached", &srq}, {"port error", nullptr}}}}});
  ASSERT_EQ(p.ids(), "N42 ");
  EXPECT_EQ(p.found[0].at, 1U);
  EXPECT_EQ(p.found[0].text,
            "the process ends, and 2 asynchronous events nobody has read (ibv_get_async_event)");
  ASSERT_EQ(p.found[0].notes.size(), 2U);
  EXPECT_EQ(p.found[0].notes[0].text, "SRQ limit reached: shared receive queue, made");
  EXPECT_EQ(p.found[0].notes[0].at, 7U);
  EXPECT_EQ(p.found[0].notes[1].text, "port error: the device");
}

TEST(CheckEnds, ADeviceThatIsClosedIsAskedForItsEvents) {
  Process p;
  p.rules.closing(&context, {}, p.here("ibv_close_device"));
  EXPECT_EQ(p.ids(), "");
  p.rules.closing(&context, {0, false, {{"port error", nullptr}}}, p.here("ibv_close_device"));
  ASSERT_EQ(p.ids(), "N42 ");
  EXPECT_EQ(p.found[0].at, 10U);
  EXPECT_EQ(p.found[0].notes.back().at, 1U);
}

TEST(CheckEnds, AChildIsAskedForTheObjectsOfItsParentAlone) {
  Process p;
  int own = 0;
  p.rules.destroyed(&srq, p.here("ibv_destroy_srq"));
  p.rules.inherited(&own, p.here("ibv_poll_cq"));
  p.rules.inherited(&srq, p.here("ibv_destroy_srq"));
  p.rules.inherited(&context, p.here("ibv_close_device"));
  EXPECT_EQ(p.ids(), "");
  p.rules.inherited(&cq, p.here("ibv_poll_cq"));
  ASSERT_EQ(p.ids(), "E61 ");
  EXPECT_EQ(p.found[0].at, p.line);
  EXPECT_EQ(p.found[0].notes.at(0).at, 3U);
}

TEST(CheckEnds, ThePromiseOfAThreadDomainIsNamed) {
  Process p;
  p.rules.entered_twice(&qp, p.here("ibv_post_send"));
  p.rules.entered_twice(&cq, p.here("ibv_poll_cq"));
  ASSERT_EQ(p.ids(), "E62 E62 ");
  ASSERT_EQ(p.found[0].notes.size(), 2U);
  EXPECT_EQ(p.found[0].notes[1].text, "thread domain, made");
  EXPECT_EQ(p.found[0].notes[1].at, 5U);
  EXPECT_EQ(p.found[1].notes.size(), 1U);
}

TEST(CheckEnds, AWaitIsOnlyReportedWhereNoOtherThreadServesTheQueue) {
  Process p;
  p.arm(1, kOther);  // it is about to poll
  p.wait();
  EXPECT_EQ(p.ids(), "");
  p.rules.polls(&cq, kOther);
  p.arm(1);
  p.wait();
  EXPECT_EQ(p.ids(), "");
  p.rules.polls(&cq, kMain);
  p.arm(1);
  p.wait();  // the other one may poll again
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckEnds, AWaitForAnotherQueueOfTheChannelIsNotReported) {
  Process p;
  p.arm(1);
  p.wait(2);
  EXPECT_EQ(p.ids(), "");
  p.wait();
  EXPECT_EQ(p.ids(), "W40 ");
}

TEST(CheckEnds, AWaitBehindARequestThatMakesAnEventIsNotReported) {
  Process p;
  p.post();
  p.arm(1);
  p.post();
  p.wait();
  EXPECT_EQ(p.ids(), "");
  p.take();  // until then the one that was there has waited
  EXPECT_EQ(p.ids(), "N40 ");
  p.arm(1);
  p.wait();
  EXPECT_EQ(p.ids(), "N40 W40 ");
}

TEST(CheckEnds, AnEventThatEndsAWaitElsewhereIsReported) {
  Process p;
  p.rules.polls(&cq, kMain);
  p.arm(2);
  p.take();
  ASSERT_EQ(p.ids(), "N40 ");
  EXPECT_EQ(p.found[0].at, 10U);
  EXPECT_EQ(p.found[0].notes.at(1).at, 9U);
  p.take();
  p.arm(2);
  p.rules.polls(&cq, kMain);
  p.take();
  EXPECT_EQ(p.ids(), "N40 ");
}

TEST(CheckEnds, AnEventThatAnotherThreadTakesIsNot) {
  Process p;
  p.arm(2);
  p.take(kOther);
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckEnds, WhatNobodyPollsBehindAnArmIsToldAtTheEnd) {
  Process p;
  p.arm(2, kOther);
  p.wait();
  p.rules.ended({{&cq, {3, false, {}}}});
  ASSERT_EQ(p.ids(), "N40 ");
  EXPECT_EQ(p.found[0].at, 9U);
  EXPECT_EQ(p.found[0].call, "ibv_req_notify_cq");
}

}  // namespace
}  // namespace weft::check
