// RDMAP over lwIP, two hosts in one program.
#include <numeric>

#include <lwip/tcp.h>
#include "pair.h"

namespace {
bool refuse_connections = false;
unsigned refuse_percent = 0;
unsigned writes_refused = 0;
}  // namespace

// The linker puts these before lwIP's (--wrap): as if lwIP had no memory now and then.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" tcp_pcb* __real_tcp_new();
extern "C" tcp_pcb* __wrap_tcp_new() { return refuse_connections ? nullptr : __real_tcp_new(); }
extern "C" err_t __real_tcp_write(tcp_pcb* pcb, const void* octets, u16_t size, u8_t flags);
extern "C" err_t __wrap_tcp_write(tcp_pcb* pcb, const void* octets, u16_t size, u8_t flags) {
  if (weft::testing::World::random() % 100 < refuse_percent) {
    ++writes_refused;
    return ERR_MEM;
  }
  return __real_tcp_write(pcb, octets, size, flags);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace weft::testing {
namespace {

using Phase = rddp::Endpoint::Phase;

void fill(std::vector<std::uint8_t>& memory, std::uint8_t seed) {
  std::iota(memory.begin(), memory.end(), seed);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] ^= static_cast<std::uint8_t>(i >> 8U);
}

std::string text(std::span<const std::uint8_t> octets) { return {octets.begin(), octets.end()}; }

TEST(LwipTransport, WriteLandsInThePeersMemory) {
  Pair pair;
  ASSERT_TRUE(pair.establish());
  fill(pair.client.memory, 3);
  ASSERT_TRUE(pair.client.post(SendOp::kWrite, 0, 50000, pair.server.stag, 1000));
  ASSERT_TRUE(pair.client.post(SendOp::kImmediate, 0, 0, {}, 0, 77, 2));
  ASSERT_TRUE(pair.server.post_recv(0, 0));
  ASSERT_TRUE(pair.wait(pair.server, 1));
  EXPECT_TRUE(pair.server.done[0].immediate);
  EXPECT_EQ(pair.server.done[0].imm_data, 77U);
  EXPECT_TRUE(std::equal(pair.client.memory.begin(), pair.client.memory.begin() + 50000,
                         pair.server.memory.begin() + 1000));
  ASSERT_TRUE(pair.wait(pair.client, 2));
  EXPECT_EQ(pair.client.done[0].status, WcStatus::kSuccess);
}

TEST(LwipTransport, CarriesPrivateDataBothWays) {
  PairConfig config;
  config.client_data = "from the client";
  config.server_data = "from the server";
  Pair pair(config);
  ASSERT_TRUE(pair.establish());
  EXPECT_EQ(text(pair.client.endpoint->private_data()), "from the server");
  EXPECT_EQ(text(pair.server.endpoint->private_data()), "from the client");
}

TEST(LwipTransport, RejectionCarriesPrivateData) {
  PairConfig config;
  config.reject = true;
  config.server_data = "no";
  Pair pair(config);
  EXPECT_FALSE(pair.establish());
  EXPECT_EQ(pair.client.endpoint->phase(), Phase::kRefused);
  EXPECT_EQ(text(pair.client.endpoint->private_data()), "no");
}

TEST(LwipTransport, ClosingInGoodOrderEndsBothSides) {
  Pair pair;
  ASSERT_TRUE(pair.establish());
  ASSERT_TRUE(pair.server.post_recv(0, 100));
  ASSERT_TRUE(pair.run_until([&] { return !pair.client.endpoint->tx_pending(); }));
  pair.client.endpoint->close();
  pair.client.connection->progress();
  ASSERT_TRUE(pair.run_until(
      [&] { return pair.client.connection->closed() && pair.server.connection->closed(); }));
  EXPECT_EQ(pair.server.endpoint->phase(), Phase::kDown);
  ASSERT_EQ(pair.server.done.size(), 1U);
  EXPECT_EQ(pair.server.done[0].status, WcStatus::kFlushed);
}

TEST(LwipTransport, WrongStagEndsTheConnectionWithTheTerminateOfTheRfc) {
  Pair pair;
  ASSERT_TRUE(pair.establish());
  ASSERT_TRUE(pair.client.post(SendOp::kWrite, 0, 100, Stag{0x12345678}, 0));
  ASSERT_TRUE(pair.run_until([&] { return pair.client.endpoint->phase() == Phase::kDown; }));
  EXPECT_TRUE(pair.client.endpoint->terminated_by_peer());
  EXPECT_EQ(pair.client.endpoint->terminate_code(), term::kDdpInvalidStag);
}

// The STag of memory that no peer may reach is known to it all the same: of a Read's sink, say.
TEST(LwipTransport, APeerInvalidatesOnlyWhatItMayReach) {
  for (const Access access : {Access::kNone, Access::kRemoteRead, Access::kRemoteWrite}) {
    SCOPED_TRACE(static_cast<std::uint32_t>(access));
    Pair pair;
    ASSERT_TRUE(pair.establish());
    std::vector<std::uint8_t> octets(64);
    auto region = pair.server.domain->add(octets.data(), octets.size(), 0, access);
    ASSERT_TRUE(region);
    ASSERT_TRUE(pair.server.post_recv(0, 64));
    ASSERT_TRUE(pair.client.post(SendOp::kSendInvalidate, 0, 1, *region));
    ASSERT_TRUE(pair.wait(pair.server, 1));
    const bool reachable = access != Access::kNone;
    EXPECT_EQ(pair.server.done[0].status == WcStatus::kSuccess, reachable);
    const proto::MemoryEntry* entry = pair.server.domain->table().find(*region);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->stag.load() == 0, reachable) << "0: it is no longer valid";
    if (reachable) continue;
    ASSERT_TRUE(pair.run_until([&] { return pair.client.endpoint->phase() == Phase::kDown; }));
    EXPECT_EQ(pair.client.endpoint->terminate_code(), term::kRdmapCannotInvalidateProtection);
  }
}

// The peer goes, and its reset is lost.
TEST(LwipTransport, APeerThatIsGoneIsNoticedByAskingIt) {
  for (const bool asks : {true, false}) {
    SCOPED_TRACE(asks);
    PairConfig config;
    if (asks) config.connection.keepalive = std::chrono::seconds(2);
    Pair pair(config);
    ASSERT_TRUE(pair.establish());
    // Nothing is under way any more that would be sent again, and answered.
    EXPECT_FALSE(pair.run_until([] { return false; }, std::chrono::seconds(1)));
    pair.world.set_faults({.drop_percent = 100});
    pair.world.forget(*pair.server.connection);
    pair.server.connection = std::make_unique<lwip::Connection>(*pair.server.endpoint);
    pair.world.set_faults({});
    EXPECT_EQ(pair.run_until([&] { return pair.client.endpoint->phase() == Phase::kDown; },
                             std::chrono::seconds(10)),
              asks);
  }
}

// Time on the virtual clock that 1.4 MB take over a link without faults.
Duration time_to_write(bool aligned) {
  constexpr std::uint32_t kBytes = 1'400'000;
  PairConfig config;
  config.memory_bytes = kBytes;
  config.connection.aligned = aligned;
  Pair pair(config);
  EXPECT_TRUE(pair.establish());
  const Instant start = World::now();
  EXPECT_TRUE(pair.client.post(SendOp::kWrite, 0, kBytes, pair.server.stag, 0));
  EXPECT_TRUE(pair.wait(pair.client, 1));
  return World::now() - start;
}

// Segments that begin with FPDUs, but as many of them on the way: with fewer than two, each would
// wait for a delayed acknowledgment.
TEST(LwipTransport, AnAlignedSenderKeepsThePipeFull) {
  const Duration packed = time_to_write(false);
  const Duration aligned = time_to_write(true);
  EXPECT_LT(aligned, 2 * packed) << aligned.count() << " " << packed.count();
}

struct Reordering {
  bool aligned;
  std::uint32_t percent;
};
class LwipAhead : public ::testing::TestWithParam<Reordering> {};

// Markers and CRC. An aligned sender: what arrives ahead of its turn is placed at once. One that
// fills its segments: only FPDUs that lie in one segment are. Either way every octet is right.
TEST_P(LwipAhead, SegmentsAheadOfTheirTurnArePlaced) {
  constexpr std::uint32_t kBytes = 1'400'000;
  PairConfig config;
  config.markers = true;
  config.memory_bytes = kBytes;
  config.connection.aligned = GetParam().aligned;
  config.world.faults.reorder_percent = GetParam().percent;
  Pair pair(config);
  ASSERT_TRUE(pair.establish());
  fill(pair.client.memory, 7);
  ASSERT_TRUE(pair.client.post(SendOp::kWrite, 0, kBytes, pair.server.stag, 0));
  ASSERT_TRUE(pair.wait(pair.client, 1));
  EXPECT_EQ(pair.client.memory, pair.server.memory);
  const auto& ahead = pair.server.connection->ahead();
  RecordProperty("segments_ahead", static_cast<int>(ahead.segments));
  RecordProperty("segments_placed", static_cast<int>(ahead.segments_placed));
  EXPECT_GE(ahead.segments, 10U);
  if (!GetParam().aligned) return;
  EXPECT_GE(ahead.segments_placed * 100, ahead.segments * 90)
      << ahead.segments_placed << " of " << ahead.segments;
}

INSTANTIATE_TEST_SUITE_P(Rates, LwipAhead,
                         ::testing::Values(Reordering{true, 2}, Reordering{true, 10},
                                           Reordering{true, 30}, Reordering{false, 2},
                                           Reordering{false, 10}, Reordering{false, 30}),
                         [](const auto& rate) {
                           return std::string(rate.param.aligned ? "Aligned" : "Packed") +
                                  std::to_string(rate.param.percent);
                         });

// While lwIP may still read a region it cannot be taken away; afterwards it can.
TEST(LwipTransport, ARegionOnItsWayCannotBeRemoved) {
  Pair pair;
  ASSERT_TRUE(pair.establish());
  ASSERT_TRUE(pair.client.write_region(pair.client.stag, 20000, pair.server.stag));
  const Status early = pair.client.domain->remove(pair.client.stag);
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error(), Error::kBusy);
  ASSERT_TRUE(pair.wait(pair.client, 1));
  EXPECT_TRUE(pair.client.domain->remove(pair.client.stag).has_value());
}

