// Random work over a hostile byte stream.
//
// WEFT_SEED=n replays one run; WEFT_SEEDS=f makes f times as many.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "seeds.h"
#include "workload.h"

namespace weft::testing {
namespace {

using proto::StreamEnd;

// Everything about a run follows from its seed.
SimConfig random_config(std::uint64_t seed) {
  Rng rng(seed * 7919 + 1);
  SimConfig c;
  c.seed = seed;
  const auto revision = static_cast<std::uint8_t>(rng.one_in(4) ? 1 : 2);
  for (auto& offer : c.offer) {
    offer.crc = rng.one_in(2);
    offer.markers = rng.one_in(3);
    offer.revision = revision;
    offer.ird = static_cast<std::uint16_t>(rng.u32(0, 5));
    offer.ord = static_cast<std::uint16_t>(rng.u32(0, 5));
  }
  if (revision == 1) {
    // Nothing is negotiated: the applications have agreed.
    c.offer[0].ord = std::min(c.offer[0].ord, c.offer[1].ird);
    c.offer[1].ord = std::min(c.offer[1].ord, c.offer[0].ird);
  }
  c.offer[0].peer_to_peer = revision == 2 && !rng.one_in(3);
  c.offer[0].rtr_read = rng.one_in(2);
  c.offer[0].rtr_write = !c.offer[0].rtr_read || rng.one_in(2);
  for (auto& ulpdu : c.max_ulpdu) {
    constexpr std::uint32_t kSizes[] = {128, 129, 130, 131, 511, 1442, 8942, 16384, 64768};
    ulpdu = rng.one_in(4) ? rng.u32(128, kMaxUlpdu) : kSizes[rng.size(0, 8)];
  }
  for (int i = 0; i < 2; ++i) {
    if (rng.one_in(2)) c.max_ulpdu_known[i] = std::max(c.max_ulpdu[i], 16398U);
  }
  constexpr std::size_t kChunks[] = {1, 7, 100, 1460, 9000, 70000};
  c.chunk_max = kChunks[rng.size(0, 5)];
  c.stalls = rng.one_in(3);
  c.short_of_batches = rng.one_in(3);
  c.hold_completions = rng.one_in(4);
  for (auto& patience : c.patience) {
    if (rng.one_in(2)) patience = std::chrono::microseconds(rng.between(1, 20000));
  }
  c.late_reads = rng.one_in(3);
  c.late_receives = rng.one_in(3);
  c.prepares = rng.one_in(2);
  c.endpoint.arena_bytes = 3U << 20U;
  c.endpoint.secret = seed;
  return c;
}

WorkloadConfig random_work(const SimConfig& c) {
  Rng rng(c.seed * 104729 + 3);
  WorkloadConfig w;
  w.ops[0] = rng.size(1, 40);
  w.ops[1] = rng.size(0, 40);
  constexpr std::size_t kSizes[] = {64, 1500, 6000, 20000, 60000};
  w.size_max = kSizes[rng.size(0, c.chunk_max <= 7 ? 2 : 4)];
  if (w.size_max > 6000) w.ops[0] = std::min<std::size_t>(w.ops[0], 16);
  if (w.size_max > 6000) w.ops[1] = std::min<std::size_t>(w.ops[1], 16);
  return w;
}

// After the work is done, or the connection is broken: both sides go, nobody is left waiting.
void end_run(SimPair& net) {
  for (int i = 0; i < 2; ++i) net.side(i).stream().close();
  EXPECT_TRUE(net.run_until_idle());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(net.side(i).down.has_value());
    EXPECT_TRUE(net.socket_closed(i));
    net.side(i).stream().flush_posted();
    net.side(i).flush_receives();
  }
}

TEST(SimPair, RandomWorkCompletesOnceInOrderAndLeavesTheModelsMemory) {
  for_each_seed(60, [&](std::uint64_t seed) {
    const SimConfig config = random_config(seed);
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    Workload work(net, random_work(config));
    EXPECT_TRUE(net.run_until_idle([&] { work.post_some(); }));
    work.expect_all_done();
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(net.side(i).down.has_value());
    end_run(net);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(net.side(i).down->how, StreamEnd::kOrderly);
  });
}

TEST(SimAcks, ACompletedRequestIsPlacedAtThePeer) {
  for_each_seed(60, [&](std::uint64_t seed) {
    SimConfig config = random_config(seed);
    config.acks = true;
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    Workload work(net, random_work(config));
    EXPECT_TRUE(net.run_until_idle([&] { work.post_some(); }));
    work.expect_all_done();
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(net.side(i).down.has_value());
    end_run(net);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(net.side(i).down->how, StreamEnd::kOrderly);
  });
}

// Nothing is lost that its target can take, whatever the cuts and stalls.
TEST(SimUnreliable, WhatCanBeTakenArrives) {
  for_each_seed(40, [&](std::uint64_t seed) {
    SimConfig config = random_config(seed);
    config.unreliable = true;
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    Workload work(net, random_work(config));
    EXPECT_TRUE(net.run_until_idle([&] { work.post_some(); }));
    work.expect_all_done();
    for (int i = 0; i < 2; ++i) {
      EXPECT_FALSE(net.side(i).down.has_value());
      EXPECT_EQ(net.side(i).stream().counters().messages_dropped.get(), 0U);
    }
    end_run(net);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(net.side(i).down->how, StreamEnd::kOrderly);
  });
}

std::uint64_t sum(const proto::OperationCounters& messages) {
  std::uint64_t out = 0;
  for (const auto& of_one : messages) out += of_one.get();
  return out;
}

// Refused Sends, and what was behind them, come again, and each is carried out once.
TEST(SimAcks, SendsThatComeTooEarlyComeAgain) {
  std::uint64_t dropped = 0;
  for_each_seed(30, [&](std::uint64_t seed) {
    SimConfig config = random_config(seed);
    config.acks = config.late_receives = config.refuses_sends = true;
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    Workload work(net, random_work(config));
    EXPECT_TRUE(net.run_until_idle([&] { work.post_some(); }));
    work.expect_all_done();
    for (int i = 0; i < 2; ++i) {
      EXPECT_FALSE(net.side(i).down.has_value());
      dropped += sum(net.side(i).stream().counters().tx_messages) -
                 sum(net.side(1 - i).stream().counters().rx_messages);
    }
    end_run(net);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(net.side(i).down->how, StreamEnd::kOrderly);
  });
  EXPECT_GT(dropped, 0U);
}

void change_paths(SimConfig& config) {
  config.changes_path = true;
  config.late_reads = false;  // octets are read at the end of a path that they were taken for
}

TEST(SimPath, ChangesAtAnyBorderLeaveTheStreamAsItIs) {
  int changes = 0;
  for_each_seed(60, [&](std::uint64_t seed) {
    SimConfig config = random_config(seed);
    change_paths(config);
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    Workload work(net, random_work(config));
    EXPECT_TRUE(net.run_until_idle([&] { work.post_some(); }));
    work.expect_all_done();
    end_run(net);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(net.side(i).down->how, StreamEnd::kOrderly);
      changes += net.path_changes(i);
    }
  });
  EXPECT_GT(changes, 0);
}

