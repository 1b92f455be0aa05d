// The rules of `weft run --check`, by lists of events.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "check/catalog.h"
#include "check/check_rules.h"

namespace weft::check {
namespace {

struct Program {
  std::vector<Finding> found;
  Rules rules{[this](const Finding& finding) { found.push_back(finding); }};
  Origin line = 0;
  std::uint64_t number = 0;  // of the last post

  Here here(const char* call) { return {call, ++line}; }
  void make(const void* handle, Kind kind, std::array<const void*, 4> parents = {}) {
    Made made;
    made.handle = handle;
    made.kind = kind;
    made.parents = parents;
    rules.made(made, here("make"));
  }
  void make_qp(const void* handle, std::uint32_t depth) {
    Made made;
    made.handle = handle;
    made.kind = Kind::kQp;
    made.number = 7;
    made.send_depth = depth;
    rules.made(made, here("ibv_create_qp"));
  }
  void post(const void* qp, std::uint64_t id, bool signaled) {
    Posted posted;
    posted.qp = qp;
    posted.wr_id = id;
    posted.signaled = signaled;
    number = rules.posting(posted, here("ibv_post_send"));
  }
  // The last post.
  void refuse(const void* qp) {
    rules.not_posted(qp, number);
    rules.failed(ENOMEM, "ENOMEM", here("ibv_post_send"), qp);
  }
  void complete(std::uint64_t id) {
    rules.completed({7, id, "success", true, false, false}, here("ibv_poll_cq"));
  }
  [[nodiscard]] std::string ids() const {
    std::string out;
    for (const Finding& one : found) out += std::string(one.rule) + " ";
    return out;
  }
};

int objects[4];

TEST(CheckRules, AHandleThatNeverWasIsNoDestroyedOne) {
  Program p;
  EXPECT_FALSE(p.rules.not_live(&objects[0], p.here("ibv_destroy_cq")));
  p.make(&objects[0], Kind::kCq);
  EXPECT_FALSE(p.rules.not_live(&objects[0], p.here("ibv_destroy_qp")));  // of another kind
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckRules, UseOfADestroyedObjectSaysWhereItWasMadeAndDestroyed) {
  Program p;
  p.make(&objects[0], Kind::kCq);
  p.rules.destroyed(&objects[0], p.here("ibv_destroy_cq"));
  EXPECT_TRUE(p.rules.not_live(&objects[0], p.here("ibv_poll_cq")));
  ASSERT_EQ(p.ids(), "E02 ");
  EXPECT_EQ(p.found[0].at, 3U);
  ASSERT_EQ(p.found[0].notes.size(), 2U);
  EXPECT_EQ(p.found[0].notes[0].at, 1U);
  EXPECT_EQ(p.found[0].notes[1].at, 2U);
}

TEST(CheckRules, AQueueOfExactlyTheDepthIsNotTooFull) {
  Program p;
  p.make_qp(&objects[0], 2);
  p.post(&objects[0], 1, true);
  p.post(&objects[0], 2, true);
  EXPECT_EQ(p.ids(), "");
  p.post(&objects[0], 3, true);
  p.complete(1);
  EXPECT_EQ(p.ids(), "E20 ");
  EXPECT_EQ(p.found[0].at, 4U);  // where it was posted
}

TEST(CheckRules, AProgramMayPostUntilTheQueueIsFull) {
  Program p;
  p.make_qp(&objects[0], 2);
  for (std::uint64_t i = 0; i < 5; ++i) {
    p.post(&objects[0], 3 * i, true);
    p.post(&objects[0], 3 * i + 1, true);
    p.post(&objects[0], 3 * i + 2, true);  // Weft has room for a fourth
    p.post(&objects[0], 99, true);
    p.refuse(&objects[0]);
    p.complete(3 * i + 2);
  }
  p.rules.ended();
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckRules, APostThatIsRefusedIsANoteUnlessTheProgramGoesOn) {
  Program p;
  p.make_qp(&objects[0], 1);
  p.post(&objects[0], 1, true);
  p.post(&objects[0], 2, true);
  p.refuse(&objects[0]);
  p.complete(1);
  EXPECT_EQ(p.ids(), "");
  p.post(&objects[0], 2, true);
  p.rules.ended();
  EXPECT_EQ(p.ids(), "");
  p.post(&objects[0], 3, true);
  p.rules.not_posted(&objects[0], p.number);
  p.rules.failed(EINVAL, "EINVAL", p.here("ibv_post_send"));
  EXPECT_EQ(p.ids(), "N01 ");
}

TEST(CheckRules, TheReasonWhyMemoryIsRefused) {
  Program p;
  p.make_qp(&objects[0], 4);
  p.make(&objects[1], Kind::kMr);
  p.rules.keyed({&objects[1], 5, 100, 50, 1U}, p.here("ibv_reg_mr"));
  const auto why = [&](Fault fault, unsigned need, std::uint32_t key, std::uint64_t addr,
                       std::uint64_t length) {
    p.found.clear();
    p.rules.refused({&objects[0], fault, true, need, key, addr, length});
    return p.found.at(0).text.substr(p.found[0].text.rfind(": ") + 2);
  };
  EXPECT_EQ(why(Fault::kBounds, 2, 5, 140, 20),
            "10 octets from 0x96 on lie outside the memory region");
  EXPECT_EQ(why(Fault::kBounds, 2, 5, 99, 20),
            "20 octets from 0x63 on lie outside the memory region");
  EXPECT_EQ(why(Fault::kBounds, 2, 5, 150, 1),
            "1 octet from 0x96 on lie outside the memory region");
  EXPECT_EQ(why(Fault::kRight, 2, 5, 100, 1),
            "the memory region was made without IBV_ACCESS_REMOTE_WRITE");
  EXPECT_EQ(why(Fault::kRight, 1, 5, 100, 1),
            "the queue pair does not give its peer IBV_ACCESS_LOCAL_WRITE");
  EXPECT_EQ(why(Fault::kKey, 2, 6, 100, 1), "nothing in this process has or had that key");
  EXPECT_EQ(why(Fault::kWrap, 2, 5, ~0ULL, 2), "the last address passes 2^64");
  p.rules.keyed({&objects[1], 8, 100, 60, 3U}, p.here("ibv_rereg_mr"));
  EXPECT_EQ(why(Fault::kKey, 2, 5, 100, 1), "it was replaced");
  p.rules.destroyed(&objects[1], p.here("ibv_dereg_mr"));
  EXPECT_EQ(why(Fault::kKey, 2, 8, 100, 1), "it was deregistered");
  ASSERT_EQ(p.found[0].notes.size(), 3U);
  EXPECT_EQ(p.found[0].notes[1].text, "and deregistered");
}

TEST(CheckRules, AKeyThatAnotherObjectGotMeanwhileLivesOn) {
  Program p;
  p.make_qp(&objects[0], 4);
  p.make(&objects[1], Kind::kMr);
  p.make(&objects[2], Kind::kMr);
  p.rules.keyed({&objects[1], 5, 100, 50, 1U}, p.here("ibv_reg_mr"));
  p.rules.keyed({&objects[2], 5, 200, 50, 1U}, p.here("ibv_reg_mr"));
  p.rules.keyed({&objects[1], 6, 100, 50, 1U}, p.here("ibv_rereg_mr"));
  p.rules.destroyed(&objects[1], p.here("ibv_dereg_mr"));
  p.rules.refused({&objects[0], Fault::kRight, true, 2, 5, 200, 1});
  ASSERT_EQ(p.found.size(), 1U);
  EXPECT_NE(p.found[0].text.find("was made without IBV_ACCESS_REMOTE_WRITE"), std::string::npos);
}

TEST(CheckRules, DeadKeysAreForgottenInTheirOrder) {
  Program p;
  p.make_qp(&objects[0], 4);
  p.make(&objects[1], Kind::kMr);
  for (std::uint32_t key = 1; key <= Keys::kDead + 2; ++key)
    p.rules.keyed({&objects[1], key, 100, 50, 1U}, p.here("ibv_rereg_mr"));
  p.rules.refused({&objects[0], Fault::kKey, true, 2, 1, 100, 1});
  p.rules.refused({&objects[0], Fault::kKey, true, 2, 2, 100, 1});
  ASSERT_EQ(p.ids(), "N01 N01 ");
  EXPECT_EQ(p.found[0].notes.size(), 1U);  // the queue pair alone
  EXPECT_EQ(p.found[1].notes.size(), 3U);
}

TEST(CheckRules, ASignaledCompletionFreesTheUnsignaledBeforeIt) {
  Program p;
  p.make_qp(&objects[0], 3);
  for (int round = 0; round < 5; ++round) {
    p.post(&objects[0], 1, false);
    p.post(&objects[0], 1, false);
    p.post(&objects[0], 1, true);
    p.complete(1);
  }
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckRules, ThePeersReplyFreesNoSlot) {
  Program p;
  p.make_qp(&objects[0], 1);
  p.post(&objects[0], 1, true);
  p.rules.completed({7, 9, "success", true, false, true}, p.here("ibv_poll_cq"));
  p.post(&objects[0], 2, true);
  p.rules.ended();
  ASSERT_EQ(p.ids(), "E20 ");
  EXPECT_NE(p.found[0].text.find("reply frees none"), std::string::npos);
}

TEST(CheckRules, ARequestThatWasRefusedTakesNoSlot) {
  Program p;
  p.make_qp(&objects[0], 1);
  p.post(&objects[0], 1, true);
  p.rules.not_posted(&objects[0], p.number);
  p.post(&objects[0], 1, true);
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckRules, ARefusalLeavesTheSlotsOfOtherThreads) {
  Program p;
  p.make_qp(&objects[0], 2);
  p.post(&objects[0], 1, true);
  const std::uint64_t refused = p.number;
  p.post(&objects[0], 2, true);  // by another thread
  p.rules.not_posted(&objects[0], refused);
  p.complete(2);
  p.post(&objects[0], 3, true);
  p.post(&objects[0], 4, true);
  p.rules.ended();
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckRules, AQueuePairThatWasResetHasItsSlotsBack) {
  Program p;
  p.make_qp(&objects[0], 2);
  p.post(&objects[0], 1, true);
  p.post(&objects[0], 2, true);
  p.rules.emptied(&objects[0], p.here("ibv_modify_qp"));
  p.post(&objects[0], 3, true);
  p.post(&objects[0], 4, true);
  EXPECT_EQ(p.ids(), "W50 ");
  p.post(&objects[0], 5, true);
  p.rules.destroyed(&objects[0], p.here("ibv_destroy_qp"));
  EXPECT_EQ(p.ids(), "W50 E20 W50 ");
}

TEST(CheckRules, AProgramThatNeverFreesASlotIsToldOnce) {
  Program p;
  p.make_qp(&objects[0], 2);
  for (std::uint64_t i = 0; i < 1000; ++i) p.post(&objects[0], i, false);
  EXPECT_EQ(p.ids(), "E20 ");
}

TEST(CheckRules, OnlyTheFirstErrorOfAQueuePairIsExplained) {
  Program p;
  p.make_qp(&objects[0], 4);
  p.post(&objects[0], 1, false);
  p.post(&objects[0], 2, true);
  p.rules.completed({7, 1, "remote access error", false, false, false}, p.here("ibv_poll_cq"));
  p.rules.completed({7, 2, "Work Request Flushed Error", false, true, false}, p.here("poll"));
  EXPECT_EQ(p.ids(), "N01 ");
}

TEST(CheckRules, EbusyIsReportedAtTheEndUnlessItWasRepaired) {
  Program p;
  p.make(&objects[0], Kind::kPd);
  p.make(&objects[1], Kind::kPd);
  p.make(&objects[2], Kind::kMr, {&objects[0]});
  p.make(&objects[3], Kind::kMr, {&objects[1]});
  p.rules.busy(&objects[0], p.here("ibv_dealloc_pd"));
  p.rules.busy(&objects[1], p.here("ibv_dealloc_pd"));
  p.rules.destroyed(&objects[3], p.here("ibv_dereg_mr"));
  p.rules.destroyed(&objects[1], p.here("ibv_dealloc_pd"));
  p.rules.ended();
  ASSERT_EQ(p.ids(), "W51 ");
  ASSERT_EQ(p.found[0].notes.size(), 2U);
  EXPECT_EQ(p.found[0].notes[1].at, 3U);  // the region
}

TEST(CheckRules, EachFindingHasAPage) {
  Program p;
  p.make(&objects[0], Kind::kCq);
  p.rules.owes(&objects[0], Owed::kCqEvents, 2, p.here("ibv_destroy_cq"));
  p.rules.failed(EINVAL, "EINVAL", p.here("ibv_create_qp"));
  ASSERT_EQ(p.ids(), "E41 N01 ");
  for (const Finding& one : p.found) EXPECT_NE(find_rule(one.rule), nullptr);
  EXPECT_EQ(find_rule("X99"), nullptr);
}

struct Receiver : Program {
  Receiver() {
    Made made;
    made.handle = &objects[0];
    made.kind = Kind::kQp;
    made.parents[3] = &objects[1];  // a shared receive queue
    rules.made(made, here("rdma_create_qp"));
  }
  void late(Late what, std::uint64_t ms = 0) {
    rules.late_receive(&objects[0], what, ms * 1'000'000);
  }
};

TEST(CheckRules, MessagesThatWaitedAreSummedUpAtTheEndOfTheQueuePair) {
  Receiver p;
  p.late(Late::kBegins);
  EXPECT_TRUE(p.rules.awaits_receive());
  p.rules.posting_receive({&objects[2], 0, {}}, p.here("ibv_post_recv"));  // of another queue
  p.rules.posting_receive({&objects[0], 0, {}}, p.here("ibv_post_recv"));
  p.rules.posting_receive({&objects[0], 0, {}},
                          p.here("ibv_post_recv"));  // not the one it waits for
  p.late(Late::kCame, 7);
  EXPECT_FALSE(p.rules.awaits_receive());
  p.late(Late::kBegins);
  p.rules.posting_receive({&objects[1], 0, {}}, p.here("ibv_post_srq_recv"));
  p.late(Late::kCame, 3);
  p.late(Late::kBegins);
  p.late(Late::kRefused, 1);
  EXPECT_EQ(p.ids(), "");
  p.rules.destroyed(&objects[0], p.here("ibv_destroy_qp"));
  ASSERT_EQ(p.ids(), "N60 ");
  EXPECT_EQ(p.found[0].call, "ibv_post_recv");
  EXPECT_EQ(p.found[0].at, 3U);
  EXPECT_EQ(p.found[0].text,
            "2 messages came before a receive was posted; the longest waited 7.0 ms, and 1 message "
            "without a receive had to be sent again");
  p.rules.ended();
  EXPECT_EQ(p.ids(), "N60 ");
}

TEST(CheckRules, AMessageWithoutAReceiveIsReportedOnceAndAtOnce) {
  Receiver p;
  p.late(Late::kBegins);
  p.late(Late::kLost, 100);
  p.late(Late::kLost, 100);
  ASSERT_EQ(p.ids(), "E60 ");
  EXPECT_EQ(p.found[0].call, "rdma_create_qp");
  EXPECT_EQ(p.found[0].at, 1U);
  EXPECT_FALSE(p.rules.awaits_receive());
  p.rules.ended();
  EXPECT_EQ(p.ids(), "E60 ");
}

TEST(CheckRules, AQueuePairThatIsGoneAwaitsNothing) {
  Receiver p;
  p.late(Late::kBegins);
  p.rules.destroyed(&objects[0], p.here("ibv_destroy_qp"));
  EXPECT_FALSE(p.rules.awaits_receive());
  p.late(Late::kBegins);
  EXPECT_FALSE(p.rules.awaits_receive());
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckRules, ASendThatThePeerNeverHadAReceiveForIsAnError) {
  Program p;
  p.make_qp(&objects[0], 2);
  p.post(&objects[0], 1, true);
  p.rules.completed({7, 1, "RNR retry counter exceeded", false, false, false},
                    p.here("ibv_poll_cq"));
  EXPECT_EQ(p.ids(), "E60 ");
}

}  // namespace
}  // namespace weft::check
