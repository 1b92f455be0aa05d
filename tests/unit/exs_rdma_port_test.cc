// The posts of a connection of extended sockets over RDMA, without a device.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "exs/core/exs_engine.h"
#include "exs/rdma/rdma_port.h"
#include "exs_fake_verbs.h"

namespace weft::exs {
namespace {

constexpr std::uint16_t kSlots = 8;

// Counters that are always the same.
struct Still : Flow {
  int open(Hello& /*mine*/) override { return 0; }
  void start(const Hello& /*mine*/, const Hello& /*theirs*/) override {}
  const char* pump() override { return nullptr; }
  void receives_posted() override {}
  void posts_done() override {}
  void cancel() override {}
  void cancel_told() override {}
  const char* on_message(const Message& /*message*/) override { return nullptr; }
  const char* on_counters(const Header& /*header*/) override { return nullptr; }
  const char* on_finish() override { return nullptr; }
  void tell(Header& header) override { header.ring_consumed = 5; }
  [[nodiscard]] bool has_to_tell() const override { return false; }
  [[nodiscard]] bool readable() const override { return false; }
  [[nodiscard]] bool writable() const override { return false; }
};

class Port : public ::testing::Test {
 protected:
  void SetUp() override {
    socket_->settings.slots = kSlots;
    port_.cm().adopt(verbs_.id(), socket_);
  }
  void TearDown() override {
    port_.end();
    port_.release();
  }

  int make() { return port_.make_qp(); }
  // As after the Hellos. The peer has so many slots.
  void make_and_open(std::uint16_t theirs = kSlots) {
    ASSERT_EQ(make(), 0);
    Hello mine;
    mine.slots = kSlots;
    mine.immediate_bytes = socket_->settings.immediate_bytes;
    port_.offer(mine);
    Hello other = mine;
    other.slots = theirs;
    port_.agree(other);
    port_.up(true);
  }
  // The header of the last message.
  Header last_sent() {
    Message message;
    EXPECT_FALSE(verbs_.sent.empty());
    EXPECT_EQ(decode(verbs_.sent.back().octets, message), nullptr);
    return message.header;
  }
  std::uint32_t last_serial() {
    return static_cast<std::uint32_t>(verbs_.sent.back().request.wr_id);
  }

