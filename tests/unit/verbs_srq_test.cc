#include "verbs/srq.h"

#include <array>

#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

struct Slot {
  proto::RecvWqe wqe;
  std::array<Sge, limits::kSgesPerRequest> sges;
};

class SrqTest : public ::testing::Test {
 protected:
  std::shared_ptr<SharedReceiveQueueImpl> make(std::uint32_t max_wr, std::uint32_t limit = 0,
                                               std::uint32_t max_sge = 2) {
    SrqOptions options;
    options.max_wr = max_wr;
    options.max_sge = max_sge;
    options.limit = limit;
    return *SharedReceiveQueueImpl::create(host.pd, options);
  }
  static Posted post(SharedReceiveQueue& srq, std::uint64_t id, std::span<const Sge> sges = {}) {
    const RecvWr wr{id, sges};
    return srq.post_recv(std::span(&wr, 1));
  }
  std::optional<AsyncEvent> event() {
    auto e = host.device->next_async_event(0ns);
    return e ? std::optional(*e) : std::nullopt;
  }
  Host host;
};

TEST_F(SrqTest, ReceivesComeOutInOrderWithTheirSges) {
  const auto srq = make(4);
  const Sge sges[2] = {{0x1000, 10, 7}, {0x2000, 20, 8}};
  EXPECT_EQ(post(*srq, 1, sges).count, 1U);
  EXPECT_EQ(post(*srq, 2).count, 1U);
  Slot slot;
  ASSERT_TRUE(srq->take(slot.wqe));
  EXPECT_EQ(slot.wqe.wr_id, 1U);
  EXPECT_EQ(slot.wqe.length, 30U);
  ASSERT_EQ(slot.wqe.sge_count, 2U);
  EXPECT_EQ(slot.wqe.sges()[1].addr, 0x2000U);
  EXPECT_EQ(slot.wqe.sges()[1].lkey, 8U);
  ASSERT_TRUE(srq->take(slot.wqe));
  EXPECT_EQ(slot.wqe.wr_id, 2U);
  EXPECT_FALSE(srq->take(slot.wqe));
}

TEST_F(SrqTest, FullQueueNamesTheFirstRequestNotTaken) {
  const auto srq = make(4);
  std::vector<RecvWr> wrs(srq->max_wr() + 1);
  const Posted posted = srq->post_recv(wrs);
  EXPECT_EQ(posted.count, srq->max_wr());
  EXPECT_EQ(posted.error, Error::kNoSpace);
}

TEST_F(SrqTest, TooManySgesAndTooManyBytesAreRefused) {
  const auto srq = make(4);
  const std::array<Sge, 3> three{};
  EXPECT_EQ(post(*srq, 1, three).error, Error::kInvalidArgument);
  const Sge huge[2] = {{0, 0xffffffff, 0}, {0, 1, 0}};
  EXPECT_EQ(post(*srq, 1, huge).error, Error::kInvalidArgument);
  EXPECT_EQ(srq->posted(), 0U);
}

TEST_F(SrqTest, LimitEventComesOnceWhenFewerAreLeftThanTheLimit) {
  const auto srq = make(8, 2);
  for (std::uint64_t id = 0; id < 4; ++id) post(*srq, id);
  Slot slot;
  ASSERT_TRUE(srq->take(slot.wqe));
  ASSERT_TRUE(srq->take(slot.wqe));
  EXPECT_FALSE(event());
  ASSERT_TRUE(srq->take(slot.wqe));
  const auto raised = event();
  ASSERT_TRUE(raised);
  EXPECT_EQ(raised->type, AsyncEventType::kSrqLimitReached);
  EXPECT_EQ(raised->srq.lock(), srq);
  EXPECT_EQ(srq->limit(), 0U);
  ASSERT_TRUE(srq->take(slot.wqe));
  EXPECT_FALSE(event());
  EXPECT_FALSE(srq->set_limit(srq->max_wr() + 1));
}

TEST_F(SrqTest, ResizeKeepsWhatIsPosted) {
  const auto srq = make(4);
  for (std::uint64_t id = 0; id < 3; ++id) post(*srq, id);
  const auto too_small = srq->resize(2);
  ASSERT_FALSE(too_small);
  EXPECT_EQ(too_small.error(), Error::kInvalidArgument);
  EXPECT_FALSE(srq->resize(limits::kWorkRequestsPerQueue + 1));
  ASSERT_TRUE(srq->resize(64));
  EXPECT_GE(srq->max_wr(), 64U);
  Slot slot;
  for (std::uint64_t id = 0; id < 3; ++id) {
    ASSERT_TRUE(srq->take(slot.wqe));
    EXPECT_EQ(slot.wqe.wr_id, id);
  }
}

TEST_F(SrqTest, OptionsOverTheLimitsAreRefused) {
  const auto refused = [&](std::uint32_t max_wr, std::uint32_t max_sge, std::uint32_t limit) {
    SrqOptions options;
    options.max_wr = max_wr;
    options.max_sge = max_sge;
    options.limit = limit;
    return !SharedReceiveQueueImpl::create(host.pd, options);
  };
  EXPECT_TRUE(refused(0, 1, 0));
  EXPECT_TRUE(refused(limits::kWorkRequestsPerQueue + 1, 1, 0));
  EXPECT_TRUE(refused(16, limits::kSgesPerRequest + 1, 0));
  EXPECT_TRUE(refused(16, 1, 17));
  EXPECT_FALSE(refused(limits::kWorkRequestsPerQueue, limits::kSgesPerRequest, 0));
  EXPECT_EQ(host.device->count(ObjectKind::kSrq), 0U);
}

}  // namespace
}  // namespace weft::verbs::test