void go_in_place(SimConfig& config) {
  config.in_place = true;
  config.late_reads = false;
  for (auto& offer : config.offer) offer.crc = offer.markers = false;
}

TEST(SimInPlace, SmallFpdusLaidAndReadWhereTheyLieLeaveTheStreamAsItIs) {
  std::uint64_t laid = 0;
  std::uint64_t taken = 0;
  for_each_seed(30, [&](std::uint64_t seed) {
    SimConfig config = random_config(seed);
    go_in_place(config);
    config.acks = seed % 3 == 0;
    config.refuses_sends = config.acks && config.late_receives;
    config.unreliable = seed % 3 == 1;
    if (config.unreliable) config.late_receives = false;
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    Workload work(net, random_work(config));
    EXPECT_TRUE(net.run_until_idle([&] { work.post_some(); }));
    work.expect_all_done();
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(net.side(i).down.has_value());
    laid += net.laid();
    taken += net.taken_in_place();
    end_run(net);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(net.side(i).down->how, StreamEnd::kOrderly);
  });
  EXPECT_GT(laid, 0U);
  EXPECT_GT(taken, 0U);
}

// As on a ring beside TCP, which alone has CRC and markers.
TEST(SimInPlace, ChangesOfThePathAtAnyBorderLeaveTheStreamAsItIs) {
  std::uint64_t laid = 0;
  for_each_seed(30, [&](std::uint64_t seed) {
    SimConfig config = random_config(seed);
    if (seed % 2 == 0) go_in_place(config);  // every FPDU may be read in place
    change_paths(config);
    config.in_place = true;
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    Workload work(net, random_work(config));
    EXPECT_TRUE(net.run_until_idle([&] { work.post_some(); }));
    work.expect_all_done();
    end_run(net);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(net.side(i).down->how, StreamEnd::kOrderly);
    laid += net.laid();
  });
  EXPECT_GT(laid, 0U);
}

