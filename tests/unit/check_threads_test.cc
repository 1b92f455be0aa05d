// The rules about full queues, where one thread posts and another one polls.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "check/check_rules.h"

namespace weft::check {
namespace {

constexpr Rules::Thread kPoster = 1, kPoller = 2;
int qps[2];

// Two queue pairs with room for two requests and two receives each.
struct TwoThreads {
  std::vector<Finding> found;
  Rules rules{[this](const Finding& finding) { found.push_back(finding); }};
  Origin line = 0;
  std::uint64_t last = 0;  // the number of the last request

  TwoThreads() {
    for (std::uint32_t i = 0; i < 2; ++i) {
      Made made;
      made.handle = &qps[i];
      made.kind = Kind::kQp;
      made.number = 7 + i;
      made.send_depth = made.receive_depth = 2;
      made.receive_sges = 1;
      rules.made(made, here("ibv_create_qp"));
    }
  }
  Here here(const char* call) { return {call, ++line}; }
  void begin_post(std::uint64_t id, const void* qp = &qps[0]) {
    Posted request;
    request.qp = qp;
    request.wr_id = id;
    request.signaled = true;
    last = rules.posting(request, here("ibv_post_send"), kPoster);
  }
  void post(std::uint64_t id) {
    begin_post(id);
    rules.returned(&qps[0], kPoster);
  }
  PostedReceive begin_receive(std::uint64_t id) {
    const PostedReceive receive{&qps[0], id, {}, 1};
    rules.posting_receive(receive, here("ibv_post_recv"), kPoster);
    return receive;
  }
  void poll(std::uint64_t id, bool receive = false, std::uint64_t behind = ~std::uint64_t{0}) {
    rules.completed({7, id, "success", true, false, receive}, here("ibv_poll_cq"),
                    {kPoller, behind});
  }
  [[nodiscard]] std::string ids() const {
    std::string out;
    for (const Finding& one : found) out += std::string(one.rule) + " ";
    return out;
  }
};

TEST(CheckThreads, APostThatIsRefusedYetIsNotReportedByAnothersPoll) {
  TwoThreads p;
  p.post(1);
  p.post(2);
  p.begin_post(3);
  p.poll(1);
  p.rules.not_posted(&qps[0], p.last);
  p.rules.failed(ENOMEM, "ENOMEM", p.here("ibv_post_send"), &qps[0]);
  p.poll(2);
  p.post(4);
  p.rules.ended();
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckThreads, APostIsNoExcessIfItIsRefusedForAnotherReason) {
  TwoThreads p;
  p.post(1);
  p.post(2);
  p.begin_post(3);
  p.rules.not_posted(&qps[0], p.last);
  p.rules.failed(EINVAL, "EINVAL", p.here("ibv_post_send"), &qps[0]);
  p.rules.ended();
  EXPECT_EQ(p.ids(), "N01 ");
}

TEST(CheckThreads, ARefusalIsThatOfItsOwnQueuePair) {
  TwoThreads p;
  p.post(1);
  p.post(2);
  p.begin_post(3);
  p.rules.not_posted(&qps[0], p.last);
  p.begin_post(4, &qps[1]);  // by another thread
  p.rules.failed(ENOMEM, "ENOMEM", p.here("ibv_post_send"), &qps[0]);
  p.poll(1);
  p.post(5);
  p.rules.ended();
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckThreads, TheProgramMayBeRefusedAfterOthersHavePolled) {
  TwoThreads p;
  for (std::uint64_t id = 1; id < 4; ++id) p.post(id);  // the libraries have room for a third
  p.poll(1);
  p.post(4);
  p.begin_post(5);
  p.rules.not_posted(&qps[0], p.last);
  p.rules.failed(ENOMEM, "ENOMEM", p.here("ibv_post_send"), &qps[0]);
  p.poll(2);
  p.post(5);
  p.rules.ended();
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckThreads, AProgramThatIsNeverRefusedIsReportedInTheEnd) {
  TwoThreads p;
  for (std::uint64_t id = 1; id < 4; ++id) p.post(id);
  p.poll(1);
  EXPECT_EQ(p.ids(), "");
  p.rules.ended();
  ASSERT_EQ(p.ids(), "E20 ");
  EXPECT_EQ(p.found[0].at, 5U);  // where the third was posted
}

TEST(CheckThreads, APollThatHadBegunMayHaveMadeRoom) {
  TwoThreads p;
  p.post(1);
  p.post(2);
  const std::uint64_t behind = p.rules.posts();
  p.post(3);
  p.poll(1, false, behind);
  p.rules.ended();
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckThreads, APollWhileThePostGoesOnMayHaveMadeRoom) {
  TwoThreads p;
  p.post(1);
  p.post(2);
  p.begin_post(3);
  p.poll(1, false, p.rules.posts());
  p.rules.returned(&qps[0], kPoster);
  p.rules.ended();
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckThreads, ReceivesThatAreRefusedYetAreNotReportedByAnothersPoll) {
  TwoThreads p;
  p.begin_receive(1);
  p.begin_receive(2);
  const PostedReceive third = p.begin_receive(3);
  p.poll(1, true);
  p.rules.not_posted_receive(third);
  p.rules.ended();
  EXPECT_EQ(p.ids(), "");
}

TEST(CheckThreads, TooManyReceivesAreReportedInTheEnd) {
  TwoThreads p;
  for (std::uint64_t id = 1; id < 4; ++id) p.begin_receive(id);
  p.rules.returned(&qps[0], kPoster);
  p.poll(1, true);
  EXPECT_EQ(p.ids(), "");
  p.rules.ended();
  EXPECT_EQ(p.ids(), "W21 ");
}

}  // namespace
}  // namespace weft::check
