// Every operation between two connected queue pairs over kernel TCP: sizes, pieces of memory,
// flags.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/weft_side.h"

namespace weft::test {
namespace {

// `count` pieces that cover [0, size) of the memory, of unequal lengths, some empty.
std::vector<Sge> cut(Memory& memory, std::size_t size, std::size_t count) {
  std::vector<Sge> out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t left = size - at;
    const std::size_t piece = i + 1 == count ? left : std::min(left, left * (i % 3) / 5);
    out.push_back(memory.sge(at, piece));
    at += piece;
  }
  return out;
}

void post(QueuePair& qp, SendWr wr, const std::vector<Sge>& sges) {
  wr.sges = sges;
  must(qp.post_send(wr), "post a send request");
}
void post_recv(QueuePair& qp, std::uint64_t id, const std::vector<Sge>& sges) {
  RecvWr wr;
  wr.wr_id = id;
  wr.sges = sges;
  must(qp.post_recv(wr), "post a receive");
}

struct Way {
  const char* name;
  bool crc, markers;
  const char* where;
};
const Way kWays[] = {{"CRC", true, false, "127.0.0.1:0"},
                     {"no CRC", false, false, "127.0.0.1:0"},
                     {"CRC and markers", true, true, "127.0.0.1:0"},
                     {"markers", false, true, "127.0.0.1:0"},
                     {"IPv6", true, false, "[::1]:0"}};

class Operations : public ::testing::TestWithParam<Way> {
 protected:
  static Config config() {
    Config c = plain_config();
    c.recv_wait = kPatience;
    c.crc = GetParam().crc;
    c.markers = GetParam().markers;
    return c;
  }
  static EndpointOptions options() {
    EndpointOptions o;
    o.max_sge = limits::kSgesPerRequest;
    o.max_recv_wr = 64;
    o.max_send_wr = 64;
    return o;
  }
  static ConnectOptions how() {
    ConnectOptions c;
    c.where = GetParam().where;
    return c;
  }