  // The first: the devices that the others hold are its. Those of the engine stay for good.
  test::FakeVerbs verbs_;
  std::shared_ptr<Socket> socket_ = std::make_shared<Socket>(-1, AF_INET, Kind::kStream);
  RdmaPort port_{*socket_, Engine::instance()};
  Still flow_;
};

TEST_F(Port, PostsAllItsReceivesBeforeThePeerIsTold) {
  ASSERT_EQ(make(), 0);
  ASSERT_EQ(verbs_.receives.size(), kSlots);
  for (const std::uint64_t id : verbs_.receives) {
    EXPECT_EQ(id >> 32U, port_.cm().number());
    EXPECT_NE(id & MessageSlots::kReceiveBit, 0U);
  }
  EXPECT_TRUE(verbs_.sent.empty());
}

TEST_F(Port, MemoryThatIsRefusedLeavesItsErrno) {
  verbs_.refuse_mr = ENOMEM;
  EXPECT_EQ(make(), ENOMEM);
  EXPECT_EQ(verbs_.mrs, 0);
}

TEST_F(Port, ReceivesThatAreRefusedAreAnError) {
  verbs_.refuse_receive = EINVAL;
  EXPECT_EQ(make(), ENOMEM);
}

TEST_F(Port, SendsOnlyWhenThePeerMayBeSentTo) {
  ASSERT_EQ(make(), 0);
  EXPECT_FALSE(port_.is_up());
  EXPECT_FALSE(port_.can_post(1));
  port_.up(false);
  EXPECT_TRUE(port_.is_up());
  EXPECT_FALSE(port_.can_post(1));
  port_.up(true);
  EXPECT_TRUE(port_.can_post(1));
  port_.up(false);
  EXPECT_TRUE(port_.can_post(1));
}

TEST_F(Port, KeepsTheLastCreditAndCountsAStallOnce) {
  make_and_open(3);
  ASSERT_TRUE(port_.can_send(0));
  ASSERT_TRUE(port_.send_message(flow_, Header{}, {}, nullptr, 0, false));
  ASSERT_TRUE(port_.can_send(0));
  ASSERT_TRUE(port_.send_message(flow_, Header{}, {}, nullptr, 0, false));
  EXPECT_FALSE(port_.can_send(0));
  EXPECT_FALSE(port_.can_send(0));
  EXPECT_EQ(socket_->stats.credit_stalls, 1U);
  EXPECT_TRUE(port_.on_slots_returned(1));
  EXPECT_TRUE(port_.can_send(0));
}

TEST_F(Port, PeerThatReturnsMoreSlotsThanItWasSentMessagesBreaksTheProtocol) {
  make_and_open();
  ASSERT_TRUE(port_.send_message(flow_, Header{}, {}, nullptr, 0, false));
  EXPECT_FALSE(port_.on_slots_returned(2));
  EXPECT_TRUE(port_.on_slots_returned(1));
}

TEST_F(Port, MessageBringsTheCountersOfSlotsAndOfTheFlow) {
  make_and_open();
  for (std::uint32_t slot = 0; slot < 2; ++slot) ASSERT_TRUE(port_.slot_read(slot));
  ASSERT_TRUE(port_.send_message(flow_, Header{}, {}, nullptr, 0, true));
  EXPECT_EQ(last_sent().slots_returned, 2U);
  EXPECT_EQ(last_sent().ring_consumed, 5U);
  EXPECT_EQ(verbs_.sent.back().request.send_flags, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
  EXPECT_EQ(verbs_.sent.back().request.wr_id >> 32U, port_.cm().number());
}

TEST_F(Port, WithoutInlineDataAMessageHasABufferUntilItIsRetired) {
  verbs_.inline_most = 0;
  make_and_open(3 * kSlots);
  for (unsigned i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(port_.can_send(0)) << i;
    ASSERT_TRUE(port_.send_message(flow_, Header{}, {}, nullptr, 0, true));
    EXPECT_EQ(verbs_.sent.back().request.send_flags & IBV_SEND_INLINE, 0U);
  }
  EXPECT_FALSE(port_.can_send(0));
  EXPECT_FALSE(port_.done(port_.last()));
  port_.retire(last_serial());
  EXPECT_TRUE(port_.done(port_.last()));
  EXPECT_EQ(port_.retired(), port_.last());
  EXPECT_TRUE(port_.can_send(0));
}

TEST_F(Port, ReturnsCreditsWhenHalfOfTheSlotsWereRead) {
  make_and_open();
  for (std::uint32_t slot = 0; slot < kSlots / 2 - 2; ++slot) ASSERT_TRUE(port_.slot_read(slot));
  port_.flush_credits(flow_);
  EXPECT_TRUE(verbs_.sent.empty());
  for (std::uint32_t slot = kSlots / 2 - 2; slot < kSlots / 2; ++slot) {
    ASSERT_TRUE(port_.slot_read(slot));
  }
  port_.flush_credits(flow_);
  ASSERT_EQ(verbs_.sent.size(), 1U);
  EXPECT_EQ(last_sent().type, Type::kCredit);
  EXPECT_EQ(last_sent().slots_returned, kSlots / 2U);
  port_.flush_credits(flow_);
  EXPECT_EQ(verbs_.sent.size(), 1U);
}

TEST_F(Port, ControlMessagesGoInOrderAndTheLastOneReports) {
  make_and_open();
  EXPECT_TRUE(port_.all_said());
  port_.queue_control(Type::kCredit, 0, 0, 0);
  port_.queue_control(Type::kFinish, 0, 9, 0);
  EXPECT_FALSE(port_.all_said());
  port_.flush_control(flow_);
  ASSERT_EQ(verbs_.sent.size(), 2U);
  EXPECT_EQ(last_sent().type, Type::kFinish);
  EXPECT_EQ(last_sent().seq, 9U);
  EXPECT_NE(verbs_.sent.back().request.send_flags & IBV_SEND_SIGNALED, 0U);
  EXPECT_FALSE(port_.all_said());
  port_.retire(last_serial());
  EXPECT_TRUE(port_.all_said());
}

// An iWARP adapter names the memory that a Read fills to the peer.
TEST_F(Port, SinkMayBeWrittenRemotelyWhereTheDeviceNeedsThat) {
  verbs_.make_iwarp(1);
  verbs_.id()->verbs = verbs_.context(1);
  make_and_open();
  std::uint64_t memory = 0;
  Operation& op = socket_->add(socket_->ops.one_sided);
  op.type = EXS_EVT_READ;
  op.pieces.push_back({reinterpret_cast<std::uint8_t*>(&memory), sizeof memory, nullptr, -1, 0});
  std::uint32_t key = 0;
  ASSERT_TRUE(port_.sink_key(op, op.pieces.front(), 0, sizeof memory, key));
  EXPECT_EQ(verbs_.last_access & IBV_ACCESS_REMOTE_WRITE, unsigned{IBV_ACCESS_REMOTE_WRITE});
  ASSERT_TRUE(port_.local_key(op, op.pieces.front(), key));
  EXPECT_EQ(verbs_.last_access & IBV_ACCESS_REMOTE_WRITE, 0U);
  socket_->finish_all(socket_->ops.one_sided, 0);
}

TEST_F(Port, AfterItsEndTheDeviceReachesNothingAndItStaysGone) {
  make_and_open();
  ASSERT_EQ(verbs_.qps, 1);
  const std::uint32_t number = port_.cm().number();
  port_.end();
  EXPECT_TRUE(port_.gone());
  EXPECT_EQ(verbs_.qps, 0);
  EXPECT_FALSE(port_.can_post(1));
  port_.up(true);
  EXPECT_TRUE(port_.gone());
  // Reports that are on their way find the socket until release().
  EXPECT_EQ(Engine::instance().connections.find(number), socket_);
  port_.release();
  EXPECT_EQ(Engine::instance().connections.find(number), nullptr);
  EXPECT_EQ(verbs_.mrs, 0);
}

}  // namespace
}  // namespace weft::exs