// A Write of a whole message from a method; on a board it takes more FPDUs than memory would.
TEST(LwipTransport, WhatAMethodGivesIsSent) {
  for (const bool markers : {false, true}) {
    SCOPED_TRACE(markers);
    PairConfig config;
    config.markers = markers;
    Pair pair(config);
    ASSERT_TRUE(pair.establish());
    constexpr std::uint32_t kBytes = 5000;
    proto::MemoryMethod method{};
    method.get = [](void*, std::uint64_t to, std::uint8_t* octets, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) octets[i] = static_cast<std::uint8_t>((to + i) * 7);
      return 0;
    };
    proto::MemorySpec spec;
    spec.addr = reinterpret_cast<std::uint8_t*>(&method);
    spec.length = kBytes;
    spec.access = proto::kByMethod | proto::kGives;
    const auto stag = pair.client.domain->add(spec);
    ASSERT_TRUE(stag.has_value());
    ASSERT_TRUE(pair.client.write_region(*stag, kBytes, pair.server.stag));
    ASSERT_TRUE(pair.wait(pair.client, 1));
    EXPECT_EQ(pair.client.done[0].status, WcStatus::kSuccess);
    for (std::uint32_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(pair.server.memory[i], static_cast<std::uint8_t>(i * 7)) << i;
    }
  }
}

