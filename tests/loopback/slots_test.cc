// The slots of work queues: a request keeps its own until the program polls a completion at or
// after it, as on adapters.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "support/weft_side.h"

namespace weft::test {
namespace {

constexpr std::uint32_t kDepth = 16;

EndpointOptions as_deep_as_its_queues() {
  EndpointOptions options;
  options.max_send_wr = kDepth;
  options.max_recv_wr = kDepth;
  options.cq_depth = kDepth;
  return options;
}

Config with_progress(ProgressMode mode) {
  Config config = plain_config();
  config.progress = mode;
  return config;
}

// Two ends whose completion queues are as deep as their work queues.
struct Slots : Pair {
  explicit Slots(ProgressMode mode = ProgressMode::kAuto)
      : Pair(with_progress(mode), as_deep_as_its_queues(), as_deep_as_its_queues()),
        memory(host, 64) {}

  [[nodiscard]] Status write(std::uint64_t id, SendFlags flags = SendFlags::kSignaled) {
    return a.qp->post_send(wr_write(id, memory.rkey(), memory.to(), flags));
  }
  // Writes until one is refused. How many were not.
  std::uint64_t fill(std::uint64_t first = 0, SendFlags flags = SendFlags::kSignaled) {
    std::uint64_t id = first;
    for (;;) {
      const Status posted = write(id, flags);
      if (!posted) {
        EXPECT_EQ(posted.error(), Error::kNoSpace);
        return id - first;
      }
      if (++id - first == 10 * kDepth) return id - first;
    }
  }
  // The engine needs none of them any more.
  [[nodiscard]] bool sends_are_done() const {
    return eventually([&] { return a.qp->query().sq_outstanding == 0; });
  }
  [[nodiscard]] bool receives_are_done() const {
    return eventually([&] { return b.qp->query().rq_outstanding == 0; });
  }
  void expect_no_overflow() const {
    EXPECT_FALSE(a.send_cq->overflowed());
    EXPECT_FALSE(b.recv_cq->overflowed());
  }
  Memory memory;
};

class SlotsInMode : public testing::TestWithParam<ProgressMode> {};
INSTANTIATE_TEST_SUITE_P(All, SlotsInMode,
                         testing::Values(ProgressMode::kAuto, ProgressMode::kThread),
                         [](const auto& of) {
                           return of.param == ProgressMode::kAuto ? "Auto" : "Thread";
                         });

TEST_P(SlotsInMode, WhoPostsUntilTheQueueIsFullAndThenPollsLosesNothing) {
  Slots pair(GetParam());
  std::uint64_t next = 0;
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(pair.fill(next), kDepth);
    ASSERT_TRUE(pair.sends_are_done());
    EXPECT_EQ(pair.fill(next + kDepth), 0U);
    for (std::uint32_t i = 0; i < kDepth; ++i) take_success(*pair.a.send_cq, next++);
  }
  pair.expect_no_overflow();
  EXPECT_EQ(pair.a.qp->state(), QpState::kRts);
}

TEST_P(SlotsInMode, EachPolledCompletionFreesTheSlotOfItsRequest) {
  Slots pair(GetParam());
  ASSERT_EQ(pair.fill(), kDepth);
  ASSERT_TRUE(pair.sends_are_done());
  for (std::uint64_t id = 0; id < 50; ++id) {
    take_success(*pair.a.send_cq, id);
    ASSERT_EQ(pair.fill(id + kDepth), 1U);
    ASSERT_TRUE(pair.sends_are_done());
  }
  pair.expect_no_overflow();
}

TEST_P(SlotsInMode, ReceivesKeepTheirsUntilTheyArePolled) {
  Slots pair(GetParam());
  std::uint64_t next = 0;
  for (int round = 0; round < 20; ++round) {
    post_empty_recvs(*pair.b.qp, next, kDepth);
    for (std::uint32_t i = 0; i < kDepth; ++i) post(*pair.a.qp, wr_send(i));
    ASSERT_TRUE(pair.receives_are_done());
    ASSERT_EQ(pair.b.qp->post_recv(RecvWr{}).error(), Error::kNoSpace);
    take_success(*pair.b.recv_cq, next);
    ASSERT_TRUE(pair.b.qp->post_recv(RecvWr{next + kDepth, {}}));
    ASSERT_EQ(pair.b.qp->post_recv(RecvWr{}).error(), Error::kNoSpace);
    (void)take_n(*pair.a.send_cq, kDepth);
    post(*pair.a.qp, wr_send(kDepth));
    take_success(*pair.a.send_cq, kDepth);
    for (std::uint32_t i = 0; i < kDepth; ++i) take_success(*pair.b.recv_cq, ++next);
    ++next;
  }
  pair.expect_no_overflow();
}

TEST(Slots, OfUnsignaledRequestsAreFreedByTheNextCompletion) {
  Slots pair;
  for (std::uint64_t id = 0; id < 10; ++id) must(pair.write(id, SendFlags::kNone), "post");
  must(pair.write(10), "post");
  ASSERT_EQ(pair.fill(11, SendFlags::kNone), kDepth - 11);
  ASSERT_TRUE(pair.sends_are_done());
  EXPECT_EQ(pair.fill(), 0U);
  take_success(*pair.a.send_cq, 10);
  EXPECT_EQ(pair.fill(100, SendFlags::kNone), 11U);
}

TEST(Slots, OfUnsignaledRequestsOnlyAreNeverFreed) {
  Slots pair;
  ASSERT_EQ(pair.fill(0, SendFlags::kNone), kDepth);
  ASSERT_TRUE(pair.sends_are_done());
  EXPECT_TRUE(quiet(*pair.a.send_cq));
  EXPECT_EQ(pair.fill(), 0U);
}

TEST(Slots, OfFlushedRequestsAreFreedLikeAnyOther) {
  Slots pair;
  post_empty_recvs(*pair.a.qp, 0, kDepth);
  pair.a.connection->abort();
  ASSERT_TRUE(eventually([&] { return pair.a.qp->state() == QpState::kError; }));
  std::uint64_t next = 0;
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(pair.fill(next), kDepth);
    EXPECT_EQ(pair.a.qp->post_recv(RecvWr{}).error(), Error::kNoSpace);
    for (std::uint32_t i = 0; i < kDepth; ++i, ++next) {
      const WorkCompletion sent = take(*pair.a.send_cq);
      EXPECT_EQ(sent.wr_id, next);
      EXPECT_EQ(sent.status, WcStatus::kFlushed);
      const WorkCompletion received = take(*pair.a.recv_cq);
      EXPECT_EQ(received.wr_id, next);
      EXPECT_EQ(received.status, WcStatus::kFlushed);
      ASSERT_TRUE(pair.a.qp->post_recv(RecvWr{next + kDepth, {}}));
    }
  }
  EXPECT_FALSE(pair.a.send_cq->overflowed());
  EXPECT_FALSE(pair.a.recv_cq->overflowed());
}

