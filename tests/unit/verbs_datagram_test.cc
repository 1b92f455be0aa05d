// Queue pairs of datagrams, in one process, and what strangers send them.
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>

#include "roce/datagram.h"
#include "roce/qp_number.h"
#include "verbs/cq.h"
#include "verbs/oob/peer_directory.h"
#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

constexpr std::uint32_t kKey = 0x1234;
constexpr std::uint32_t kOwnKey = 1U << 31U;
constexpr std::size_t kRoom = 4096 + roce::kGrhSize;

Config datagram_config(const char* gid = "127.0.0.1") {
  Config config = quiet_config();
  config.personality = Personality::kRoce;
  config.gid = gid;
  return config;
}

struct Side {
  explicit Side(const Config& config = datagram_config(),
                std::function<bool(const Gid&)> has_gid = nullptr)
      : host(config), set(host, QpType::kUd, std::move(has_gid)) {
    memory.resize(2 * kRoom);
    region =
        std::move(*host.pd->register_memory(memory.data(), memory.size(), Access::kLocalWrite));
    EXPECT_TRUE(qp().modify(QpState::kInit));
    EXPECT_TRUE(qp().set_datagram_key(kKey));
    EXPECT_TRUE(qp().modify(QpState::kRtr));
    EXPECT_TRUE(qp().modify(QpState::kRts));
  }
  [[nodiscard]] QueuePair& qp() const { return *set.qp; }
  [[nodiscard]] DatagramPeer peer(std::uint32_t key = kKey) const {
    return {host.device->peer_directory()->gid(), qp().number(), key};
  }
  void receive(std::uint64_t id, std::uint32_t size = kRoom) const {
    const Sge at{reinterpret_cast<std::uintptr_t>(memory.data()), size, region->lkey()};
    ASSERT_TRUE(qp().post_recv({id, {&at, 1}}));
  }
  Status send(const DatagramPeer& to, std::string_view text, SendOp op = SendOp::kSend) const {
    std::memcpy(const_cast<std::uint8_t*>(memory.data()) + kRoom, text.data(), text.size());
    const Sge at{reinterpret_cast<std::uintptr_t>(memory.data() + kRoom),
                 static_cast<std::uint32_t>(text.size()), region->lkey()};
    SendWr wr;
    wr.op = op;
    wr.imm_data = std::uint64_t{77} << 32U;
    wr.flags = SendFlags::kSignaled;
    wr.sges = {&at, 1};
    wr.peer = &to;
    return qp().post_send(wr);
  }
  WorkCompletion next() const {
    WorkCompletion wc;
    EXPECT_TRUE(eventually([&] { return set.cq->poll({&wc, 1}) == 1; }));
    return wc;
  }
  void expect_text(std::string_view text) const {
    const auto at = memory.begin() + roce::kGrhSize;
    EXPECT_EQ(std::string(at, at + static_cast<std::ptrdiff_t>(text.size())), text);
  }
  [[nodiscard]] std::uint64_t dropped() const { return host.device->counters().messages_dropped; }
  void expect_dropped(std::uint64_t count) const {
    EXPECT_TRUE(eventually([&] { return dropped() == count; })) << dropped();
  }

  Host host;
  QpSet set;
  Bytes memory;
  std::shared_ptr<MemoryRegion> region;
};

void expect_message(const Side& from, const Side& to, std::string_view text) {
  to.receive(5);
  ASSERT_TRUE(from.send(to.peer(), text));
  WorkCompletion sent = from.next();
  WorkCompletion wc = to.next();
  // Of one that sends to itself either may be the first.
  if (sent.op == WcOp::kRecv) std::swap(sent, wc);
  EXPECT_EQ(sent.op, WcOp::kSend);
  EXPECT_EQ(sent.status, WcStatus::kSuccess);
  EXPECT_EQ(wc.wr_id, 5U);
  EXPECT_EQ(wc.status, WcStatus::kSuccess);
  EXPECT_EQ(wc.op, WcOp::kRecv);
  EXPECT_EQ(wc.byte_len, roce::kGrhSize + text.size());
  EXPECT_EQ(wc.source_qp, from.qp().number());
  EXPECT_TRUE(has(wc.flags, WcFlags::kGrh));
  to.expect_text(text);
}