// With an unaligned sender an FPDU has left in part then: its rest follows, and nothing behind it.
TEST(LwipTransport, ClosingInTheMiddleOfAWriteEndsOnAnFpduBorder) {
  for (const bool markers : {false, true}) {
    SCOPED_TRACE(markers);
    PairConfig config;
    config.markers = markers;
    config.connection.aligned = false;
    Pair pair(config);
    ASSERT_TRUE(pair.establish());
    fill(pair.client.memory, 5);
    ASSERT_TRUE(pair.client.post(SendOp::kWrite, 0, 60000, pair.server.stag, 0));
    pair.client.endpoint->close();
    pair.client.connection->progress();
    ASSERT_TRUE(pair.run_until(
        [&] { return pair.client.connection->closed() && pair.server.connection->closed(); }));
    pair.client.collect();
    ASSERT_EQ(pair.client.done.size(), 1U);
    EXPECT_EQ(pair.client.done[0].status, WcStatus::kFlushed);
    // The peer is in the middle of a message, which is no fault of framing.
    EXPECT_FALSE(pair.server.endpoint->terminated());
    EXPECT_EQ(pair.server.endpoint->counters()->crc_errors.get(), 0U);
    EXPECT_NE(pair.server.memory[1000], 0);
    EXPECT_EQ(pair.server.memory[59999], 0);
  }
}

