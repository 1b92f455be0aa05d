// The rules about queues and keys, by lists of events.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "check/check_rules.h"

namespace weft::check {
namespace {

int qp, cq, channel, region;

struct Program {
  std::vector<Finding> found;
  Rules rules{[this](const Finding& finding) { found.push_back(finding); }};
  Origin line = 0;

  Program() {
    Made made;
    made.handle = &qp;
    made.kind = Kind::kQp;
    made.number = 7;
    made.send_depth = 8;
    made.receive_depth = 2;
    made.receive_sges = 1;
    rules.made(made, here("ibv_create_qp"));
    made = {};
    made.handle = &cq;
    made.kind = Kind::kCq;
    made.parents = {&channel};
    rules.made(made, here("ibv_create_cq"));
    made = {};
    made.handle = &region;
    made.kind = Kind::kMr;
    rules.made(made, here("ibv_reg_mr"));
  }
  Here here(const char* call) { return {call, ++line}; }
  PostedReceive receive(std::uint64_t id, std::size_t sges = 1) {
    PostedReceive out{&qp, id, {}, sges};
    rules.posting_receive(out, here("ibv_post_recv"));
    return out;
  }
  void receive_polled(std::uint64_t id) {
    rules.completed({7, id, "success", true, false, true}, here("ibv_poll_cq"));
  }
  void key(std::uint32_t number, unsigned rights) {
    rules.keyed({&region, number, 100, 50, rights, false, 100}, here("ibv_reg_mr"));
  }
  Posted read(std::uint32_t lkey, bool by_lkey = true) {
    Posted out;
    out.qp = &qp;
    out.opcode = "an RDMA Read";
    out.sinks = {{110, 10, lkey, by_lkey}};
    rules.posting(out, here("ibv_post_send"));
    return out;
  }
  [[nodiscard]] std::string ids() const {
    std::string out;
    for (const Finding& one : found) out += std::string(one.rule) + " ";
    return out;
  }
};

TEST(CheckQueues, ReceivesBeyondWhatWasAskedForAreReportedWithTheNextThatIsPolled) {
  Program p;
  p.receive(1);
  p.receive(2);
  p.receive(3);
  EXPECT_EQ(p.ids(), "");
  p.receive_polled(1);
  ASSERT_EQ(p.ids(), "W21 ");
  EXPECT_EQ(p.found[0].at, 6U);  // where the third was posted
  p.receive_polled(2);
  p.receive(4);
  p.receive_polled(3);
  EXPECT_EQ(p.ids(), "W21 ");
}

TEST(CheckQueues, AProgramMayPostReceivesUntilItIsRefused) {
  Program p;
  p.receive(1);
  p.receive(2);
  p.receive(3);
  p.rules.not_posted_receive(p.receive(4));
  p.receive_polled(1);
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckQueues, AReceiveWithTooManySgesIsReportedAtOnce) {
  Program p;
  p.receive(1, 2);
  EXPECT_EQ(p.ids(), "W21 ");
}

TEST(CheckQueues, AnOverflowIsReportedOncePerQueue) {
  Program p;
  p.rules.overflows(&cq, 4, 3, p.here("ibv_poll_cq"));
  p.rules.overflows(&cq, 5, 3, p.here("ibv_poll_cq"));
  ASSERT_EQ(p.ids(), "E23 ");
  EXPECT_NE(p.found[0].text.find("4 completions, and room for 3"), std::string::npos);
}

TEST(CheckQueues, AWaitIsReportedOnlyIfNobodyHasPolledSinceItWasArmed) {
  Program p;
  p.rules.armed(&cq, 1, 1, p.here("ibv_req_notify_cq"));
  p.rules.polls(&cq, 1);
  p.rules.waits(&channel, 1, 1, p.here("ibv_get_cq_event"));
  EXPECT_EQ(p.ids(), "");
  p.rules.armed(&cq, 2, 1, p.here("ibv_req_notify_cq"));
  p.rules.waits(&region, 1, 1, p.here("ibv_get_cq_event"));  // another channel
  EXPECT_EQ(p.ids(), "");
  p.rules.waits(&channel, 1, 1, p.here("ibv_get_cq_event"));
  ASSERT_EQ(p.ids(), "W40 ");
  ASSERT_EQ(p.found[0].notes.size(), 2U);
  EXPECT_EQ(p.found[0].notes[1].at, 6U);
}

TEST(CheckQueues, UndefinedFieldsNameTheStatus) {
  Program p;
  p.rules.reads_undefined(&cq, p.here("ibv_wc_read_opcode"), "flushed", false);
  p.rules.reads_undefined(&cq, p.here("ibv_wc_read_byte_len"), "success", true);
  ASSERT_EQ(p.ids(), "E30 E30 ");
  EXPECT_NE(p.found[0].text.find("with flushed"), std::string::npos);
  EXPECT_EQ(p.found[1].call, "ibv_wc_read_byte_len");
}

TEST(CheckKeys, AnRkeyInAnSgeIsReportedIfTheRegionLives) {
  Program p;
  p.key(5, 3);
  p.read(5);
  p.read(6, false);  // nobody's
  EXPECT_EQ(p.ids(), "");
  p.read(5, false);
  EXPECT_EQ(p.ids(), "W22 ");
  p.rules.destroyed(&region, p.here("ibv_dereg_mr"));
}

TEST(CheckKeys, AReadOfIwarpNeedsTheRightToWrite) {
  Program p;
  p.key(5, 1);
  Posted read = p.read(5);
  EXPECT_EQ(p.ids(), "");
  read.sinks_need_remote = true;
  p.rules.posting(read, p.here("ibv_post_send"));
  EXPECT_EQ(p.ids(), "W22 ");
  p.key(6, 3);
  read.sinks[0].lkey = 6;
  p.rules.posting(read, p.here("ibv_post_send"));
  EXPECT_EQ(p.ids(), "W22 ");
}

TEST(CheckKeys, ThePeersRequestByAnLkeyIsNoOrdinaryRefusal) {
  Program p;
  p.key(5, 3);
  Refused refused{&qp, Fault::kKey, true, 2, 5 ^ kLkeyMark, 100, 8};
  p.rules.refused(refused);
  refused.key = 9;
  p.rules.refused(refused);
  EXPECT_EQ(p.ids(), "W22 N01 ");
}

// The rkey of a peer may be the number of an lkey here.
TEST(CheckKeys, AnLkeyInPlaceOfAnRkeyIsReportedUnlessItMayBeAnRkey) {
  Program p;
  Posted write;
  write.qp = &qp;
  write.opcode = "an RDMA Write";
  write.rkey = 5 ^ kLkeyMark;
  write.has_remote = true;
  const auto post = [&](bool is_lkey) {
    write.rkey_is_lkey = is_lkey;
    p.rules.posting(write, p.here("ibv_post_send"));
  };
  post(true);  // the region is gone
  p.key(5, 3);
  post(true);  // the peer's, as it was before
  EXPECT_EQ(p.ids(), "");
  p.key(6, 3);
  write.rkey = 6 ^ kLkeyMark;
  post(true);
  EXPECT_EQ(p.ids(), "W22 ");
  int another = 0;
  Made made;
  made.handle = &another;
  made.kind = Kind::kMr;
  p.rules.made(made, p.here("ibv_reg_mr"));
  p.rules.keyed({&another, 6 ^ kLkeyMark, 100, 50, 3, false, 100}, p.here("ibv_reg_mr"));
  post(true);  // of this process
  EXPECT_EQ(p.ids(), "W22 ");
}

}  // namespace
}  // namespace weft::check