// Random work on a connection to which `fault` happens at some octet, for each seed.
void run_with_fault(
    const std::function<Fault(Rng&)>& fault,
    const std::function<void(SimConfig&)>& adjust = [](SimConfig&) {}) {
  for_each_seed(40, [&](std::uint64_t seed) {
    SimConfig config = random_config(seed);
    adjust(config);
    Rng rng(seed);
    config.fault = fault(rng);
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    Workload work(net, random_work(config));
    EXPECT_TRUE(net.run_until_idle([&] { work.post_some(); }));
    end_run(net);
    work.expect_consistent_end();
  });
}

// At some octet of either direction.
Fault random_fault(Rng& rng, FaultKind kind) {
  Fault fault;
  fault.kind = kind;
  fault.writer = static_cast<int>(rng.between(0, 1));
  fault.at = rng.between(0, 20000);
  if (kind == FaultKind::kFlip) fault.bits = static_cast<std::uint8_t>(1U << rng.u32(0, 7));
  return fault;
}

TEST(SimPair, ResetAtAnyOctetCompletesEverythingOnce) {
  run_with_fault([](Rng& rng) {
    return random_fault(rng, rng.one_in(2) ? FaultKind::kReset : FaultKind::kTimeout);
  });
}

TEST(SimAcks, ResetOrFinAtAnyOctetCompletesEverythingOnce) {
  run_with_fault(
      [](Rng& rng) {
        return random_fault(rng, rng.one_in(2) ? FaultKind::kReset : FaultKind::kFin);
      },
      [](SimConfig& config) { config.acks = true; });
}

TEST(SimPath, ResetOrFinAtAnyOctetCompletesEverythingOnce) {
  run_with_fault(
      [](Rng& rng) {
        return random_fault(rng, rng.one_in(2) ? FaultKind::kReset : FaultKind::kFin);
      },
      change_paths);
}

TEST(SimInPlace, ResetOrFinAtAnyOctetCompletesEverythingOnce) {
  run_with_fault(
      [](Rng& rng) {
        constexpr FaultKind kKinds[] = {FaultKind::kReset, FaultKind::kFin, FaultKind::kTimeout};
        return random_fault(rng, kKinds[rng.size(0, 2)]);
      },
      go_in_place);
}

TEST(SimPair, FinAtAnyOctetCompletesEverythingOnce) {
  run_with_fault([](Rng& rng) { return random_fault(rng, FaultKind::kFin); });
}

TEST(SimPair, FlippedBitUnderCrcIsNeverDeliveredNorPlaced) {
  run_with_fault([](Rng& rng) { return random_fault(rng, FaultKind::kFlip); },
                 [](SimConfig& config) { config.offer[0].crc = true; });
}