// As much as MPA allows, in both frames.
TEST(LwipTransport, CarriesAsMuchPrivateDataAsThereMayBe) {
  PairConfig config;
  config.endpoint.private_data_kept = 512;
  config.client_data = std::string(512 - 4, 'c');  // the first four octets are those of RFC 6581
  config.server_data = std::string(512 - 4, 's');
  Pair pair(config);
  ASSERT_TRUE(pair.establish());
  EXPECT_EQ(text(pair.client.endpoint->private_data()), config.server_data);
  EXPECT_EQ(text(pair.server.endpoint->private_data()), config.client_data);
}

// Sends of every length up to one marker's distance and more, so that markers stand everywhere.
TEST(LwipTransport, MessagesOfEveryLengthArriveWhereverMarkersStand) {
  for (const bool aligned : {true, false}) {
    SCOPED_TRACE(aligned);
    PairConfig config;
    config.markers = true;
    config.connection.aligned = aligned;
    Pair pair(config);
    ASSERT_TRUE(pair.establish());
    fill(pair.client.memory, 9);
    for (std::uint32_t size = 0; size < 600; ++size) {
      ASSERT_TRUE(pair.server.post_recv(1, size));
      ASSERT_TRUE(pair.client.post(SendOp::kSend, size, size));
      ASSERT_TRUE(pair.wait(pair.server, size + 1));
      ASSERT_EQ(pair.server.done[size].status, WcStatus::kSuccess) << size;
      ASSERT_EQ(pair.server.done[size].byte_len, size);
      ASSERT_TRUE(std::equal(pair.client.memory.begin() + size,
                             pair.client.memory.begin() + 2 * size, pair.server.memory.begin() + 1))
          << size;
      EXPECT_EQ(pair.server.memory[size + 1], 0) << size;
      ASSERT_TRUE(pair.wait(pair.client, size + 1));
    }
  }
}

