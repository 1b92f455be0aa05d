// The rules about memory that the peer uses or that several write to, and about programs that
// hang, by lists of events.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "check/check_rules.h"
#include "check/ranges.h"

namespace weft::check {
namespace {

constexpr unsigned kRemoteWrite = 2, kRemoteRead = 4;  // IBV_ACCESS_...
constexpr std::uint64_t kSecond = 1'000'000'000;

int ends[2], cq, srq;

struct Program {
  std::vector<Finding> found;
  Rules rules{[this](const Finding& finding) { found.push_back(finding); }};
  Origin line = 0;

  Program() {
    make(&ends[0], Kind::kQp, 7, nullptr);
    make(&ends[1], Kind::kQp, 8, nullptr);
    make(&cq, Kind::kCq, 0, nullptr);
  }
  Here here(const char* call) { return {call, ++line}; }
  void make(const void* handle, Kind kind, std::uint32_t number, const void* shared) {
    Made made;
    made.handle = handle;
    made.kind = kind;
    made.parents = {nullptr, nullptr, nullptr, shared};
    made.number = number;
    made.send_depth = 8;
    rules.made(made, here("make"));
  }
  void write(int end, std::uint64_t addr, std::uint64_t length, bool begins, bool done,
             unsigned how = kRemoteWrite) {
    rules.accessed({&ends[end], how, {addr, length}, begins, done});
  }
  Origin send(int end, std::uint64_t id, bool signaled = true) {
    Posted posted;
    posted.qp = &ends[end];
    posted.wr_id = id;
    posted.opcode = "a Send";
    posted.signaled = signaled;
    rules.posting(posted, here("ibv_post_send"));
    return line;
  }
  Origin read(int end, std::uint64_t id, std::vector<Octets> sinks) {
    Posted posted;
    posted.qp = &ends[end];
    posted.wr_id = id;
    posted.opcode = "an RDMA Read";
    posted.signaled = true;
    posted.sinks = std::move(sinks);
    rules.posting(posted, here("ibv_post_send"));
    return line;
  }
  Origin receive(const void* queue, std::uint64_t id, std::vector<Octets> sinks = {}) {
    rules.posting_receive({queue, id, std::move(sinks), 1}, here("ibv_post_recv"));
    return line;
  }
  void complete(std::uint32_t number, std::uint64_t id, bool receive) {
    rules.completed({number, id, "success", true, false, receive}, here("ibv_poll_cq"));
  }
  // Whether a look at that second finds a hang.
  bool hangs_at(std::uint64_t second, std::uint64_t limit = 10) {
    const auto all = rules.hung(second * kSecond, limit * kSecond);
    if (all.empty()) return false;
    Rules::Looks looks;
    for (const auto& one : all) looks[one.handle] = one.kind == Kind::kQp ? "RTS" : "2 completions";
    rules.hangs(limit * kSecond, looks);
    return true;
  }
};

TEST(CheckRanges, ArePutInTakenOutAndFound) {
  Ranges ranges;
  const auto at = [&](std::uint64_t addr, std::uint64_t length) {
    const Origin* const found = ranges.find({addr, length});
    return found != nullptr ? *found : 0;
  };
  ranges.add({100, 50}, 1);
  EXPECT_EQ(at(149, 1), 1U);
  EXPECT_EQ(at(150, 10), 0U);
  EXPECT_EQ(at(90, 10), 0U);
  EXPECT_EQ(at(0, 1000), 1U);
  ranges.add({120, 10}, 2);  // in the midst
  EXPECT_EQ(at(100, 20), 1U);
  EXPECT_EQ(at(125, 1), 2U);
  EXPECT_EQ(at(130, 1), 1U);
  ranges.remove({110, 30});
  EXPECT_EQ(at(110, 30), 0U);
  EXPECT_EQ(at(109, 1), 1U);
  EXPECT_EQ(at(140, 1), 1U);
  ranges.remove({0, 1000});
  EXPECT_TRUE(ranges.is_empty());
}

TEST(CheckAccesses, MemoryOfTheProgramIsNotForItsPeer) {
  Program p;
  p.write(0, 100, 64, true, true);
  EXPECT_FALSE(p.rules.wants_accesses());
  p.rules.owns({130, 10}, p.here("weft_own"));
  const Origin owned = p.line;
  EXPECT_TRUE(p.rules.wants_accesses());
  p.write(0, 140, 64, true, true);
  EXPECT_TRUE(p.found.empty());
  p.write(0, 100, 64, true, true);
  p.write(0, 139, 1, true, true, kRemoteRead);
  ASSERT_EQ(p.found.size(), 2U);
  EXPECT_EQ(p.found[0].rule, "E13");
  EXPECT_EQ(p.found[0].at, owned);
  EXPECT_NE(p.found[0].text.find("an RDMA Write"), std::string::npos);
  EXPECT_NE(p.found[1].text.find("an RDMA Read"), std::string::npos);
  p.rules.releases({130, 10});
  p.write(0, 100, 64, true, true);
  EXPECT_EQ(p.found.size(), 2U);
}

TEST(CheckAccesses, AMessageInAReceiveIsThePeers) {
  Program p;
  p.receive(&ends[0], 5, {{100, 64}});
  p.receive(&ends[0], 6, {{200, 64}});
  p.rules.owns({100, 64}, p.here("weft_own"));
  p.complete(7, 6, true);
  EXPECT_TRUE(p.found.empty());
  p.receive(&ends[0], 5, {{100, 64}});
  p.complete(7, 5, true);
  ASSERT_EQ(p.found.size(), 1U);
  EXPECT_EQ(p.found[0].rule, "E13");
}

// Programs that have one of each outstanding often count by nothing at all.
TEST(CheckAccesses, AReceiveAndAReadMayHaveTheSameNumber) {
  Program p;
  EXPECT_TRUE(p.rules.turn_on("N14"));
  p.receive(&ends[0], 0, {{100, 64}});
  p.read(0, 0, {{200, 64}});
  p.complete(7, 0, false);
  p.rules.owns({200, 64}, p.here("weft_own"));
  p.read(0, 0, {{200, 64}});  // nothing writes there now
  p.complete(7, 0, true);
  p.receive(&ends[0], 0, {{100, 64}});
  p.complete(7, 0, false);
  EXPECT_TRUE(p.found.empty()) << p.found.front().rule;
  p.read(0, 0, {{163, 1}});  // the receive is still there
  ASSERT_EQ(p.found.size(), 1U);
  EXPECT_EQ(p.found[0].rule, "N14");
}

TEST(CheckAccesses, TwoOpenWritesToTheSameOctets) {
  Program p;
  EXPECT_TRUE(p.rules.turn_on("W15"));
  EXPECT_FALSE(p.rules.turn_on("E10"));
  p.write(0, 100, 50, true, false);
  p.write(0, 150, 50, false, false);
  p.write(1, 200, 50, true, false);  // behind it
  EXPECT_TRUE(p.found.empty());
  p.write(1, 250, 50, false, true);
  p.write(1, 190, 20, true, true);
  ASSERT_EQ(p.found.size(), 1U);
  EXPECT_EQ(p.found[0].rule, "W15");
  EXPECT_EQ(p.found[0].at, 2U);
  p.write(0, 200, 50, false, true);  // the first message is complete
  p.write(1, 100, 50, true, true);
  EXPECT_EQ(p.found.size(), 1U);
  p.write(0, 100, 50, true, false);
  p.rules.destroyed(&ends[0], p.here("ibv_destroy_qp"));
  p.write(1, 100, 50, true, true);
  EXPECT_EQ(p.found.size(), 1U);
}

TEST(CheckAccesses, AWriteThatBrokeMidwayIsOpenNoLonger) {
  const void* broken = nullptr;
  Program p;
  Rules rules([&](const Finding& finding) { p.found.push_back(finding); }, [](Finding&) {},
              [](auto) { return Summed{}; }, [&](const void* qp) { return qp == broken; });
  EXPECT_TRUE(rules.turn_on("W15"));
  for (const void* end : {&ends[0], &ends[1]}) {
    Made made;
    made.handle = end;
    made.kind = Kind::kQp;
    rules.made(made, p.here("rdma_create_qp"));
  }
  rules.accessed({&ends[0], kRemoteWrite, {100, 50}, true, false});
  broken = &ends[0];
  rules.accessed({&ends[1], kRemoteWrite, {100, 50}, true, true});
  EXPECT_TRUE(p.found.empty());
  broken = nullptr;
  rules.accessed({&ends[0], kRemoteWrite, {100, 50}, true, false});
  rules.accessed({&ends[1], kRemoteWrite, {100, 50}, true, true});
  EXPECT_EQ(p.found.size(), 1U);
}

TEST(CheckAccesses, WhichOfTwoOpenWritesIsSeenFirstMakesNoDifference) {
  const auto found_if = [](int first) {
    Program p;
    EXPECT_TRUE(p.rules.turn_on("W15"));
    p.write(first, 100, 50, true, false);
    p.write(1 - first, 100, 50, true, true);
    EXPECT_EQ(p.found.size(), 1U);
    return p.found.empty() ? Finding{} : p.found[0];
  };
  EXPECT_EQ(found_if(0).at, found_if(1).at);
  EXPECT_EQ(found_if(0).notes[0].text, found_if(1).notes[0].text);
}

TEST(CheckAccesses, OutstandingRequestsThatWriteToTheSameOctets) {
  Program quiet;
  quiet.receive(&ends[0], 5, {{100, 64}});
  quiet.receive(&ends[0], 6, {{100, 64}});
  EXPECT_TRUE(quiet.found.empty()) << "it is off";
  Program p;
  EXPECT_TRUE(p.rules.turn_on("N14"));
  p.receive(&ends[0], 5, {{100, 64}});
  p.receive(&ends[1], 6, {{164, 64}});
  EXPECT_TRUE(p.found.empty());
  const Origin second = p.receive(&ends[1], 7, {{163, 1}});
  ASSERT_EQ(p.found.size(), 1U);
  EXPECT_EQ(p.found[0].rule, "N14");
  EXPECT_EQ(p.found[0].at, second);
  EXPECT_EQ(p.found[0].notes.size(), 2U);
  p.complete(7, 5, true);
  p.complete(8, 7, true);
  p.receive(&ends[0], 8, {{100, 64}});
  EXPECT_EQ(p.found.size(), 1U);
}

TEST(CheckDue, AQueuePairIsDestroyedBeforeItsCompletionIsPolled) {
  Program p;
  p.send(0, 1, false);
  p.receive(&ends[0], 1);
  p.rules.destroyed(&ends[0], p.here("ibv_destroy_qp"));
  EXPECT_TRUE(p.found.empty()) << "unsignaled ones and receives are given up so";
  const Origin posted = p.send(1, 1);
  p.rules.destroyed(&ends[1], p.here("ibv_destroy_qp"));
  ASSERT_EQ(p.found.size(), 1U);
  EXPECT_EQ(p.found[0].rule, "W50");
  EXPECT_EQ(p.found[0].notes[0].at, posted);
}

TEST(CheckDue, AResetLosesReceives) {
  Program p;
  p.receive(&ends[0], 1);
  p.rules.emptied(&ends[0], p.here("ibv_modify_qp"));
  ASSERT_EQ(p.found.size(), 1U);
  EXPECT_EQ(p.found[0].rule, "W50");
  p.rules.emptied(&ends[0], p.here("ibv_modify_qp"));
  p.receive(&ends[1], 1);
  p.receive(&ends[1], 2);
  p.rules.completed({8, 1, "Work Request Flushed Error", false, true, true}, p.here("ibv_poll_cq"));
  p.rules.emptied(&ends[1], p.here("ibv_modify_qp"));
  EXPECT_EQ(p.found.size(), 1U) << "the rest may be left out";
}

TEST(CheckHangs, ARequestWithoutACompletion) {
  Program p;
  EXPECT_FALSE(p.hangs_at(1));
  EXPECT_FALSE(p.hangs_at(100)) << "nothing is outstanding";
  p.send(1, 3);
  p.receive(&ends[0], 1);
  EXPECT_FALSE(p.hangs_at(101));
  EXPECT_FALSE(p.hangs_at(105));
  p.complete(7, 1, true);  // another queue pair gets on
  p.receive(&ends[0], 2);
  EXPECT_FALSE(p.hangs_at(109));
  EXPECT_TRUE(p.hangs_at(111));
  ASSERT_EQ(p.found.size(), 1U);
  EXPECT_EQ(p.found[0].rule, "N70");
  EXPECT_EQ(p.found[0].call, "ibv_post_send");
  EXPECT_NE(p.found[0].text.find("for 10 s on 1 queue pair "), std::string::npos);
  ASSERT_EQ(p.found[0].notes.size(), 3U) << "both queue pairs, and a completion queue";
  EXPECT_NE(p.found[0].notes[0].text.find("number 8, RTS: 1 request (the oldest a Send, wr_id 0x3"),
            std::string::npos);
  EXPECT_NE(p.found[0].notes[1].text.find("0 requests and 1 receive outstanding; 1 completion"),
            std::string::npos);
  EXPECT_FALSE(p.hangs_at(112)) << "it was reported";
  p.complete(8, 3, false);
  p.send(1, 4);
  EXPECT_FALSE(p.hangs_at(113));
  EXPECT_TRUE(p.hangs_at(123));
}

TEST(CheckHangs, UnsignaledRequestsAreNotWaitedFor) {
  Program p;
  p.send(0, 1, false);
  EXPECT_FALSE(p.hangs_at(1));
  EXPECT_FALSE(p.hangs_at(100));
}

TEST(CheckHangs, ReceivesAloneHangWithTheWholeProcess) {
  Program p;
  p.make(&srq, Kind::kSrq, 0, nullptr);
  int shared = 0;
  p.make(&shared, Kind::kQp, 9, &srq);
  const Origin line = p.receive(&srq, 1);
  EXPECT_FALSE(p.hangs_at(1));
  p.send(0, 1);
  EXPECT_FALSE(p.hangs_at(9));
  p.complete(7, 1, false);
  EXPECT_FALSE(p.hangs_at(12)) << "others get on";
  EXPECT_TRUE(p.hangs_at(22));
  ASSERT_EQ(p.found.size(), 1U);
  EXPECT_EQ(p.found[0].at, line);
  p.complete(9, 1, true);
  EXPECT_FALSE(p.hangs_at(23));
  EXPECT_FALSE(p.hangs_at(50));
}

}  // namespace
}  // namespace weft::check