TEST(Datagrams, GoBothWaysWithTheRouteHeader) {
  const Side a;
  const Side b(datagram_config("127.0.0.2"));
  expect_message(a, b, "there");
  EXPECT_EQ(sender_of_datagram(std::span(b.memory).first(roce::kGrhSize))->gid,
            a.host.device->peer_directory()->gid());
  expect_message(b, a, "and back");
  expect_message(a, a, "to itself");
}

TEST(Datagrams, OfIpv6HaveThatRouteHeader) {
  const Side a(datagram_config("::1"));
  a.receive(1);
  ASSERT_TRUE(a.send(a.peer(), "six"));
  WorkCompletion wc = a.next();
  if (wc.op != WcOp::kRecv) wc = a.next();
  EXPECT_EQ(wc.service_level, 1);
  EXPECT_EQ(a.memory[0], 0x60);
  a.expect_text("six");
}

// Of a device with all addresses of the machine; those of 127.0.0.0/8 stand for several.
TEST(Datagrams, LeaveFromTheirGidAndAreTakenAtThoseOfTheirDevice) {
  const Config everywhere = datagram_config("");
  const Gid here = gid_of(*SocketAddress::parse("127.0.0.2"));
  const Gid there = gid_of(*SocketAddress::parse("127.0.0.3"));
  const Side a(everywhere);
  const Side b(everywhere, [&](const Gid& gid) { return gid == there; });
  DatagramPeer to{there, b.qp().number(), kKey, 0, 0, {here, 0}};
  b.receive(1);
  ASSERT_TRUE(a.send(to, "there"));
  EXPECT_EQ(b.next().wr_id, 1U);
  b.expect_text("there");
  const auto seen = sender_of_datagram(std::span(b.memory).first(roce::kGrhSize));
  EXPECT_EQ(seen->gid, here);
  EXPECT_EQ(seen->own.gid, there);
  to.gid = here;  // not b's
  ASSERT_TRUE(a.send(to, "elsewhere"));
  b.expect_dropped(1);
  to.gid = gid_of(*SocketAddress::parse("::1"));
  to.own.gid = to.gid;
  const Side six(everywhere);
  to.number = six.qp().number();
  six.receive(2);
  ASSERT_TRUE(a.send(to, "six"));
  EXPECT_EQ(six.next().service_level, 1);
  six.expect_text("six");
}

TEST(Datagrams, CarryImmediateData) {
  const Side a;
  const Side b;
  b.receive(1);
  ASSERT_TRUE(a.send(b.peer(), "x", SendOp::kImmediate));
  const WorkCompletion wc = b.next();
  EXPECT_TRUE(has(wc.flags, WcFlags::kWithImm));
  EXPECT_EQ(wc.imm_data >> 32U, 77U);
}

TEST(Datagrams, WithoutAReceiveAndWithAnotherKeyAreDropped) {
  const Side a;
  const Side b;
  ASSERT_TRUE(a.send(b.peer(), "no receive"));
  b.expect_dropped(1);
  b.receive(1);
  ASSERT_TRUE(a.send(b.peer(kKey + 1), "another key"));
  b.expect_dropped(2);
  // The highest bit says: the sender's own.
  ASSERT_TRUE(a.send(b.peer(kOwnKey | 5U), "own key"));
  EXPECT_EQ(b.next().wr_id, 1U);
  EXPECT_EQ(b.qp().state(), QpState::kRts);
}

TEST(Datagrams, LongerThanTheirReceiveEndItOnly) {
  const Side a;
  const Side b;
  b.receive(1, roce::kGrhSize + 3);
  ASSERT_TRUE(a.send(b.peer(), "four"));
  EXPECT_EQ(b.next().status, WcStatus::kLocalLength);
  expect_message(a, b, "next");
}

