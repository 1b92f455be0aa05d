// What flows between wired queue pairs: messages, with an error at the request that deserves it;
// the losses of unreliable ones; and when Acks leave.
#include <atomic>
#include <chrono>
#include <cstring>

#include "verbs_wired.h"

namespace weft::verbs::test {
namespace {

// --- reliable ones ---

struct WiringRc : ::testing::Test {
  void SetUp() override {
    a.to_rtr(b);
    b.to_rtr(a);
    a.to_rts();
    b.to_rts();
  }
  // What `from` sent with an immediate has arrived in request `id`.
  static void expect_immediate(const Wired& to, std::uint64_t id) {
    const WorkCompletion wc = to.next();
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(describe(wc.status), describe(WcStatus::kSuccess));
    EXPECT_TRUE(has(wc.flags, WcFlags::kWithImm));
    EXPECT_EQ(wc.imm_data >> 32U, 0xc0ffeeU);
    EXPECT_EQ(wc.byte_len, 8U);
  }
  static SendWr with_immediate(SendOp op, const Sge& sge) {
    SendWr wr;
    wr.op = op;
    wr.imm_data = std::uint64_t{0xc0ffee} << 32U;
    wr.flags = SendFlags::kSignaled;
    wr.sges = {&sge, 1};
    return wr;
  }
  Wired a, b;
};

TEST_F(WiringRc, ASendWithAnImmediateCarriesItsOctetsToo) {
  std::memcpy(a.memory.data(), "octets!", 8);
  b.receive(1);
  const Sge at = a.sge(8);
  ASSERT_TRUE(a.qp().post_send(with_immediate(SendOp::kImmediate, at)));
  expect_immediate(b, 1);
  EXPECT_EQ(std::memcmp(b.memory.data(), "octets!", 8), 0);
  EXPECT_EQ(a.next().status, WcStatus::kSuccess);
}

TEST_F(WiringRc, AWriteWithAnImmediateTakesOneReceiveAndSaysHowMuchCame) {
  std::memcpy(a.memory.data(), "octets!", 8);
  ASSERT_TRUE(b.qp().post_recv({1, {}}));  // needs no memory
  const Sge at = a.sge(8);
  SendWr wr = with_immediate(SendOp::kWriteImm, at);
  wr.remote_addr = b.address() + 100;
  wr.rkey = b.region->rkey();
  ASSERT_TRUE(a.qp().post_send(wr));
  expect_immediate(b, 1);
  EXPECT_EQ(std::memcmp(b.memory.data() + 100, "octets!", 8), 0);
  EXPECT_EQ(b.qp().query().rq_outstanding, 0U);
}

// What is complete has been placed; what is not is behind the error, and has no effect.
TEST_F(WiringRc, AnErrorOfThePeerIsThatOfTheRequestThatDeservesIt) {
  struct Fault {
    const char* what;
    std::uint64_t offset;
    std::uint32_t key_bits;
  };
  for (const Fault& f : {Fault{"a key that is not", 0, 0x100}, Fault{"over the end", 4089, 0}}) {
    for (const bool reads : {false, true}) {
      SCOPED_TRACE(std::string(f.what) + (reads ? ", a Read" : ", a Write"));
      Wired left, right;
      left.to_rtr(right);
      right.to_rtr(left);
      left.to_rts();
      right.to_rts();
      std::memcpy(left.memory.data(), "octets!", 8);
      left.write(1, right.address(), right.region->rkey());
      left.write(2, right.address() + f.offset, right.region->rkey() ^ f.key_bits,
                 reads ? SendOp::kRead : SendOp::kWrite);
      left.write(3, right.address() + 200, right.region->rkey());
      EXPECT_EQ(describe(left.next().status), describe(WcStatus::kSuccess));
      const WorkCompletion wc = left.next();
      EXPECT_EQ(wc.wr_id, 2U);
      EXPECT_EQ(describe(wc.status), describe(WcStatus::kRemoteAccess));
      EXPECT_EQ(describe(left.next().status), describe(WcStatus::kFlushed));
      EXPECT_EQ(left.qp().state(), QpState::kError);
      EXPECT_TRUE(eventually([&] { return right.qp().state() == QpState::kError; }));
      EXPECT_EQ(std::memcmp(right.memory.data(), "octets!", 8), 0);
      EXPECT_EQ(right.memory[200], 0);
    }
  }
}

TEST_F(WiringRc, ASendLongerThanItsReceiveIsAnErrorAtBothEnds) {
  const Sge four = b.sge(4);
  ASSERT_TRUE(b.qp().post_recv({7, {&four, 1}}));
  a.send(1);
  EXPECT_EQ(describe(a.next().status), describe(WcStatus::kRemoteInvalidRequest));
  EXPECT_EQ(describe(b.next().status), describe(WcStatus::kLocalLength));
  EXPECT_EQ(a.qp().state(), QpState::kError);
  EXPECT_EQ(b.qp().state(), QpState::kError);
}

// Two queue pairs of either type take the receives of one queue.
TEST(WiringShared, ReceivesAreThereForEveryQueuePair) {
  for (const QpType type : {QpType::kRc, QpType::kUc}) {
    SCOPED_TRACE(type == QpType::kRc ? "RC" : "UC");
    Wired sharer(type), left(type), right(type);
    QpOptions options;
    options.type = type;
    options.send_cq = options.recv_cq = sharer.set.cq;
    options.srq = std::move(*sharer.host.pd->create_srq({}));
    const Sge at = sharer.sge(64);
    for (std::uint64_t id = 1; id <= 2; ++id) {
      const RecvWr receive{id, {&at, 1}};
      ASSERT_EQ(options.srq->post_recv({&receive, 1}).count, 1U);
    }
    std::vector<std::shared_ptr<QueuePair>> qps;
    for (const Wired* peer : {&left, &right}) {
      const auto qp = qps.emplace_back(std::move(*sharer.host.pd->create_qp(options)));
      ASSERT_TRUE(qp->modify(QpState::kInit));
      ASSERT_TRUE(qp->wire(sharer.towards(*peer)));
      WiringToReceive back = peer->towards(sharer);
      back.peer_number = qp->number();
      peer->to_init();
      ASSERT_TRUE(peer->qp().wire(back));
      peer->to_rts();
      peer->send(9);
      EXPECT_EQ(peer->next().status, WcStatus::kSuccess);
      const WorkCompletion wc = sharer.next();
      EXPECT_EQ(wc.wr_id, qps.size());
      EXPECT_EQ(wc.qp_num, qp->number());
    }
  }
}

// --- unreliable ones ---

struct WiringUc : ::testing::Test {
  void connect() const {
    a.to_rtr(b);
    b.to_rtr(a);
    a.to_rts();
    b.to_rts();
  }
  const Wired a{QpType::kUc};
  const Wired b{QpType::kUc};
};

TEST_F(WiringUc, MessagesGoBothWays) {
  connect();
  expect_message(a, b, 1);
  expect_message(b, a, 2);
  a.write(3, b.address() + 64, b.region->rkey());
  EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  expect_message(a, b, 4);  // behind the Write
}

TEST_F(WiringUc, ASendWithoutAReceiveIsLostAndWhatComesBehindItArrives) {
  connect();
  for (std::uint64_t id = 1; id <= 3; ++id) {
    a.send(id);
    EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  }
  ASSERT_TRUE(eventually([&] { return b.dropped() == 3; }));
  expect_message(a, b, 4);
  EXPECT_EQ(b.completions(), 0U);
}

TEST_F(WiringUc, ASendLongerThanItsReceiveIsLostAndLeavesIt) {
  connect();
  const Sge four = b.sge(4);
  ASSERT_TRUE(b.qp().post_recv({7, {&four, 1}}));
  a.send(1);
  EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  ASSERT_TRUE(eventually([&] { return b.dropped() == 1; }));
  const Sge two = a.sge(2);
  SendWr wr;
  wr.flags = SendFlags::kSignaled;
  wr.sges = {&two, 1};
  ASSERT_TRUE(a.qp().post_send(wr));
  EXPECT_EQ(b.next().wr_id, 7U);
}

// It stays what the next message gets, also over another connection.
TEST_F(WiringUc, ASendLongerThanItsReceiveLeavesItToTheNextConnection) {
  connect();
  const Sge four = b.sge(4);
  ASSERT_TRUE(b.qp().post_recv({7, {&four, 1}}));
  a.send(1);
  EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  ASSERT_TRUE(eventually([&] { return b.dropped() == 1; }));
  ASSERT_TRUE(a.qp().modify(QpState::kReset));
  ASSERT_TRUE(eventually([&] { return !b.linked(); }));
  a.to_rtr(b);
  a.to_rts();
  ASSERT_TRUE(eventually([&] { return a.linked(); }));
  const Sge two = a.sge(2);
  SendWr wr;
  wr.flags = SendFlags::kSignaled;
  wr.sges = {&two, 1};
  ASSERT_TRUE(a.qp().post_send(wr));
  EXPECT_EQ(b.next().wr_id, 7U);
  EXPECT_EQ(b.dropped(), 1U);
}

TEST_F(WiringUc, AReceiveThatIsOpenWhenTheConnectionEndsIsFlushedOnce) {
  connect();
  const Sge four = b.sge(4);
  ASSERT_TRUE(b.qp().post_recv({7, {&four, 1}}));
  a.send(1);
  ASSERT_TRUE(eventually([&] { return b.dropped() == 1; }));
  ASSERT_TRUE(a.qp().modify(QpState::kReset));
  ASSERT_TRUE(eventually([&] { return !b.linked(); }));
  EXPECT_EQ(b.completions(), 0U);
  ASSERT_TRUE(b.qp().modify(QpState::kError));
  const WorkCompletion wc = b.next();
  EXPECT_EQ(wc.wr_id, 7U);
  EXPECT_EQ(wc.status, WcStatus::kFlushed);
  EXPECT_EQ(b.completions(), 0U);
}

TEST_F(WiringUc, AWriteWithoutTheRightIsLostWithItsImmediate) {
  connect();
  b.receive(9);
  a.write(1, b.address(), b.region->rkey() ^ 0x100U);
  a.write(2, b.address() + 4090, b.region->rkey(), SendOp::kWriteImm);  // over the end
  for (int i = 0; i < 2; ++i) EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  ASSERT_TRUE(eventually([&] { return b.dropped() == 3; }));  // two Writes and an Immediate
  EXPECT_EQ(b.completions(), 0U);
  a.write(3, b.address(), b.region->rkey(), SendOp::kWriteImm);
  EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  EXPECT_EQ(b.next().wr_id, 9U);
  EXPECT_EQ(b.qp().state(), QpState::kRts);
}

TEST_F(WiringUc, ReadsAreRefusedAtThePost) {
  connect();
  const Sge at = a.sge(8);
  SendWr wr;
  wr.op = SendOp::kRead;
  wr.sges = {&at, 1};
  EXPECT_EQ(a.qp().post_send(wr).error(), Error::kInvalidArgument);
}

TEST_F(WiringUc, WhatHasNoPeerIsSentAllTheSame) {
  const Wired reliable;  // of another type, so it is no peer
  a.to_rtr(reliable);
  reliable.to_rtr(a);
  a.to_rts();
  for (std::uint64_t id = 1; id <= 3; ++id) {
    a.send(id);
    EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  }
  EXPECT_EQ(a.qp().state(), QpState::kRts);
  EXPECT_FALSE(a.linked());
}

TEST_F(WiringUc, APeerThatGoesIsNotMissedAndMayComeBack) {
  connect();
  expect_message(a, b, 1);
  ASSERT_TRUE(b.qp().modify(QpState::kReset));
  for (std::uint64_t id = 2; id < 5; ++id) {
    a.send(id);
    EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  }
  EXPECT_EQ(a.qp().state(), QpState::kRts);
  b.to_rtr(a);
  b.to_rts();
  ASSERT_TRUE(eventually([&] { return a.linked(); }));
  expect_message(a, b, 5);
}

TEST_F(WiringUc, ABadRequestEndsTheSendersQueuePairOnly) {
  connect();
  expect_message(a, b, 1);
  Sge bad = a.sge(8);
  bad.lkey ^= 0x100U;
  SendWr wr;
  wr.wr_id = 2;
  wr.sges = {&bad, 1};
  ASSERT_TRUE(a.qp().post_send(wr));
  EXPECT_EQ(describe(a.next().status), describe(WcStatus::kLocalProtection));
  EXPECT_EQ(a.qp().state(), QpState::kError);
  ASSERT_TRUE(eventually([&] { return !b.linked(); }));
  EXPECT_EQ(b.qp().state(), QpState::kRts);
}

// --- Acks ---

// Two that poll and answer at once: their Acks wait for the answers.
struct WiringPingPong : ::testing::Test {
  void SetUp() override {
    a.to_rtr(b);
    b.to_rtr(a);
    a.to_rts();
    b.to_rts();
    ASSERT_TRUE(b_leaves_acks());
  }
  // Callers have to be what runs the pollers, which a busy machine may prevent for a while.
  [[nodiscard]] bool b_leaves_acks() const {
    const auto leaves = [&] {
      for (int poll = 0; poll < kVainPolls; ++poll) {
        EXPECT_EQ(a.completions() + b.completions(), 0U);
      }
      const std::uint64_t before = calls();
      for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
        ping(turn);
        answer(turn);
      }
      // A call for each Send, and one for each Ack that did not wait for it.
      return HasFailure() || calls() - before < kTurns + kTurns / 2;
    };
    return eventually(leaves) || eventually(leaves) || eventually(leaves);
  }
  [[nodiscard]] std::uint64_t calls() const {
    Counters sum;
    QueuePairImpl::of(b.qp()).add_counters(sum);
    return sum.tx_calls;
  }
  static WorkCompletion poll_for(const Wired& of, WcOp op) {
    WorkCompletion wc;
    const auto until = std::chrono::steady_clock::now() + kPatience;
    // Without a pause: a caller that polls runs its poller itself.
    while (of.completions_of(wc) == 0 || wc.op != op) {
      if (std::chrono::steady_clock::now() > until) ADD_FAILURE() << "nothing came";
      if (::testing::Test::HasFailure()) return {};
    }
    return wc;
  }
  void ping(std::uint64_t turn) const {
    b.receive(turn);
    a.receive(turn);
    a.send(turn);
    EXPECT_EQ(poll_for(b, WcOp::kRecv).wr_id, turn);
  }
  void answer(std::uint64_t turn) const {
    b.send(turn);
    EXPECT_EQ(poll_for(a, WcOp::kSend).wr_id, turn);  // the Ack came with the answer, or before it
    EXPECT_EQ(poll_for(a, WcOp::kRecv).wr_id, turn);
    EXPECT_EQ(poll_for(b, WcOp::kSend).wr_id, turn);
  }
  static constexpr std::uint64_t kTurns = 20;
  static constexpr int kVainPolls = 16;
  const Wired a, b;
};

TEST_F(WiringPingPong, WithoutAnAnswerTheAckGoesWithTheNextPoll) {
  ping(kTurns);
  EXPECT_EQ(b.completions(), 0U);
  EXPECT_EQ(b.completions(), 0U);
  EXPECT_EQ(poll_for(a, WcOp::kSend).wr_id, kTurns);
}

TEST_F(WiringPingPong, AReceiverThatNeverPollsAgainAcknowledgesAllTheSame) {
  ping(kTurns);
  EXPECT_EQ(poll_for(a, WcOp::kSend).wr_id, kTurns);
}

TEST_F(WiringPingPong, ResetAndErrorTakeNoAckWithThem) {
  for (const QpState state : {QpState::kReset, QpState::kError}) {
    SCOPED_TRACE(state == QpState::kReset ? "RESET" : "ERROR");
    ping(kTurns);
    ASSERT_TRUE(b.qp().modify(state));
    const WorkCompletion wc = poll_for(a, WcOp::kSend);
    EXPECT_EQ(wc.wr_id, kTurns);
    EXPECT_EQ(describe(wc.status), describe(WcStatus::kSuccess));
    if (state == QpState::kError) break;
    ASSERT_TRUE(a.qp().modify(QpState::kReset));
    SetUp();
  }
}

// --- doorbells ---

// Nobody polls any more: a timer looks.
TEST(WiringDoorbell, OneThatIsLeftToTheNextPollIsRungThoughNoneComes) {
  const auto left_alone = [] {
    const Wired a, b;
    a.to_rtr(b);
    b.to_rtr(a);
    a.to_rts();
    expect_message(a, b, 0);
    constexpr std::uint64_t kSends = 64;
    for (std::uint64_t id = 1; id <= kSends; ++id) b.receive(id);
    progress::Lane& lane = QueuePairImpl::of(a.qp()).lane();
    std::uint64_t sent = 0;
    // Of posts right behind a poll, one that follows another waits.
    while (sent < kSends && !lane.post_waits()) {
      if (sent % 4 == 0) static_cast<void>(a.completions());
      a.send(++sent);
    }
    const bool waited = lane.post_waits();
    for (std::uint64_t id = 1; id <= sent; ++id) EXPECT_EQ(b.next().wr_id, id);
    return waited;
  };
  EXPECT_TRUE(eventually([&] { return ::testing::Test::HasFailure() || left_alone(); }));
}

// Two ends that write into each other's memory by turns, and look nowhere else. No post is one of a
// stream, which would be collected for one system call.
TEST(WiringDoorbell, ThatOfAProgramThatWatchesMemoryDoesNotWait) {
  Wired a(QpType::kUc);
  Wired b(QpType::kUc);
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  b.to_rts();
  int waited = 0;
  const auto play = [&waited](Wired& from, Wired& to, std::uint64_t ball) {
    std::memcpy(from.memory.data(), &ball, sizeof ball);
    const Sge at = from.sge(sizeof ball);
    SendWr wr;
    wr.op = SendOp::kWrite;
    wr.sges = {&at, 1};
    wr.remote_addr = to.address() + 64;
    wr.rkey = to.region->rkey();
    EXPECT_TRUE(from.qp().post_send(wr));
    if (QueuePairImpl::of(from.qp()).lane().shard().posts_wait()) ++waited;
    const std::atomic_ref there(*reinterpret_cast<std::uint64_t*>(to.memory.data() + 64));
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (there.load(std::memory_order_acquire) != ball) {
      if (std::chrono::steady_clock::now() < until) continue;
      ADD_FAILURE() << "nothing came";
      return;
    }
  };
  // As many as fit into the queues: nobody polls.
  const std::uint64_t balls = a.qp().caps().max_send_wr;
  for (std::uint64_t ball = 1; ball <= balls && !::testing::Test::HasFailure(); ++ball) {
    play(a, b, ball);
    play(b, a, ball);
  }
  EXPECT_LT(waited, 20) << "of " << 2 * balls;
}

}  // namespace
}  // namespace weft::verbs::test
