// The parts of a session of the data server: its messages, answers, admission, background work and
// records.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <vector>

#include "files/protocol/token_proof.h"
#include "files/server/admission.h"
#include "files/server/laters.h"
#include "files/server/plays.h"
#include "files/server/work_ids.h"
#include "files_fake_queue.h"

namespace weft::files {
namespace {

using Numbers = std::vector<std::uint64_t>;

TEST(WorkIds, TellPlacesFromAddresses) {
  alignas(8) int object = 0;
  for (const WorkKind kind : {WorkKind::kReceive, WorkKind::kReply, WorkKind::kPage}) {
    for (const std::size_t slot : {0U, 1U, 63U, 4095U}) {
      EXPECT_EQ(kind_of(work_id(kind, slot)), kind);
      EXPECT_EQ(slot_of(work_id(kind, slot)), slot);
    }
  }
  for (const WorkKind kind : {WorkKind::kPiece, WorkKind::kChunk}) {
    EXPECT_EQ(kind_of(work_id(kind, &object)), kind);
    EXPECT_EQ(&object_of<int>(work_id(kind, &object)), &object);
  }
}

TEST(MessageRing, PostsAReceiveAgainBeforeItsRequestIsAnswered) {
  FakeSession session;
  ASSERT_EQ(session.queue.receives.size(), kCredits);
  session.memory[3 * kMessageBytes] = 42;
  std::uint8_t copy[1] = {};
  ASSERT_EQ(session.ring.take(3, copy), 0);
  EXPECT_EQ(copy[0], 42);
  EXPECT_EQ(session.queue.receives.size(), kCredits + 1);
  EXPECT_EQ(session.queue.receives.back(), work_id(WorkKind::kReceive, 3));
}

TEST(MessageRing, HasNoRoomWhileEveryReplyIsOnItsWay) {
  FakeSession session;
  for (std::size_t i = 0; i < MessageRing::kReplySlots; ++i) {
    ASSERT_EQ(session.ring.room().size(), kMessageBytes);
    // Behind the receives, and of nobody else.
    ASSERT_GE(session.ring.room().data(), session.memory.data() + kCredits * kMessageBytes);
    ASSERT_EQ(session.ring.send(1), 0);
  }
  EXPECT_TRUE(session.ring.room().empty());
  Numbers ids;
  for (const auto& send : session.queue.sends) ids.push_back(send.wr_id);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
  session.ring.sent(slot_of(ids.front()));
  EXPECT_EQ(session.ring.room().size(), kMessageBytes);
}

TEST(Answers, FailASessionThatTakesNoReplies) {
  FakeSession session;
  for (std::size_t i = 0; i < MessageRing::kReplySlots; ++i) session.answers.refuse({}, EIO);
  EXPECT_EQ(session.failures, 0);
  session.answers.refuse({}, EIO);
  EXPECT_EQ(session.failures, 1);
  session.answers.refuse({}, EIO);  // a session that has failed
  EXPECT_EQ(session.failures, 1);
  EXPECT_EQ(session.queue.sends.size(), MessageRing::kReplySlots);
}

TEST(Answers, BeginNoMoreThanTheCreditsAllow) {
  FakeSession session;
  for (std::size_t i = 0; i < Answers::kMostBegun; ++i) ASSERT_TRUE(session.answers.begin());
  session.answers.end();
  EXPECT_TRUE(session.answers.begin());
  EXPECT_FALSE(session.answers.begin());
  EXPECT_EQ(session.failures, 1);
}

TEST(Answers, FailWithTheQueuePair) {
  FakeSession session;
  session.queue.fails = true;
  session.answers.send({}, NoReply());
  EXPECT_EQ(session.failures, 1);
}

struct AdmissionTest : testing::Test {
  static ServeOptions options() {
    ServeOptions out;
    out.token = "a token";
    out.max_clients = 1;
    return out;
  }
  // The nonce of the server.
  Nonce greet(Admission& admission, FakeSession& session) {
    HelloRequest hello;
    EXPECT_EQ(admission.greet(hello, {Op::kHello, 1}), 0);
    const auto& octets = session.queue.sends.back().octets;
    return HelloReply::decode(body_of(session.last(), octets))->nonce;
  }
  Shared shared{options()};
  Clock::time_point start = Clock::now();
};

TEST_F(AdmissionTest, TakesTheRightProofOnly) {
  FakeSession session;
  Admission admission(shared, session.answers, start);
  EXPECT_EQ(admission.prove_client({}, {}), EPROTO);  // before HELLO
  const Nonce nonce = greet(admission, session);
  EXPECT_FALSE(admission.ready());
  EXPECT_EQ(admission.greet({}, {}), EPROTO);  // twice
  ProveRequest proof;
  proof.proof = prove("a token", Side::kClient, Nonce{}, nonce);
  ASSERT_EQ(admission.prove_client(proof, {Op::kProve, 2}), 0);
  EXPECT_TRUE(admission.ready());
  EXPECT_EQ(session.last().error, 0U);
  EXPECT_EQ(shared.ready, 1U);
  admission.close();
  EXPECT_EQ(shared.ready, 0U);
}

TEST_F(AdmissionTest, AnswersAWrongProofLaterAndTakesNoOther) {
  FakeSession session;
  Admission admission(shared, session.answers, start);
  static_cast<void>(greet(admission, session));
  ASSERT_EQ(admission.prove_client({}, {Op::kProve, 2}), 0);
  EXPECT_TRUE(admission.refuses());
  EXPECT_EQ(session.queue.sends.size(), 1U);
  const auto later = Clock::now() + std::chrono::seconds(1);
  admission.tick(later);
  ASSERT_EQ(session.queue.sends.size(), 2U);
  EXPECT_EQ(session.last().error, static_cast<std::uint32_t>(EACCES));
  EXPECT_EQ(session.failures, 0);
  admission.tick(later + std::chrono::seconds(1));
  EXPECT_EQ(session.failures, 1);
  EXPECT_FALSE(admission.ready());
}

TEST_F(AdmissionTest, HasATimeLimitAndALimitOfClients) {
  shared.options.token.clear();
  FakeSession first, second;
  Admission one(shared, first.answers, start), two(shared, second.answers, start);
  EXPECT_EQ(one.greet({}, {}), 0);
  EXPECT_EQ(two.greet({}, {}), EUSERS);
  one.tick(start + std::chrono::hours(1));
  two.tick(start + std::chrono::seconds(10));
  EXPECT_EQ(first.failures + second.failures, 0);
  two.tick(start + std::chrono::seconds(11));
  EXPECT_EQ(second.failures, 1);
}

struct LatersTest : testing::Test {
  void wait_for_all() {
    while (laters.size() != 0) {
      pollfd ready{background->fd(), POLLIN, 0};
      ASSERT_EQ(poll(&ready, 1, 60'000), 1);
      background->progress();
    }
  }
  std::unique_ptr<Background> background = Background::create(4);
  FakeSession session;
  Laters laters{session.answers, *background};
  Numbers done;
};

TEST_F(LatersTest, DoWhatIsNotSlowAtOnce) {
  EXPECT_EQ(laters.carry_out(
                {}, false, [] { return 0; }, [this] { done.push_back(1); }),
            0);
  EXPECT_EQ(laters.carry_out(
                {}, false, [] { return EIO; }, [this] { done.push_back(2); }),
            EIO);
  EXPECT_EQ(done, Numbers{1});
  EXPECT_TRUE(session.queue.sends.empty());
}

TEST_F(LatersTest, RunFewAtATimeAndAnswerEach) {
  constexpr std::size_t kCount = 7;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    auto task = [i] { return i == 3 ? ENOSPC : 0; };
    ASSERT_EQ(laters.carry_out({Op::kRename, i}, true, task, [this, i] { done.push_back(i); }), 0);
    EXPECT_LE(laters.running(), Laters::kMostRunning);
  }
  EXPECT_EQ(laters.size(), kCount);
  wait_for_all();
  std::sort(done.begin(), done.end());
  EXPECT_EQ(done, (Numbers{0, 1, 2, 4, 5, 6}));
  ASSERT_EQ(session.queue.sends.size(), 1U);
  EXPECT_EQ(session.last().error, static_cast<std::uint32_t>(ENOSPC));
  EXPECT_EQ(session.last().tag, 3U);
}

TEST_F(LatersTest, AnswerNothingOnceTheSessionHasFailed) {
  for (int i = 0; i < 5; ++i) {
    const int error = laters.carry_out(
        {}, true, [] { return 0; }, [this] { done.push_back(1); });
    ASSERT_EQ(error, 0);
  }
  session.fail();
  laters.close();
  EXPECT_EQ(laters.size(), laters.running());
  wait_for_all();
  EXPECT_TRUE(done.empty());
  EXPECT_TRUE(session.queue.sends.empty());
}

struct PlaysTest : testing::Test {
  PlaysTest() {
    request.handle = 5;
    request.offset = 1000;
    request.memory = {4096, 7, 100};
    request.pitch = 128;
    request.slots = 2;
    request.records = 3;
    request.limit = 2;
  }
  FakeSession session;
  Plays plays{session.answers};
  OpenFiles::File file = std::make_shared<OpenFile>();
  PlayRequest request;
};

TEST_F(PlaysTest, FillSlotsInTurnAsFarAsGranted) {
  ASSERT_EQ(plays.start(request, {Op::kPlay, 9}, file), 0);
  EXPECT_EQ(plays.start(request, {}, file), EBUSY);
  const auto first = plays.next();
  const auto second = plays.next();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->offset, 1000U);
  EXPECT_EQ(first->slot.address, 4096U);
  EXPECT_EQ(second->number, 1U);
  EXPECT_EQ(second->offset, 1100U);
  EXPECT_EQ(second->slot.address, 4096U + 128);
  GrantRequest grant;
  grant.handle = 5;
  grant.limit = 3;
  GrantReply reply;
  ASSERT_EQ(plays.grant(grant, reply), 0);
  EXPECT_EQ(reply.records, 2U);
  EXPECT_FALSE(plays.has_next());  // two are under way
  plays.sent(5, true, 0);
  plays.finished();
  const auto third = plays.next();
  ASSERT_TRUE(third);
  EXPECT_EQ(third->slot.address, 4096U);
  EXPECT_FALSE(plays.has_next());
}

TEST_F(PlaysTest, AnswerWhenTheHandleIsClosedAndNothingIsUnderWay) {
  ASSERT_EQ(plays.start(request, {Op::kPlay, 9}, file), 0);
  ASSERT_TRUE(plays.next());
  plays.close(5);
  EXPECT_FALSE(plays.has_next());
  EXPECT_TRUE(session.queue.sends.empty());
  plays.sent(5, true, 0);
  ASSERT_EQ(session.queue.sends.size(), 1U);
  EXPECT_EQ(session.last().tag, 9U);
  EXPECT_EQ(session.last().error, 0U);
  plays.close(5);  // of no PLAY any more
}

TEST_F(PlaysTest, EndWithARecordThatFails) {
  ASSERT_EQ(plays.start(request, {Op::kPlay, 9}, file), 0);
  ASSERT_TRUE(plays.next());
  ASSERT_TRUE(plays.next());
  plays.sent(5, false, 0);
  EXPECT_TRUE(plays.has_failed(5));
  EXPECT_TRUE(session.queue.sends.empty());
  plays.sent(5, false, EIO);
  EXPECT_EQ(session.last().error, static_cast<std::uint32_t>(ENODATA));
}

}  // namespace
}  // namespace weft::files