// As UCX's memory does at its end: the registration is still cached, the queue pair still there.
TEST(Datagrams, ForMemoryThatHasGoneEndTheirReceiveOnly) {
  const Side a;
  const Side b;
  void* const gone =
      mmap(nullptr, 2 * kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  const auto region = std::move(*b.host.pd->register_memory(gone, 2 * kRoom, Access::kLocalWrite));
  const Sge at{reinterpret_cast<std::uintptr_t>(gone), kRoom, region->lkey()};
  ASSERT_TRUE(b.qp().post_recv({9, {&at, 1}}));
  ASSERT_EQ(munmap(gone, 2 * kRoom), 0);
  ASSERT_TRUE(a.send(b.peer(), "nowhere"));
  // Nobody polls: the engine's thread reads it.
  const auto& cq = dynamic_cast<const CompletionQueueImpl&>(*b.set.cq);
  EXPECT_TRUE(eventually([&] { return cq.has_completions(); }));
  const WorkCompletion wc = b.next();
  EXPECT_EQ(wc.wr_id, 9U);
  EXPECT_EQ(wc.status, WcStatus::kLocalProtection);
  EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  expect_message(a, b, "next");
}

TEST(Datagrams, ToNobodyCompleteLikeAnyOther) {
  const Side a;
  DatagramPeer nobody = a.peer();
  nobody.number = 1;
  ASSERT_TRUE(a.send(nobody, "x"));
  EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  nobody = a.peer();
  nobody.number ^= 2U << roce::kIndexBits;  // nobody listens there, perhaps
  ASSERT_TRUE(a.send(nobody, "x"));
  EXPECT_EQ(a.next().status, WcStatus::kSuccess);
}

TEST(Datagrams, WhatCannotBeADatagramIsRefusedAtThePost) {
  const Side a;
  EXPECT_FALSE(a.send(a.peer(), std::string(4097, 'x')));
  EXPECT_FALSE(a.send(a.peer(), "x", SendOp::kWrite));
  SendWr without_peer;
  EXPECT_EQ(a.qp().post_send(without_peer).error(), Error::kInvalidArgument);
}

TEST(Datagrams, ABadKeyStopsTheSendQueueUntilItIsStartedAgain) {
  const Side a;
  const Side b;
  const Sge bad{reinterpret_cast<std::uintptr_t>(a.memory.data()), 8, a.region->lkey() ^ 0x100U};
  const DatagramPeer to = b.peer();
  SendWr wr;
  wr.sges = {&bad, 1};
  wr.peer = &to;
  ASSERT_TRUE(a.qp().post_send(wr));
  EXPECT_EQ(a.next().status, WcStatus::kLocalProtection);
  EXPECT_EQ(a.qp().state(), QpState::kSqe);
  ASSERT_TRUE(a.send(to, "flushed"));
  EXPECT_EQ(a.next().status, WcStatus::kFlushed);
  ASSERT_TRUE(a.qp().modify(QpState::kRts));
  expect_message(a, b, "again");
}

TEST(Datagrams, ErrorFlushesAndResetForgets) {
  const Side a;
  a.receive(1);
  ASSERT_TRUE(a.qp().modify(QpState::kError));
  const WorkCompletion flushed = a.next();
  EXPECT_EQ(flushed.status, WcStatus::kFlushed);
  EXPECT_EQ(flushed.op, WcOp::kRecv);
  a.receive(2);
  EXPECT_EQ(a.next().wr_id, 2U);
  ASSERT_TRUE(a.qp().modify(QpState::kReset));
  EXPECT_FALSE(a.send(a.peer(), "x"));
  EXPECT_EQ(a.qp().post_recv(RecvWr{}).error(), Error::kBadState);
  EXPECT_EQ(a.qp().modify(QpState::kRtr).error(), Error::kBadState);
}

// As on adapters, the slot of a request is free when a completion at or after it has been polled.
TEST(Datagrams, PostedUntilTheQueueIsFullAndThenPolledOverflowNothing) {
  const Side a;
  const DatagramPeer to = a.peer(kKey + 1);  // dropped
  const std::uint32_t depth = a.qp().caps().max_send_wr;
  WorkCompletion wc;
  ASSERT_LE(2 * depth, a.set.cq->depth());
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < depth; ++i) ASSERT_TRUE(a.send(to, "x"));
    ASSERT_TRUE(eventually([&] { return a.qp().query().sq_outstanding == 0; }));
    EXPECT_EQ(a.send(to, "x").error(), Error::kNoSpace);
    EXPECT_EQ(a.next().status, WcStatus::kSuccess);
    EXPECT_TRUE(a.send(to, "x"));
    for (std::uint32_t i = 0; i < depth; ++i) EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  }
  for (std::uint32_t i = 0; i < a.qp().caps().max_recv_wr; ++i) a.receive(i);
  EXPECT_EQ(a.qp().post_recv(RecvWr{}).error(), Error::kNoSpace);
  ASSERT_TRUE(a.qp().modify(QpState::kError));
  EXPECT_EQ(a.qp().post_recv(RecvWr{}).error(), Error::kNoSpace);
  EXPECT_EQ(a.next().status, WcStatus::kFlushed);
  a.receive(99);
  ASSERT_TRUE(a.qp().modify(QpState::kReset));
  EXPECT_EQ(a.set.cq->poll({&wc, 1}), 0U);
  ASSERT_TRUE(a.qp().modify(QpState::kInit));
  for (std::uint32_t i = 0; i < a.qp().caps().max_recv_wr; ++i) a.receive(i);
  EXPECT_EQ(a.qp().post_recv(RecvWr{}).error(), Error::kNoSpace);
  EXPECT_FALSE(a.set.cq->overflowed());
}