TEST(LwipTransport, MessagesWithoutOctetsComplete) {
  for (const bool markers : {false, true}) {
    SCOPED_TRACE(markers);
    PairConfig config;
    config.markers = markers;
    Pair pair(config);
    ASSERT_TRUE(pair.establish());
    ASSERT_TRUE(pair.server.post_recv(0, 0));
    // A Write and a Read of nothing name no memory, RFC 5040 section 5.2.
    ASSERT_TRUE(pair.client.post(SendOp::kWrite, 0, 0, Stag{0x12345678}, 77));
    ASSERT_TRUE(pair.client.post(SendOp::kRead, 0, 0, Stag{0x12345678}, 77));
    ASSERT_TRUE(pair.client.post(SendOp::kSend, 0, 0));
    ASSERT_TRUE(pair.wait(pair.client, 3));
    ASSERT_TRUE(pair.wait(pair.server, 1));
    for (const auto& done : pair.client.done) EXPECT_EQ(done.status, WcStatus::kSuccess);
    EXPECT_EQ(pair.server.done[0].byte_len, 0U);
  }
}

// lwIP may have no memory for a piece in the middle of an FPDU: its rest follows later.
TEST(LwipTransport, WritesThatLwipHasNoMemoryForAreMadeLater) {
  for (const bool aligned : {true, false}) {
    SCOPED_TRACE(aligned);
    PairConfig config;
    config.markers = true;
    config.connection.aligned = aligned;
    Pair pair(config);
    ASSERT_TRUE(pair.establish());
    fill(pair.client.memory, 6);
    refuse_percent = 30;
    writes_refused = 0;
    ASSERT_TRUE(pair.client.post(SendOp::kWrite, 0, 60000, pair.server.stag, 0));
    const bool came = pair.wait(pair.client, 1, std::chrono::hours(1));
    refuse_percent = 0;
    ASSERT_TRUE(came);
    EXPECT_GE(writes_refused, 10U);
    EXPECT_EQ(pair.client.done[0].status, WcStatus::kSuccess);
    EXPECT_TRUE(std::equal(pair.client.memory.begin(), pair.client.memory.begin() + 60000,
                           pair.server.memory.begin()));
  }
}

TEST(LwipTransport, AConnectThatLwipHasNoMemoryForMayBeTriedAgain) {
  Pair pair;
  refuse_connections = true;
  const Status begun =
      pair.client.connection->connect(nullptr, pair.world.address(1), Pair::kPort, {});
  refuse_connections = false;
  ASSERT_FALSE(begun.has_value());
  EXPECT_EQ(begun.error(), Error::kNoMemory);
  EXPECT_TRUE(pair.establish());
}

// The connection is reset from within lwIP's callbacks: lwIP must not go on with what is freed. A
// sanitizer sees it.
TEST(LwipTransport, AResetWhileItReceivesFreesTheConnectionOnce) {
  for (const std::uint32_t size : {10U, 20000U}) {
    SCOPED_TRACE(size);
    Pair pair;
    ASSERT_TRUE(pair.establish());
    ASSERT_TRUE(pair.client.post(SendOp::kWrite, 0, size, pair.server.stag, 0));
    ASSERT_TRUE(pair.client.post(SendOp::kWrite, 0, size, pair.server.stag, 0));
    pair.server.endpoint->abort();  // and no progress(): the next segment finds it so
    ASSERT_TRUE(pair.run_until(
        [&] { return pair.client.connection->closed() && pair.server.connection->closed(); }));
    EXPECT_EQ(pair.client.endpoint->phase(), Phase::kDown);
    EXPECT_EQ(pair.server.endpoint->phase(), Phase::kDown);
  }
}

// As a board's agent does: a fresh caller takes the place of one that was there, in the middle of
// what that one sent.
TEST(LwipTransport, ACallerMayTakeThePlaceOfAnother) {
  Pair pair;
  ASSERT_TRUE(pair.establish());
  ASSERT_TRUE(pair.client.post(SendOp::kWrite, 0, 60000, pair.server.stag, 0));
  ASSERT_TRUE(pair.server.post(SendOp::kWrite, 0, 60000, pair.client.stag, 0));
  ASSERT_TRUE(pair.replace_client());
  ASSERT_TRUE(pair.run_until([&] { return pair.client.connection->closed(); }));
  EXPECT_EQ(pair.client.endpoint->phase(), Phase::kDown);
  ASSERT_TRUE(pair.newcomer.post(SendOp::kWrite, 0, 20000, pair.server.stag, 0));
  ASSERT_TRUE(pair.wait(pair.newcomer, 1));
  EXPECT_EQ(pair.newcomer.done[0].status, WcStatus::kSuccess);
}

