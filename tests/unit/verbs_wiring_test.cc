// Queue pairs wired by hand, in one process: how they find each other.
#include <sys/socket.h>
#include <weft/limits.h>

#include "base/bytes.h"
#include "roce/qp_number.h"
#include "verbs_wired.h"
#include "wire/ack.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"
#include "wire_testing.h"

namespace weft::verbs::test {
namespace {

TEST(Wiring, IwarpDevicesHaveReliableQueuePairsOnly) {
  Host host;
  QpOptions options;
  options.type = QpType::kUc;
  options.send_cq = options.recv_cq = std::move(*host.device->create_cq({}));
  EXPECT_EQ(host.pd->create_qp(options).error(), Error::kUnsupported);
}

TEST(Wiring, ANewQueuePairIsInResetAndItsNumberNamesItsPort) {
  const Wired one;
  EXPECT_EQ(one.qp().state(), QpState::kReset);
  ASSERT_TRUE(roce::is_number(one.qp().number()));
  const auto address = address_of(one.host.device->peer_directory()->gid(),
                                  roce::split_number(one.qp().number()).port);
  const RawSocket knock = RawSocket::connect(*address);  // somebody listens there
}

TEST(Wiring, IwarpDevicesDoNotWire) {
  Host host;
  const QpSet set(host);
  EXPECT_EQ(set.qp->state(), QpState::kInit);
  EXPECT_EQ(set.qp->wire({}).error(), Error::kUnsupported);
  EXPECT_EQ(set.qp->start_sending({}).error(), Error::kUnsupported);
}

TEST(Wiring, MessagesGoBothWays) {
  const Wired a;
  const Wired b;
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  b.to_rts();
  expect_message(a, b, 1);
  expect_message(b, a, 2);
}

// Of a device with all addresses of the machine; GIDs of 127.0.0.0/8 stand for several.
Config everywhere() {
  Config config = roce_config();
  config.gid = "";
  return config;
}
Gid gid_at(const char* address) { return gid_of(*SocketAddress::parse(address)); }
WiringToReceive between(const char* own, const Wired& peer, const char* there) {
  WiringToReceive out = peer.towards(peer);
  out.own.gid = gid_at(own);
  out.peer_gid = gid_at(there);
  return out;
}

TEST(Wiring, AQueuePairIsFoundAtTheGidThatItWasTold) {
  for (const auto& [here, there] : {std::pair{"127.0.0.2", "127.0.0.3"},
                                    std::pair{"127.0.0.3", "127.0.0.2"}, std::pair{"::1", "::1"}}) {
    const Wired a(QpType::kRc, everywhere());
    const Wired b(QpType::kRc, everywhere());
    a.to_init();
    b.to_init();
    ASSERT_TRUE(a.qp().wire(between(here, b, there)));
    ASSERT_TRUE(b.qp().wire(between(there, a, here)));
    a.to_rts();
    b.to_rts();
    expect_message(a, b, 1);
    expect_message(b, a, 2);
  }
}

TEST(Wiring, AHelloToAnotherAddressThanItNamesIsDeclined) {
  const Wired a(QpType::kRc, everywhere());
  const Wired b(QpType::kRc, everywhere());
  a.to_init();
  ASSERT_TRUE(a.qp().wire(between("127.0.0.2", b, "127.0.0.1")));
  roce::Hello h;
  h.from = {gid_at("127.0.0.1"), b.qp().number()};
  h.to = {gid_at("127.0.0.2"), a.qp().number()};
  Bytes octets(roce::Hello::kSize);
  ByteWriter writer{std::span(octets)};
  encode(h, writer);
  const auto told_at = [&](const char* address) {
    const auto port = roce::split_number(a.qp().number()).port;
    const RawSocket socket = RawSocket::connect(*address_of(gid_at(address), port));
    socket.send(octets);
    const Bytes answer = socket.receive(roce::Hello::kSize);
    ByteReader in{std::span<const std::uint8_t>(answer)};
    return roce::decode_hello(in)->verdict;
  };
  EXPECT_EQ(told_at("127.0.0.3"), roce::Verdict::kNoSuchQp);
  EXPECT_EQ(told_at("127.0.0.2"), roce::Verdict::kAccept);
}

TEST(Wiring, TwoOfOneDevice) {
  Wired a;
  const QpSet other(a.host);
  WiringToReceive peer = a.towards(a);
  ASSERT_TRUE(other.qp->modify(QpState::kInit));
  ASSERT_TRUE(other.qp->wire(peer));
  a.to_init();
  peer.peer_number = other.qp->number();
  ASSERT_TRUE(a.qp().wire(peer));
  a.to_rts();
  const Sge at = a.sge(64);
  ASSERT_TRUE(other.qp->post_recv({7, {&at, 1}}));
  a.send(6);
  EXPECT_EQ(a.next().wr_id, 6U);
  WorkCompletion wc;
  ASSERT_TRUE(eventually([&] { return other.cq->poll({&wc, 1}) == 1; }));
  EXPECT_EQ(wc.wr_id, 7U);
}

TEST(Wiring, OneThatIsItsOwnPeer) {
  const Wired a;
  a.to_rtr(a);
  a.to_rts();
  a.receive(1);
  a.send(2);
  std::uint64_t ids = a.next().wr_id;
  ids += a.next().wr_id;
  EXPECT_EQ(ids, 3U);
}

TEST(Wiring, WorkPostedBeforeThePeerIsThereWaitsForIt) {
  const Wired a;
  const Wired b;
  a.to_rtr(b);
  a.to_rts();
  a.send(1);
  b.to_init();
  b.receive(2);
  ASSERT_TRUE(b.qp().wire(b.towards(a)));
  EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  EXPECT_EQ(b.next().wr_id, 2U);
}

// The pauses between its calls have grown long by then, longer than the retries.
TEST(Wiring, WorkDoesNotWaitForTheNextCallToAPeerThatHasCome) {
  const Wired a;
  const Wired b;
  a.to_rtr(b, WiringTurn::kMine);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  b.to_rtr(a, WiringTurn::kOther);
  a.to_rts(1);
  expect_message(a, b, 1);
}

// The thread that calls may not get a CPU for longer than the retries take.
TEST(Wiring, TimeInWhichNobodyCouldCallIsNoneOfTheRetries) {
  const Wired a;
  const Wired b;
  a.to_rtr(b, WiringTurn::kMine);
  constexpr std::uint8_t kASecond = 18;  // 1.07
  a.to_rts(kASecond);
  a.send(1);
  const auto over = std::chrono::steady_clock::now() + std::chrono::milliseconds(1400);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it is sought
  std::atomic<bool> stopped{false}, goes_on{false};
  ASSERT_TRUE(a.host.device->engine().post([&] {
    stopped = true;
    while (!goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }));
  ASSERT_TRUE(eventually([&] { return stopped.load(); }));
  EXPECT_EQ(a.completions(), 0U);
  std::this_thread::sleep_until(over);
  b.to_rtr(a, WiringTurn::kOther);
  goes_on = true;
  b.receive(1);
  EXPECT_EQ(describe(a.next().status), describe(WcStatus::kSuccess));
}

TEST(Wiring, AReceiverNeedsNoRts) {
  const Wired a;
  const Wired b;
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  expect_message(a, b, 1);
  EXPECT_EQ(b.qp().state(), QpState::kRtr);
}

TEST(Wiring, WithoutAPeerTheRetriesRunOut) {
  const Wired a;
  const Wired nobody;
  a.to_rtr(nobody);  // which stays in RESET
  a.to_rts(1);
  a.receive(1);
  a.send(2);
  a.send(3);
  const WorkCompletion first = a.next();
  EXPECT_EQ(first.wr_id, 2U);
  EXPECT_EQ(describe(first.status), describe(WcStatus::kRetryExceeded));
  EXPECT_EQ(a.next().status, WcStatus::kFlushed);
  EXPECT_EQ(a.next().status, WcStatus::kFlushed);
  EXPECT_EQ(a.qp().state(), QpState::kError);
}

TEST(Wiring, PsnsThatDoNotAgreeLetNothingThrough) {
  const Wired a;
  const Wired b;
  a.to_init();
  ASSERT_TRUE(a.qp().wire(a.towards(b)));
  b.to_rtr(a);
  WiringToSend out;
  out.psn = 101;
  out.timeout = 1;
  ASSERT_TRUE(a.qp().start_sending(out));
  b.receive(1);
  a.send(2);
  EXPECT_EQ(describe(a.next().status), describe(WcStatus::kRetryExceeded));
}

TEST(Wiring, AnIdleQueuePairOutlivesItsPeerAndMeetsTheNextOne) {
  const Wired a;
  const Wired b;
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  b.to_rts();
  expect_message(a, b, 1);
  a.receive(8);
  ASSERT_TRUE(b.qp().modify(QpState::kReset));
  EXPECT_EQ(b.qp().state(), QpState::kReset);
  b.to_rtr(a);
  b.to_rts();
  EXPECT_EQ(a.qp().state(), QpState::kRts);
  b.send(9);
  EXPECT_EQ(b.next().status, WcStatus::kSuccess);
  const WorkCompletion wc = a.next();  // the receive posted long before
  EXPECT_EQ(wc.wr_id, 8U);
  EXPECT_EQ(wc.status, WcStatus::kSuccess);
}

// The receiver says that it has none, and the sender comes again.
TEST(Wiring, ASendWaitsForItsReceive) {
  const Wired a;
  const Wired b;
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  a.send(1);
  ASSERT_TRUE(eventually([&] { return b.fpdus_received() > 2; }));  // refused once at least
  EXPECT_EQ(a.completions(), 0U);
  b.receive(2);
  EXPECT_EQ(a.next().status, WcStatus::kSuccess);
  EXPECT_EQ(b.next().wr_id, 2U);
}

// A program may need the answer to its own request before it posts the receive.
TEST(Wiring, AnswersPassASendWithoutAReceive) {
  const Wired a;
  const Wired b;
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  b.to_rts();
  expect_message(a, b, 1);
  a.send(2);
  b.read(a, 3);
  EXPECT_EQ(b.next().wr_id, 3U);
  b.receive(4);
  EXPECT_EQ(a.next().wr_id, 2U);
  EXPECT_EQ(b.next().wr_id, 4U);
}

TEST(Wiring, TooManyRefusalsEndTheSendersQueuePairOnly) {
  const Wired a;
  const Wired b;
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts(0, 2);
  b.to_rts();
  a.send(1);
  a.send(2);
  const WorkCompletion first = a.next();
  EXPECT_EQ(first.wr_id, 1U);
  EXPECT_EQ(describe(first.status), describe(WcStatus::kRnrRetryExceeded));
  EXPECT_EQ(a.next().status, WcStatus::kFlushed);
  EXPECT_EQ(a.qp().state(), QpState::kError);
  EXPECT_EQ(b.qp().state(), QpState::kRts);
}

TEST(Wiring, TellsOfSendsThatWaitAndAreRefused) {
  const Wired a;
  const Wired b;
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  b.to_rts();
  expect_message(a, b, 1);
  EXPECT_EQ(b.set.late(LateReceive::kBegins), 0U);
  a.send(2);
  EXPECT_TRUE(
      eventually([&] { return b.completions() == 0 && b.set.late(LateReceive::kRefused) > 0; }));
  b.receive(3);
  EXPECT_EQ(b.next().wr_id, 3U);
  EXPECT_GE(b.set.late(LateReceive::kBegins), b.set.late(LateReceive::kRefused));
  EXPECT_EQ(b.set.late(LateReceive::kLost), 0U);
  EXPECT_EQ(a.set.late(LateReceive::kBegins), 0U);
}

TEST(Wiring, TellsOfSendsThatAreLost) {
  const Wired a(QpType::kUc);
  const Wired b(QpType::kUc);
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  b.to_rts();
  expect_message(a, b, 1);
  a.send(2);
  a.send(3);
  EXPECT_TRUE(
      eventually([&] { return b.completions() == 0 && b.set.late(LateReceive::kLost) == 2; }));
  EXPECT_EQ(b.set.late(LateReceive::kBegins), 1U);
  EXPECT_EQ(b.dropped(), 2U);
}

TEST(Wiring, ResetForgetsWhatWasPosted) {
  const Wired a;
  const Wired b;
  a.to_rtr(b);
  a.to_rts();
  a.receive(1);
  a.send(2);
  ASSERT_TRUE(a.qp().modify(QpState::kReset));
  WorkCompletion wc;
  EXPECT_EQ(a.set.cq->poll({&wc, 1}), 0U);
  b.to_rtr(a);
  a.to_rtr(b);
  a.to_rts();
  expect_message(a, b, 3);
}

TEST(Wiring, ResetDropsItsCompletionsAndNoOthers) {
  Wired a;
  QpOptions options;
  options.send_cq = options.recv_cq = a.set.cq;
  const auto other = std::move(*a.host.pd->create_qp(options));
  const Sge at = a.sge(8);
  a.to_init();
  ASSERT_TRUE(other->modify(QpState::kInit));
  for (std::uint64_t id = 0; id < 6; ++id) {
    ASSERT_TRUE((id % 2 == 0 ? a.qp() : *other).post_recv({id, {&at, 1}}));
  }
  ASSERT_TRUE(a.qp().modify(QpState::kError));
  ASSERT_TRUE(other->modify(QpState::kError));
  ASSERT_TRUE(a.qp().modify(QpState::kReset));
  for (const std::uint64_t id : {1U, 3U, 5U}) EXPECT_EQ(a.next().wr_id, id);
  EXPECT_EQ(a.completions(), 0U);
}

TEST(Wiring, ErrorFlushesWhatWasPosted) {
  const Wired a;
  const Wired b;
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  expect_message(a, b, 5);
  a.receive(1);
  ASSERT_TRUE(a.qp().modify(QpState::kError));
  EXPECT_EQ(a.qp().state(), QpState::kError);
  EXPECT_EQ(a.next().status, WcStatus::kFlushed);
  a.send(2);
  EXPECT_EQ(a.next().status, WcStatus::kFlushed);
  EXPECT_FALSE(a.qp().wire(a.towards(b)));
}

TEST(Wiring, MovesOutOfTurnChangeNothing) {
  const Wired a;
  EXPECT_EQ(a.qp().wire(a.towards(a)).error(), Error::kBadState);
  a.to_init();
  EXPECT_EQ(a.qp().start_sending({}).error(), Error::kBadState);
  EXPECT_EQ(a.qp().modify(QpState::kRtr).error(), Error::kBadState);
  WiringToReceive bad = a.towards(a);
  bad.peer_number = 1;
  EXPECT_EQ(a.qp().wire(bad).error(), Error::kInvalidArgument);
  bad = a.towards(a);
  bad.peer_gid = {};
  EXPECT_EQ(a.qp().wire(bad).error(), Error::kInvalidArgument);
  EXPECT_EQ(a.qp().state(), QpState::kInit);
}

}  // namespace
}  // namespace weft::verbs::test