TEST(Datagrams, ManyQueuePairsHaveNumbersOfTheirOwn) {
  const Side a;
  Host host(datagram_config());
  std::vector<std::unique_ptr<QpSet>> sets;
  for (int i = 0; i < 5; ++i) sets.push_back(std::make_unique<QpSet>(host, QpType::kUd));
  for (const auto& one : sets) {
    for (const auto& other : sets) {
      EXPECT_EQ(one == other, one->qp->number() == other->qp->number());
    }
  }
}

TEST(Datagrams, TakeTheReceivesOfASharedQueue) {
  const Side a;
  Side b;
  QpOptions options;
  options.type = QpType::kUd;
  options.send_cq = options.recv_cq = b.set.cq;
  options.srq = std::move(*b.host.pd->create_srq({}));
  const Sge at{reinterpret_cast<std::uintptr_t>(b.memory.data()), kRoom, b.region->lkey()};
  std::vector<std::shared_ptr<QueuePair>> qps;
  for (std::uint64_t id = 1; id <= 2; ++id) {
    const auto qp = qps.emplace_back(std::move(*b.host.pd->create_qp(options)));
    for (const QpState to : {QpState::kInit, QpState::kRtr}) ASSERT_TRUE(qp->modify(to));
    const RecvWr receive{id, {&at, 1}};
    ASSERT_EQ(options.srq->post_recv({&receive, 1}).count, 1U);
    EXPECT_EQ(qp->post_recv(receive).error(), Error::kInvalidArgument);
    const DatagramPeer to{b.host.device->peer_directory()->gid(), qp->number(), 0, 0, 0};
    ASSERT_TRUE(a.send(to, "shared"));
    const WorkCompletion wc = b.next();
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.qp_num, qp->number());
    b.expect_text("shared");
  }
}

// How many of `count` datagrams come to one who has `receives` receives posted, and posts one more
// for each that it takes.
std::size_t arrivals_of(const Side& from, const Side& to, std::size_t receives, std::size_t count) {
  WorkCompletion wc;
  // Who polls reads the socket.
  for (int i = 0; i < 8; ++i) EXPECT_EQ(to.set.cq->poll({&wc, 1}), 0U);
  for (std::size_t i = 0; i < receives; ++i) to.receive(1);
  const std::uint64_t lost_before = to.dropped();
  for (std::size_t i = 0; i < count; ++i) EXPECT_TRUE(from.send(to.peer(), "one of many"));
  std::size_t taken = 0;
  EXPECT_TRUE(eventually([&] {
    while (to.set.cq->poll({&wc, 1}) == 1) {
      ++taken;
      to.receive(1);
    }
    return taken + (to.dropped() - lost_before) == count;
  }));
  for (std::size_t i = 0; i < count; ++i) static_cast<void>(from.next());
  return taken;
}

