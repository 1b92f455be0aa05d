// The rules about the memory of requests, by lists of events.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "check/check_rules.h"
#include "check/sources.h"

namespace weft::check {
namespace {

constexpr std::uint32_t kNumber = 7, kLocalKey = 11, kOpenKey = 12, kShiftedKey = 13;
constexpr unsigned kRemoteWrite = 2;  // IBV_ACCESS_...

int qp, peer, srq, regions[3];

// A program whose memory has a value at each address.
struct Program {
  std::map<std::uint64_t, std::uint64_t> memory;
  bool readable = true;
  std::vector<Finding> found;
  Origin line = 0;
  std::uint64_t posted_last = 0;  // the Send
  Rules rules{
      [this](const Finding& finding) { found.push_back(finding); }, [](Finding&) {},
      [this](std::span<const Octets> octets) -> Summed {
        if (!readable) return {};
        const auto at = memory.find(octets.front().addr);
        return at != memory.end() ? Summed{Memory::kThere, at->second} : Summed{Memory::kGone};
      }};

  Program() {
    make(&qp, kNumber, nullptr);
    make(&peer, kNumber + 1, &srq);
    keyed(0, kLocalKey, 0, false);
    keyed(1, kOpenKey, kRemoteWrite, false, 5000);
    keyed(2, kShiftedKey, 0, true);
    memory[100] = 1;
    memory[5100] = 1;
  }
  Here here(const char* call) { return {call, ++line}; }
  void make(const void* handle, std::uint32_t number, const void* shared) {
    Made made;
    made.handle = handle;
    made.kind = Kind::kQp;
    made.parents = {nullptr, nullptr, nullptr, shared};
    made.number = number;
    made.send_depth = 8;
    rules.made(made, here("ibv_create_qp"));
  }
  void keyed(int region, std::uint32_t key, unsigned rights, bool shifted,
             std::uint64_t first = 1) {
    Made made;
    made.handle = &regions[region];
    made.kind = Kind::kMr;
    rules.made(made, here("ibv_reg_mr"));
    rules.keyed({made.handle, key, first, 1000, rights, shifted, first}, here("ibv_reg_mr"));
  }
  Origin send(std::uint64_t id, std::uint32_t lkey = kLocalKey, bool signaled = true) {
    return send(id, std::vector<Octets>{{lkey == kOpenKey ? 5100U : 100U, 10, lkey}}, signaled);
  }
  Origin send(std::uint64_t id, std::vector<Octets> sources, bool signaled = true) {
    Posted posted;
    posted.qp = &qp;
    posted.wr_id = id;
    posted.opcode = "a Send";
    posted.signaled = signaled;
    posted.bytes = 10;
    posted.sources = std::move(sources);
    posted_last = rules.posting(posted, here("ibv_post_send"));
    return line;
  }
  void read_into(std::uint64_t id, Octets sink) {
    Posted posted;
    posted.qp = &qp;
    posted.wr_id = id;
    posted.opcode = "an RDMA Read";
    posted.signaled = true;
    posted.sinks = {sink};
    rules.posting(posted, here("ibv_post_send"));
  }
  void complete(std::uint64_t id, bool success = true) {
    rules.completed({kNumber, id, success ? "success" : "flushed", success, !success, false},
                    here("ibv_poll_cq"));
  }
  void flush_receive(std::uint64_t id) {
    rules.completed({kNumber, id, "flushed", false, true, true}, here("ibv_poll_cq"));
  }
  void receive(std::uint64_t id, std::uint32_t number = kNumber) {
    rules.completed({number, id, "success", true, false, true}, here("ibv_poll_cq"));
  }
  [[nodiscard]] std::string ids() const {
    std::string out;
    for (const Finding& one : found) out += std::string(one.rule) + " ";
    return out;
  }
};

TEST(CheckSources, MemoryThatStaysIsNoMistake) {
  Program p;
  p.send(1);
  p.complete(1);
  p.memory[100] = 2;
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckSources, AChangeIsReportedWhereTheRequestWasPosted) {
  Program p;
  const Origin at = p.send(1);
  p.memory[100] = 2;
  p.complete(1);
  ASSERT_EQ(p.ids(), "E10 ");
  EXPECT_EQ(p.found[0].at, at);
  EXPECT_EQ(p.found[0].call, "ibv_post_send");
  EXPECT_NE(p.found[0].text.find("10 octets at 0x64"), std::string::npos);
}

TEST(CheckSources, AnUnsignaledRequestEndsWithTheNextCompletion) {
  Program p;
  const Origin at = p.send(1, kLocalKey, false);
  p.memory[100] = 2;
  p.send(2);
  p.complete(2);
  ASSERT_EQ(p.ids(), "E10 ");
  EXPECT_EQ(p.found[0].at, at);
}

TEST(CheckSources, AfterAMessageOfThePeerItIsAWarning) {
  Program p;
  p.send(1);
  p.receive(50);
  p.memory[100] = 2;
  p.complete(1);
  EXPECT_EQ(p.ids(), "W11 ");
}

TEST(CheckSources, MemoryThatIsOpenToThePeerIsAWarning) {
  Program p;
  p.send(1, kOpenKey);
  p.memory[5100] = 2;
  p.complete(1);
  EXPECT_EQ(p.ids(), "W11 ");
}

TEST(CheckSources, MemoryOfAReceiveMayChange) {
  for (const bool before : {true, false}) {
    Program p;
    const PostedReceive receive{&qp, 50, {{105, 1}}};
    if (before) p.rules.posting_receive(receive, p.here("ibv_post_recv"));
    p.send(1);
    if (!before) p.rules.posting_receive(receive, p.here("ibv_post_recv"));
    p.memory[100] = 2;
    p.complete(1);
    EXPECT_EQ(p.ids(), "");
  }
}

TEST(CheckSources, AReceiveThatWasPolledWritesNoMore) {
  Program p;
  p.rules.posting_receive({&qp, 50, {{105, 1}}}, p.here("ibv_post_recv"));
  p.rules.posting_receive({&srq, 60, {{105, 1}}}, p.here("ibv_post_srq_recv"));
  p.receive(50);
  p.receive(60, kNumber + 1);
  p.send(1);
  p.memory[100] = 2;
  p.complete(1);
  EXPECT_EQ(p.ids(), "E10 ");
}

TEST(CheckSources, MemoryOfAReadMayChangeUntilItIsDone) {
  Program p;
  p.read_into(1, {109, 5});
  p.send(2);
  p.memory[100] = 2;
  p.complete(1);
  p.complete(2);
  EXPECT_EQ(p.ids(), "");
  p.send(3);
  p.memory[100] = 3;
  p.complete(3);
  EXPECT_EQ(p.ids(), "E10 ");
}

TEST(CheckSources, MemoryThatIsGoneIsReported) {
  Program p;
  p.send(1);
  p.memory.clear();
  p.complete(1);
  EXPECT_EQ(p.ids(), "E12 ");
}

TEST(CheckSources, AFailedRequestIsNotLookedAt) {
  Program p;
  p.send(1);
  p.memory[100] = 2;
  p.complete(1, false);
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckSources, NorIsMemoryWithOtherAddresses) {
  Program p;
  p.send(1, kShiftedKey);
  p.send(2, 99);  // of no region
  p.memory[100] = 2;
  p.complete(1);
  p.complete(2);
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckSources, ARequestThatWasRefusedIsForgotten) {
  Program p;
  p.send(1);
  p.rules.not_posted(&qp, p.posted_last);
  p.memory[100] = 2;
  p.complete(1);
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckSources, AnyKeyMayOpenMemoryToThePeer) {
  Program p;
  p.send(1, std::vector<Octets>{{100, 10, kLocalKey}, {5100, 10, kOpenKey}});
  p.send(2, std::vector<Octets>{{5100, 10, kLocalKey}});  // it is registered twice
  p.memory[100] = p.memory[5100] = 2;
  p.complete(1);
  p.complete(2);
  EXPECT_EQ(p.ids(), "W11 W11 ");
}

TEST(CheckSources, NorIsMemoryOfWhichAPartHasOtherAddresses) {
  Program p;
  p.send(1, std::vector<Octets>{{100, 10, kLocalKey}, {200, 10, kShiftedKey}});
  p.memory[100] = 2;
  p.complete(1);
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckSources, AReceiveThatWasRefusedOrFlushedWritesNothing) {
  Program p;
  const PostedReceive flushed{&qp, 50, {{105, 1}}};
  const PostedReceive refused{&qp, 50, {{109, 1}}};
  p.rules.posting_receive(flushed, p.here("ibv_post_recv"));
  p.rules.posting_receive(refused, p.here("ibv_post_recv"));
  p.rules.not_posted_receive(refused);
  p.send(1);
  p.flush_receive(50);
  p.send(2);
  p.memory[100] = 2;
  p.complete(1);
  EXPECT_EQ(p.ids(), "");
  p.complete(2);
  EXPECT_EQ(p.ids(), "E10 ");
}

TEST(CheckSources, MemoryThatCannotBeReadIsNotGone) {
  Program p;
  p.send(1);
  p.readable = false;
  p.complete(1);
  p.send(2);
  p.readable = true;
  p.complete(2);
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckSources, NothingIsWatchedOnceAllIsPolled) {
  Program p;
  const auto is_watched = [&p] { return p.rules.watched().first < p.rules.watched().second; };
  EXPECT_FALSE(is_watched());
  p.send(1);
  p.rules.posting_receive({&qp, 50, {{205, 1, kLocalKey}}}, p.here("ibv_post_recv"));
  EXPECT_TRUE(is_watched());
  EXPECT_TRUE(p.rules.may_use({105, 1}));
  EXPECT_FALSE(p.rules.is_free({105, 1}));
  EXPECT_FALSE(p.rules.is_free({200, 10}));
  EXPECT_FALSE(p.rules.may_use({120, 10}));
  p.complete(1);
  EXPECT_FALSE(p.rules.may_use({105, 1}));
  EXPECT_TRUE(is_watched());
  p.receive(50);
  EXPECT_FALSE(p.rules.may_use({205, 1}));
  EXPECT_FALSE(is_watched());
}

TEST(CheckSources, HoweverARequestGoesItsMemoryIsFree) {
  const auto ends = std::to_array<void (*)(Program&)>(
      {[](Program& p) { p.complete(1, false); }, [](Program& p) { p.rules.emptied(&qp, {}); },
       [](Program& p) { p.rules.not_posted(&qp, p.posted_last); },
       [](Program& p) { p.rules.destroyed(&qp, p.here("ibv_destroy_qp")); },
       [](Program& p) { p.receive(50); }});
  for (const auto& end : ends) {
    Program p;
    p.send(1);
    EXPECT_FALSE(p.rules.is_free({105, 1}));
    end(p);
    EXPECT_FALSE(p.rules.may_use({105, 1}));
  }
}

TEST(CheckSources, MemoryWithOtherAddressesIsNotWatched) {
  Program p;
  p.send(1, kShiftedKey);
  p.rules.posting_receive({&qp, 50, {{200, 10, kShiftedKey}}}, p.here("ibv_post_recv"));
  EXPECT_GE(p.rules.watched().first, p.rules.watched().second);
  EXPECT_TRUE(p.rules.is_free({105, 1}));
  EXPECT_TRUE(p.rules.is_free({205, 1}));
}

TEST(CheckSources, AReceiveThatFailedIsNoRequestOfTheSameNumber) {
  Program p;
  p.send(1, kLocalKey, false);
  p.rules.posting_receive({&qp, 1, {{105, 1, kLocalKey}}}, p.here("ibv_post_recv"));
  p.rules.posting_receive({&qp, 1, {{205, 1, kLocalKey}}}, p.here("ibv_post_recv"));
  p.flush_receive(1);
  p.flush_receive(1);
  EXPECT_TRUE(p.rules.is_free({205, 1}));
  EXPECT_FALSE(p.rules.is_free({100, 1})) << "the request is outstanding";
}

TEST(CheckSources, AReceiveOfASharedQueueThatFailedWritesNoMore) {
  Program p;
  p.rules.posting_receive({&srq, 60, {{105, 1, kLocalKey}}}, p.here("ibv_post_srq_recv"));
  EXPECT_FALSE(p.rules.is_free({105, 1}));
  p.rules.completed({kNumber + 1, 60, "local length error", false, false, true},
                    p.here("ibv_poll_cq"));
  EXPECT_TRUE(p.rules.is_free({105, 1}));
}

TEST(CheckSizes, MoreThanWasAskedForIsAWarning) {
  struct Case {
    std::size_t sges;
    std::uint64_t bytes;
    bool is_inline;
    const char* found;
  };
  for (const Case& one : {Case{2, 100, false, ""}, Case{3, 100, false, "W21 "},
                          Case{1, 16, true, ""}, Case{1, 17, true, "W21 "}, Case{3, 9, true, ""}}) {
    Program p;
    Made made;
    made.handle = &qp;
    made.kind = Kind::kQp;
    made.send_depth = 4;
    made.send_sges = 2;
    made.inline_bytes = 16;
    p.rules.made(made, p.here("ibv_create_qp"));
    Posted posted;
    posted.qp = &qp;
    posted.opcode = "a Send";
    posted.signaled = true;
    posted.sges = one.sges;
    posted.bytes = one.bytes;
    posted.is_inline = one.is_inline;
    p.rules.posting(posted, p.here("ibv_post_send"));
    EXPECT_EQ(p.ids(), one.found) << one.sges << " " << one.bytes;
  }
}

TEST(CheckPieces, OverlapWhereTheyHaveAnOctetInCommon) {
  Pieces pieces;
  const auto hit = [&pieces](std::uint64_t addr, std::uint64_t length) {
    const Octets one{addr, length};
    return pieces.overlap(std::span(&one, 1));
  };
  const std::vector<Octets> some{{100, 10}, {100, 10}, {1000, 1}, {0, 5}, {~0ULL - 9, 8}, {50, 0}};
  EXPECT_FALSE(hit(0, ~0ULL));
  pieces.add(some);
  for (const auto& [addr, length, want] : {std::tuple{90ULL, 10ULL, false},
                                           {90ULL, 11ULL, true},
                                           {109ULL, 1ULL, true},
                                           {110ULL, 890ULL, false},
                                           {110ULL, 891ULL, true},
                                           {1001ULL, 9ULL, false},
                                           {4ULL, 1ULL, true},
                                           {5ULL, 95ULL, false},
                                           {~0ULL - 2, 1ULL, true},
                                           {~0ULL - 1, 1ULL, false}}) {
    EXPECT_EQ(hit(addr, length), want) << addr << " " << length;
  }
  pieces.remove(std::span(some).first(1));
  EXPECT_TRUE(hit(100, 1));
  pieces.remove(std::span(some).last(5));
  EXPECT_FALSE(hit(0, ~0ULL));
}

TEST(CheckSamples, AreAllOfASmallMessageAndBothEndsOfALargeOne) {
  const Octets small{100, 1U << 14U};
  const Octets large{100, (1U << 14U) + 1};
  const Octets none{};
  EXPECT_EQ(samples(std::span(&small, 1)).size(), 1U);
  EXPECT_TRUE(samples(std::span(&none, 1)).empty());
  const auto pieces = samples(std::span(&large, 1));
  ASSERT_EQ(pieces.size(), 16U);
  EXPECT_EQ(pieces.front().addr, large.addr);
  EXPECT_EQ(pieces.back().addr + pieces.back().length, large.addr + large.length);
}

}  // namespace
}  // namespace weft::check