// Without CRC anything may be believed; but memory that was not offered stays untouched (the guards
// of the endpoints) and each request still completes exactly once.
TEST(SimPair, FlippedBitWithoutCrcStillCompletesEverythingOnce) {
  for_each_seed(40, [&](std::uint64_t seed) {
    SimConfig config = random_config(seed);
    config.offer[0].crc = config.offer[1].crc = false;
    config.in_place = seed % 2 == 1;
    Rng rng(seed);
    config.fault = random_fault(rng, FaultKind::kFlip);
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    const WorkloadConfig work = random_work(config);
    constexpr std::size_t kRequests = 10;
    std::size_t posted[2] = {};
    for (int i = 0; i < 2; ++i) {
      for (std::size_t k = 0; k < kRequests; ++k) {
        net.side(i).post_recv(k, net.side(i).take(work.size_max),
                              static_cast<std::uint32_t>(work.size_max));
      }
    }
    net.run_until_idle([&] {
      const int i = net.rng().one_in(2) ? 0 : 1;
      if (posted[i] == kRequests || net.side(i).down) return;
      Endpoint& me = net.side(i);
      const auto size = net.rng().u32(0, static_cast<std::uint32_t>(work.size_max));
      constexpr SendOp kOps[] = {SendOp::kSend, SendOp::kWrite, SendOp::kRead};
      const bool may_read = net.startup(i).result().ord != 0;
      const SendOp op = kOps[net.rng().size(0, may_read ? 2 : 1)];
      Endpoint& peer = net.side(1 - i);
      me.post_send(op, SendFlags::kSignaled, posted[i]++, me.take(size), size, peer.whole(),
                   reinterpret_cast<std::uintptr_t>(peer.take(size)));
    });
    end_run(net);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(net.side(i).sends.size(), posted[i]);
      EXPECT_EQ(net.side(i).recvs.size(), kRequests);
    }
  });
}

TEST(SimPair, CloseOrAbortOrOwnFaultAtAnyMomentCompletesEverythingOnce) {
  for_each_seed(60, [&](std::uint64_t seed) {
    const SimConfig config = random_config(seed);
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    Workload work(net, random_work(config));
    Rng rng(seed);
    std::uint64_t steps = rng.between(0, 400);
    const int i = static_cast<int>(rng.between(0, 1));
    const auto how = rng.between(0, 2);
    EXPECT_TRUE(net.run_until_idle([&] {
      work.post_some();
      if (steps-- != 0) return;
      if (how == 0) net.side(i).stream().close();
      if (how == 1) net.side(i).stream().abort();
      if (how == 2) net.side(i).stream().fail(proto::Violation::kLocalFault);
    }));
    end_run(net);
    work.expect_consistent_end();
  });
}

// Without CRC and markers a large FPDU is placed as it comes. What comes of it after a close
// belongs to nobody: its receive has been flushed.
TEST(SimClosing, PayloadUnderWayIsNeitherPlacedNorDeliveredAfterTheFlush) {
  for (const SendOp op : {SendOp::kSend, SendOp::kRead}) {
    SimConfig config;
    for (auto& offer : config.offer) offer.crc = false;
    config.offer[0].ird = config.offer[1].ird = config.offer[0].ord = config.offer[1].ord = 1;
    config.max_ulpdu[0] = config.max_ulpdu[1] = 30000;
    config.chunk_max = 100;
    SimPair net(config);
    ASSERT_TRUE(net.establish());
    // The closing side receives 20000 octets: as a Send of the server, or as a Read's answer.
    Endpoint& me = net.client();
    Endpoint& peer = net.server();
    constexpr std::uint32_t kSize = 20000;
    std::uint8_t* const sink = me.take(kSize);
    std::uint8_t* const source = peer.take(kSize);
    std::memset(source, 0x11, kSize);
    me.post_send(SendOp::kWrite, SendFlags::kNone, 7, nullptr, 0, peer.whole(), 0);
    if (op == SendOp::kRead) {
      me.post_send(SendOp::kRead, SendFlags::kSignaled, 8, sink, kSize, peer.whole(),
                   reinterpret_cast<std::uintptr_t>(source));
    } else {
      me.post_recv(8, sink, kSize);
      peer.post_send(SendOp::kSend, SendFlags::kSignaled, 9, source, kSize);
    }
    std::vector<std::uint8_t> at_close;
    ASSERT_TRUE(net.run_until_idle([&] {
      if (!at_close.empty() || sink[5000] != 0x11) return;
      me.stream().close();
      at_close.assign(sink, sink + kSize);
    }));
    ASSERT_FALSE(at_close.empty());
    EXPECT_EQ(0, std::memcmp(sink, at_close.data(), kSize)) << "placed behind the flush";
    const std::size_t send_requests = op == SendOp::kRead ? 2 : 1;
    EXPECT_EQ(me.sends.size(), send_requests);
    EXPECT_EQ(me.recvs.size(), op == SendOp::kRead ? 0U : 1U);
    EXPECT_TRUE(net.socket_closed(0));
    EXPECT_TRUE(net.socket_closed(1));
  }
}