TEST(Datagrams, WaitForReceivesOfWhoHasCompletionsToTake) {
  constexpr std::size_t kReceives = 4;
  constexpr std::size_t kMany = 40;
  const Side a;
  std::size_t taken = 0;
  // Who does not poll for 100 ms loses some: a busy machine may stop this process for so long.
  for (int round = 0; round < 50 && taken != kMany; ++round) {
    const Side b;
    taken = arrivals_of(a, b, kReceives, kMany);
  }
  EXPECT_EQ(taken, kMany);
}

TEST(Datagrams, WithoutAReceiveAreLostInTheEndIfNobodyPolls) {
  const Side a;
  const Side b;
  b.receive(1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a.send(b.peer(), "one of three"));
  b.expect_dropped(2);
}

TEST(Datagrams, ASleeperIsWoken) {
  const Side a;
  Host host(datagram_config());
  auto channel = std::move(*host.device->create_channel());
  QpOptions options;
  options.type = QpType::kUd;
  options.send_cq = options.recv_cq = std::move(*host.device->create_cq({16, channel}));
  const auto qp = std::move(*host.pd->create_qp(options));
  Bytes memory(kRoom);
  const auto region =
      std::move(*host.pd->register_memory(memory.data(), memory.size(), Access::kLocalWrite));
  const Sge at{reinterpret_cast<std::uintptr_t>(memory.data()), kRoom, region->lkey()};
  for (const QpState to : {QpState::kInit, QpState::kRtr}) ASSERT_TRUE(qp->modify(to));
  WorkCompletion wc;
  for (std::uint64_t id = 0; id < 3; ++id) {
    ASSERT_TRUE(qp->post_recv({id, {&at, 1}}));
    for (int polls = 0; polls < 20; ++polls) EXPECT_EQ(options.recv_cq->poll({&wc, 1}), 0U);
    ASSERT_TRUE(options.recv_cq->arm(CompletionQueue::Arm::kNext));
    const DatagramPeer to{host.device->peer_directory()->gid(), qp->number(), 0, 0, 0};
    ASSERT_TRUE(a.send(to, "wake"));
    ASSERT_TRUE(channel->wait(kPatience));
    options.recv_cq->ack_events(1);
    ASSERT_TRUE(eventually([&] { return options.recv_cq->poll({&wc, 1}) == 1; }));
    EXPECT_EQ(wc.wr_id, id);
  }
}

// --- strangers: a UDP socket of no queue pair ---

class DatagramStranger : public ::testing::Test {
 protected:
  DatagramStranger() : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  void throw_at(const Bytes& octets) const {
    const SocketAddress to = *address_of(a.host.device->peer_directory()->gid(),
                                         roce::split_number(a.qp().number()).port);
    ASSERT_EQ(::sendto(fd_.get(), octets.data(), octets.size(), 0, to.get(), to.size()),
              static_cast<ssize_t>(octets.size()));
  }
  [[nodiscard]] Bytes datagram(const roce::Datagram& header, std::size_t payload = 8) const {
    Bytes out(roce::Datagram::kSize + payload);
    ByteWriter writer{std::span(out)};
    encode(header, writer);
    return out;
  }
  [[nodiscard]] roce::Datagram header() const {
    roce::Datagram h;
    h.from = roce::to_number({40000, 2});
    h.to = a.qp().number();
    h.key = kKey;
    return h;
  }

  const Side a;
  const Side friendly;
  os::Fd fd_;
};

TEST_F(DatagramStranger, NonsenseIsDroppedAndCounted) {
  throw_at({});
  throw_at({1});
  throw_at(Bytes(60000, 'x'));
  throw_at(datagram(header(), 4097));  // more than the largest MTU
  throw_at(datagram(header()));        // its port is not that of the number it claims
  Bytes other = datagram(header());
  other[4] = 9;
  throw_at(other);
  a.expect_dropped(6);
  expect_message(friendly, a, "works");
}

TEST_F(DatagramStranger, NumbersOfOthersAtThisPortAreDropped) {
  a.receive(1);
  roce::Datagram h = header();
  h.to ^= 4U;
  throw_at(datagram(h));
  a.expect_dropped(1);
  EXPECT_EQ(a.qp().query().rq_outstanding, 1U);
}

}  // namespace
}  // namespace weft::verbs::test