  Pair pair{config(), options(), options(), how()};
};

INSTANTIATE_TEST_SUITE_P(Ways, Operations, ::testing::ValuesIn(kWays),
                         [](const auto& i) { return "Way" + std::to_string(i.index); });

TEST_P(Operations, SendsArriveWholeFromAndIntoAnyNumberOfPieces) {
  Memory from(pair.host, 9000);
  Memory into(pair.host, 9000);
  for (std::size_t sges = 1; sges <= limits::kSgesPerRequest; ++sges) {
    SCOPED_TRACE(sges);
    from.fill_pattern(static_cast<unsigned>(sges));
    const std::size_t size = sges * 277;
    post_recv(*pair.b.qp, sges, cut(into, 9000, limits::kSgesPerRequest + 1 - sges));
    post(*pair.a.qp, wr_send(sges), cut(from, size, sges));
    take_success(*pair.a.send_cq, sges);
    EXPECT_EQ(take_success(*pair.b.recv_cq, sges).byte_len, size);
    ASSERT_EQ(into.copy(0, size), from.copy(0, size));
  }
  EXPECT_TRUE(into.guards_intact());
}

TEST_P(Operations, SendsThatComeBeforeTheirReceivesWaitForThem) {
  constexpr std::size_t kSizes[] = {10, 100000, 0, 3000, 70000};
  Memory from(pair.host, 100000);
  Memory into(pair.host, 100000);
  from.fill_pattern(1);
  for (std::uint64_t id = 0; id < std::size(kSizes); ++id) {
    post(*pair.a.qp, wr_send(id), {from.sge(0, kSizes[id])});
  }
  for (std::uint64_t id = 0; id < std::size(kSizes); ++id) {
    SCOPED_TRACE(kSizes[id]);
    EXPECT_TRUE(quiet(*pair.b.recv_cq));
    std::ranges::fill(into.bytes(), std::uint8_t{0});
    post_recv(*pair.b.qp, id, {into.sge()});
    EXPECT_EQ(take_success(*pair.b.recv_cq, id).byte_len, kSizes[id]);
    ASSERT_EQ(into.copy(0, kSizes[id]), from.copy(0, kSizes[id]));
    take_success(*pair.a.send_cq, id);
  }
  EXPECT_TRUE(into.guards_intact());
}

TEST_P(Operations, WritesAndReadsMoveTheSameOctetsInBothDirections) {
  constexpr std::size_t kMost = 200000;
  Memory local(pair.host, kMost);
  Memory remote(pair.host, kMost);
  std::uint64_t id = 0;
  for (const std::size_t size : {0U, 1U, 7U, 8U, 508U, 1400U, 4096U, 16370U, 64754U, 200000U}) {
    for (const std::size_t sges : {1U, 2U, 5U, limits::kSgesPerRequest}) {
      for (Endpoint* side : {&pair.a, &pair.b}) {
        SCOPED_TRACE(std::to_string(size) + " octets in " + std::to_string(sges));
        local.fill_pattern(static_cast<unsigned>(++id));
        post(*side->qp, wr_write(id, remote.rkey(), remote.to()), cut(local, size, sges));
        take_success(*side->send_cq, id);
        const auto sent = local.copy(0, size);
        local.fill_pattern(12345);
        // The Read comes after the Write on the same stream, so it must see it.
        post(*side->qp, wr_read(id, remote.rkey(), remote.to()), cut(local, size, sges));
        EXPECT_EQ(take_success(*side->send_cq, id).byte_len, size);
        ASSERT_EQ(local.copy(0, size), sent);
      }
    }
  }
  EXPECT_TRUE(remote.guards_intact());
  EXPECT_TRUE(local.guards_intact());
}

TEST_P(Operations, ImmediateDataAtomicsAndInvalidationWork) {
  Memory words(pair.host, 64);
  Memory result(pair.host, 16);
  post_empty_recvs(*pair.b.qp, 1, 3);
  words.store64(0, 40);
  post(*pair.a.qp, wr_fetch_add(1, words.rkey(), words.to(), 2), {result.sge(0, 8)});
  post(*pair.a.qp, wr_cmp_swap(2, words.rkey(), words.to(), 42, 7), {result.sge(8, 8)});
  EXPECT_EQ(take_success(*pair.a.send_cq, 1).op, WcOp::kFetchAdd);
  EXPECT_EQ(take_success(*pair.a.send_cq, 2).op, WcOp::kCmpSwap);
  EXPECT_EQ(result.load64(0), 40U);
  EXPECT_EQ(result.load64(8), 42U);
  EXPECT_EQ(words.load64(0), 7U);

  post(*pair.a.qp, wr_immediate(3, 0x1122334455667788), std::vector<Sge>{});
  EXPECT_EQ(take_success(*pair.b.recv_cq, 1).imm_data, 0x1122334455667788U);
  post(*pair.a.qp, wr_write_imm(4, words.rkey(), words.to(8), 99), {result.sge()});
  const WorkCompletion wc = take_success(*pair.b.recv_cq, 2);
  EXPECT_EQ(wc.op, WcOp::kRecvWithImm);
  EXPECT_EQ(wc.imm_data, 99U);
  EXPECT_EQ(wc.byte_len, 16U);
  EXPECT_EQ(words.copy(8, 16), result.copy(0, 16));
  take_success(*pair.a.send_cq, 3);
  take_success(*pair.a.send_cq, 4);
}

TEST_P(Operations, InlineDataMayChangeAsSoonAsItIsPosted) {
  Memory into(pair.host, 64);
  std::uint8_t bytes[48];
  std::iota(std::begin(bytes), std::end(bytes), std::uint8_t{1});
  Sge unregistered{.addr = reinterpret_cast<std::uintptr_t>(bytes), .length = 48, .lkey = 0};
  ASSERT_GE(pair.a.qp->caps().max_inline_bytes, 48U);
  post_recv(*pair.b.qp, 1, {into.sge()});
  post(*pair.a.qp, wr_send(1, SendFlags::kSignaled | SendFlags::kInline), {unregistered});
  std::fill(std::begin(bytes), std::end(bytes), std::uint8_t{0});
  take_success(*pair.b.recv_cq, 1);
  for (std::size_t i = 0; i < 48; ++i) EXPECT_EQ(into.data()[i], i + 1);
}

TEST(Loopback, MessagesUpTo64MiBArriveWhole) {
  constexpr std::size_t kSize = 64U << 20U;
  for (const bool crc : {true, false}) {
    Config config = plain_config();
    config.crc = crc;
    Pair pair(config);
    Memory from(pair.host, kSize);
    Memory into(pair.host, kSize);
    from.fill_pattern(crc);
    test::post(*pair.a.qp, wr_write(1, into.rkey(), into.to()), {from.sge()});
    test::post(*pair.a.qp, wr_read(2, into.rkey(), into.to()), {from.sge(0, 8)});
    take_success(*pair.a.send_cq, 1);
    take_success(*pair.a.send_cq, 2);
    EXPECT_TRUE(std::ranges::equal(from.bytes(), into.bytes()));
    std::ranges::fill(into.bytes(), std::uint8_t{0});
    test::post_recv(*pair.b.qp, 3, {into.sge()});
    test::post(*pair.a.qp, wr_send(3), {from.sge()});
    EXPECT_EQ(take_success(*pair.b.recv_cq, 3).byte_len, kSize);
    EXPECT_TRUE(std::ranges::equal(from.bytes(), into.bytes()));
    std::ranges::fill(into.bytes(), std::uint8_t{0});
    test::post(*pair.b.qp, wr_read(4, from.rkey(), from.to()), {into.sge()});
    EXPECT_EQ(take_success(*pair.b.send_cq, 4).byte_len, kSize);
    EXPECT_TRUE(std::ranges::equal(from.bytes(), into.bytes()));
    EXPECT_TRUE(into.guards_intact());
  }
}

TEST(Loopback, UnsignaledRequestsCompleteOnlyWhenTheyFail) {
  Pair pair;
  Memory memory(pair.host, 64);
  for (std::uint64_t id = 1; id <= 20; ++id) {
    const SendFlags flags = id % 5 == 0 ? SendFlags::kSignaled : SendFlags::kNone;
    test::post(*pair.a.qp, wr_write(id, memory.rkey(), memory.to(), flags), {memory.sge(0, 8)});
  }
  for (std::uint64_t id = 5; id <= 20; id += 5) take_success(*pair.a.send_cq, id);
  EXPECT_TRUE(quiet(*pair.a.send_cq, milliseconds(20)));
  test::post(*pair.a.qp, wr_read(21, memory.rkey() ^ 0x5a5a5a00U, 0, SendFlags::kNone),
             {memory.sge(0, 8)});
  const WorkCompletion failed = take(*pair.a.send_cq);
  EXPECT_EQ(failed.wr_id, 21U);
  EXPECT_EQ(failed.status, WcStatus::kRemoteAccess);
  EXPECT_EQ(failed.vendor_error, 0x000100U);
}

TEST(Loopback, SendQueueIsUsableAgainAfterUnsignaledRequests) {
  EndpointOptions small;
  small.max_send_wr = 8;
  Pair pair(plain_config(), small);
  Memory memory(pair.host, 64);
  for (std::uint64_t id = 1; id <= 1000; ++id) {
    SendWr wr = wr_write(id, memory.rkey(), memory.to(),
                         id % 4 == 0 ? SendFlags::kSignaled : SendFlags::kNone);
    const Sge sge = memory.sge(0, 8);
    wr.sges = std::span(&sge, 1);
    ASSERT_TRUE(eventually([&] {
      WorkCompletion wc;
      (void)pair.a.send_cq->poll(std::span(&wc, 1));
      const Status posted = pair.a.qp->post_send(wr);
      if (!posted && posted.error() != Error::kNoSpace) give_up("post", posted.error(), __LINE__);
      return posted.has_value();
    }));
  }
}

TEST(Loopback, FencedRequestSeesWhatTheReadBeforeItBrought) {
  Pair pair;
  Memory source(pair.host, 4096);
  Memory local(pair.host, 4096);
  Memory target(pair.host, 4096);
  for (unsigned round = 1; round <= 50; ++round) {
    source.fill_pattern(round);
    test::post(*pair.a.qp, wr_read(1, source.rkey(), source.to()), {local.sge()});
    test::post(*pair.a.qp,
               wr_write(2, target.rkey(), target.to(), SendFlags::kSignaled | SendFlags::kFence),
               {local.sge()});
    test::post(*pair.a.qp, wr_read(3, target.rkey(), target.to()), {local.sge(0, 8)});
    take_success(*pair.a.send_cq, 1);
    take_success(*pair.a.send_cq, 2);
    take_success(*pair.a.send_cq, 3);
    ASSERT_EQ(target.copy(0, 4096), source.copy(0, 4096));
  }
}

TEST(Loopback, NamesAndNumbersOfAConnectionAgreeOnBothSides) {
  ConnectOptions how;
  how.active.private_data = {1, 2, 3};
  how.active.ird = 5;
  how.active.ord = 6;
  how.passive.ird = 7;
  how.passive.ord = 4;
  Pair pair(plain_config(), {}, {}, how);
  const ConnectionInfo a = pair.a.connection->info();
  const ConnectionInfo b = pair.b.connection->info();
  EXPECT_TRUE(a.initiator);
  EXPECT_FALSE(b.initiator);
  EXPECT_LE(a.ord, b.ird);
  EXPECT_LE(b.ord, a.ird);
  EXPECT_EQ(a.crc, b.crc);
  EXPECT_EQ(pair.a.connection->local_address().text(), pair.b.connection->peer_address().text());
  EXPECT_EQ(pair.a.connection->peer_address().text(), pair.b.connection->local_address().text());
  EXPECT_EQ(pair.a.qp->query().ird, a.ird);
  EXPECT_EQ(pair.a.qp->query().ord, a.ord);
  EXPECT_EQ(pair.a.qp->state(), QpState::kRts);
  EXPECT_EQ(pair.a.connection->qp(), pair.a.qp);
}

}  // namespace
}  // namespace weft::test