// A Write of the client, then one of the server; FPDUs that carried them, client's first.
std::array<std::uint64_t, 2> fpdus_of_writes(const SimConfig& config, std::uint32_t size) {
  SimPair net(config);
  EXPECT_TRUE(net.establish());
  EXPECT_TRUE(net.run_until_idle());  // the RTR and what answers it
  // The mark is not a Write that any program made.
  constexpr auto kWrite = static_cast<std::size_t>(Opcode::kWrite);
  EXPECT_EQ(net.client().stream().counters().rx_messages[kWrite].get(), 0U);
  std::array<std::uint64_t, 2> fpdus{};
  for (int i = 0; i < 2; ++i) {
    Endpoint& from = net.side(i);
    Endpoint& to = net.side(1 - i);
    std::uint8_t* const source = from.take(size);
    std::uint8_t* const target = to.take(size);
    std::memset(source, 0x3a + i, size);
    const std::uint64_t before = from.stream().counters().tx_fpdus.get();
    from.post_send(SendOp::kWrite, SendFlags::kSignaled, 1, source, size, to.whole(),
                   reinterpret_cast<std::uintptr_t>(target));
    EXPECT_TRUE(net.run_until_idle());
    EXPECT_EQ(0, std::memcmp(source, target, size));
    fpdus[static_cast<std::size_t>(i)] = from.stream().counters().tx_fpdus.get() - before;
  }
  return fpdus;
}

SimConfig peers_with_rtr(std::uint32_t known_to_client, std::uint32_t known_to_server) {
  SimConfig config;
  config.offer[0].peer_to_peer = true;
  for (auto& offer : config.offer) offer.ird = offer.ord = 4;
  config.max_ulpdu_known[0] = known_to_client;
  config.max_ulpdu_known[1] = known_to_server;
  return config;
}

constexpr std::uint32_t kKnown = (16U << 10U) + kDdpTaggedSize;
constexpr std::uint32_t kWriteBytes = 64U << 10U;
constexpr std::uint64_t kSegments = (kWriteBytes + 1427) / 1428;

TEST(SimMark, PeersThatKnowEachOtherSendLargeFpdus) {
  EXPECT_EQ(fpdus_of_writes(peers_with_rtr(kKnown, kKnown), kWriteBytes),
            (std::array<std::uint64_t, 2>{4, 4}));
}

TEST(SimMark, WithoutItFromEitherSideFpdusStaySmall) {
  constexpr std::array<std::uint64_t, 2> kSmall{kSegments, kSegments};
  EXPECT_EQ(fpdus_of_writes(peers_with_rtr(0, kKnown), kWriteBytes), kSmall);
  EXPECT_EQ(fpdus_of_writes(peers_with_rtr(kKnown, 0), kWriteBytes), kSmall);
  SimConfig plain = peers_with_rtr(kKnown, kKnown);
  plain.offer[0].peer_to_peer = false;
  EXPECT_EQ(fpdus_of_writes(plain, kWriteBytes), kSmall);
}

TEST(SimMark, AWriteRtrCarriesNone) {
  SimConfig config = peers_with_rtr(kKnown, kKnown);
  config.offer[0].rtr_read = false;
  config.offer[0].rtr_write = true;
  constexpr std::array<std::uint64_t, 2> kSmall{kSegments, kSegments};
  EXPECT_EQ(fpdus_of_writes(config, kWriteBytes), kSmall);
}

}  // namespace
}  // namespace weft::testing