struct Setting {
  bool crc, markers, aligned;
  std::uint32_t drop, reorder, corrupt;
  std::string name;
};
class LwipSettings : public ::testing::TestWithParam<Setting> {};

TEST_P(LwipSettings, EveryOperationMovesEveryOctet) {
  PairConfig config;
  config.crc = GetParam().crc;
  config.markers = GetParam().markers;
  config.connection.aligned = GetParam().aligned;
  config.world.seed = 11;
  config.world.faults = {GetParam().drop, GetParam().drop, GetParam().reorder, GetParam().corrupt};
  Pair pair(config);
  ASSERT_TRUE(pair.establish());
  fill(pair.client.memory, 5);
  fill(pair.server.memory, 99);
  const std::vector<std::uint8_t> client = pair.client.memory, server = pair.server.memory;
  constexpr std::uint32_t kBytes = 20000;

  ASSERT_TRUE(pair.server.post_recv(20000, kBytes));
  ASSERT_TRUE(pair.client.post(SendOp::kWrite, 0, kBytes, pair.server.stag, 0));
  ASSERT_TRUE(pair.client.post(SendOp::kSend, 20000, kBytes));
  ASSERT_TRUE(pair.client.post(SendOp::kRead, 40000, kBytes, pair.server.stag, 40000));
  ASSERT_TRUE(pair.wait(pair.server, 1));
  ASSERT_TRUE(pair.wait(pair.client, 3));
  for (const auto& done : pair.client.done) EXPECT_EQ(done.status, WcStatus::kSuccess);
  EXPECT_EQ(pair.server.done[0].byte_len, kBytes);
  EXPECT_TRUE(std::equal(client.begin(), client.begin() + 40000, pair.server.memory.begin()));
  EXPECT_TRUE(std::equal(server.begin() + 40000, server.begin() + 60000,
                         pair.client.memory.begin() + 40000));

  // And what the server starts.
  pair.client.done.clear();
  pair.server.done.clear();
  ASSERT_TRUE(pair.client.post_recv(0, 8));
  ASSERT_TRUE(pair.server.post(SendOp::kWriteImm, 40000, kBytes, pair.client.stag, 40000, 5));
  ASSERT_TRUE(pair.server.post(SendOp::kRead, 0, kBytes, pair.client.stag, 0));
  ASSERT_TRUE(pair.wait(pair.client, 1));
  ASSERT_TRUE(pair.wait(pair.server, 2));
  EXPECT_EQ(pair.client.done[0].imm_data, 5U);
  EXPECT_TRUE(std::equal(server.begin() + 40000, server.begin() + 60000,
                         pair.client.memory.begin() + 40000));
}

INSTANTIATE_TEST_SUITE_P(All, LwipSettings,
                         ::testing::Values(Setting{true, false, true, 0, 0, 0, "Crc"},
                                           Setting{false, false, true, 0, 0, 0, "NoCrc"},
                                           Setting{true, true, true, 0, 0, 0, "Markers"},
                                           Setting{false, true, false, 0, 0, 0,
                                                   "MarkersNoCrcPacked"},
                                           Setting{true, false, false, 0, 0, 0, "Packed"},
                                           Setting{true, true, true, 3, 0, 0, "LossAndDuplicates"},
                                           Setting{true, true, true, 0, 20, 0, "Reordering"},
                                           Setting{true, true, false, 2, 20, 2, "Everything"}),
                         [](const auto& setting) { return setting.param.name; });

}  // namespace
}  // namespace weft::testing