TEST(Slots, SurviveAResizeOfTheirCompletionQueue) {
  Slots pair;
  ASSERT_EQ(pair.fill(), kDepth);
  ASSERT_TRUE(pair.sends_are_done());
  take_success(*pair.a.send_cq, 0);
  must(pair.a.send_cq->resize(4 * kDepth), "resize");
  EXPECT_EQ(pair.fill(kDepth), 1U);
  for (std::uint64_t id = 1; id <= kDepth; ++id) take_success(*pair.a.send_cq, id);
  EXPECT_EQ(pair.fill(), kDepth);
}

TEST(Slots, AreAllFreeAfterAResetThatDropsCompletions) {
  Slots pair;
  post_empty_recvs(*pair.a.qp, 0, kDepth);
  ASSERT_EQ(pair.fill(), kDepth);
  ASSERT_TRUE(pair.sends_are_done());
  pair.a.connection->abort();
  ASSERT_TRUE(eventually([&] { return pair.a.qp->state() == QpState::kError; }));
  must(pair.a.qp->modify(QpState::kReset), "reset");
  EXPECT_TRUE(quiet(*pair.a.send_cq));
  EXPECT_TRUE(quiet(*pair.a.recv_cq));
  must(pair.a.qp->modify(QpState::kInit), "init");
  Endpoint peer(pair.host);
  connect(pair.host, pair.a, pair.host, peer);
  post_empty_recvs(*pair.a.qp, 0, kDepth);
  EXPECT_EQ(pair.a.qp->post_recv(RecvWr{}).error(), Error::kNoSpace);
  ASSERT_EQ(pair.fill(), kDepth);
  for (std::uint64_t id = 0; id < kDepth; ++id) take_success(*pair.a.send_cq, id);
  pair.expect_no_overflow();
}

TEST(Slots, ADestroyedQueuePairLeavesNoCompletionsAndThoseOfOthersStay) {
  Slots pair;
  QpOptions options;
  options.send_cq = pair.a.send_cq;
  options.recv_cq = pair.a.send_cq;
  must(pair.a.send_cq->resize(4 * kDepth), "resize");
  auto other = must(pair.host.pd->create_qp(options), "create a QP");
  must(other->modify(QpState::kError), "end it");
  ASSERT_TRUE(other->post_recv(RecvWr{77, {}}));
  ASSERT_EQ(pair.fill(), kDepth);
  ASSERT_TRUE(pair.sends_are_done());
  pair.a.qp.reset();
  const WorkCompletion left = take(*pair.a.send_cq);
  EXPECT_EQ(left.wr_id, 77U);
  EXPECT_EQ(left.qp_num, other->number());
  EXPECT_TRUE(quiet(*pair.a.send_cq));
}

TEST(Slots, OfASharedReceiveQueueAreFreeWhenTheirReceivesAreTaken) {
  Host host;
  SrqOptions shared;
  shared.max_wr = kDepth;
  EndpointOptions with_srq;
  with_srq.srq = must(host.pd->create_srq(shared), "create an SRQ");
  Endpoint a(host);
  Endpoint b(host, with_srq);
  connect(host, a, host, b);
  const std::vector<RecvWr> receives(kDepth);
  for (int round = 0; round < 5; ++round) {
    // There is room once the engine has taken them, before any completion is polled.
    std::size_t posted = 0;
    ASSERT_TRUE(eventually([&] {
      posted += with_srq.srq->post_recv(std::span(receives).subspan(posted)).count;
      return posted == kDepth;
    }));
    EXPECT_EQ(with_srq.srq->post_recv(receives).count, 0U);
    for (std::uint32_t i = 0; i < kDepth; ++i) post(*a.qp, wr_send(i));
    (void)take_n(*a.send_cq, kDepth);
  }
  (void)take_n(*b.recv_cq, std::size_t{5} * kDepth);
}

}  // namespace
}  // namespace weft::test
