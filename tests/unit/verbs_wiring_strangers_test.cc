// Queue pairs wired by hand: what strangers can do at their ports, and what is left when a peer
// goes.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <weft/limits.h>

#include <filesystem>
#include <list>
#include <optional>
#include <set>
#include <string>

#include "base/bytes.h"
#include "io/socket.h"
#include "roce/qp_number.h"
#include "verbs_wired.h"
#include "wire/ack.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"
#include "wire_testing.h"

namespace weft::verbs::test {
namespace {

class WiringStranger : public ::testing::Test {
 protected:
  [[nodiscard]] RawSocket knock() const {
    return RawSocket::connect(*address_of(a.host.device->peer_directory()->gid(),
                                          roce::split_number(a.qp().number()).port));
  }
  [[nodiscard]] roce::Hello hello() const {
    roce::Hello h;
    h.from = {a.host.device->peer_directory()->gid(), peer.qp().number()};
    h.to = {h.from.gid, a.qp().number()};
    return h;
  }
  static Bytes octets(const roce::Hello& h) {
    Bytes out(roce::Hello::kSize);
    ByteWriter writer{std::span(out)};
    roce::encode(h, writer);
    return out;
  }
  roce::Verdict told(const roce::Hello& h) const {
    const RawSocket socket = knock();
    socket.send(octets(h));
    const Bytes answer = socket.receive(roce::Hello::kSize);
    ByteReader in{std::span<const std::uint8_t>(answer)};
    const auto decoded = roce::decode_hello(in);
    EXPECT_TRUE(decoded.has_value());
    return decoded ? decoded->verdict : roce::Verdict::kOtherType;
  }
  // What they did before changed nothing.
  void expect_still_works() const {
    peer.to_rtr(a);
    a.to_rts();
    expect_message(a, peer, 5);
  }

  Wired a, peer;
};

TEST_F(WiringStranger, HellosToNobodyAndFromNobodyAreDeclined) {
  EXPECT_EQ(told(hello()), roce::Verdict::kNotYet);  // RESET
  a.to_rtr(peer);
  roce::Hello h = hello();
  h.to.number ^= 4U;
  EXPECT_EQ(told(h), roce::Verdict::kNoSuchQp);
  h = hello();
  h.from.number ^= 4U;
  EXPECT_EQ(told(h), roce::Verdict::kNotYet);
  h = hello();
  h.from.gid[15] = 77;  // 127.0.0.77, and it calls from 127.0.0.1
  EXPECT_EQ(told(h), roce::Verdict::kNotYet);
  expect_still_works();
}

TEST_F(WiringStranger, NonsenseIsClosed) {
  a.to_rtr(peer);
  const RawSocket socket = knock();
  socket.send(Bytes(roce::Hello::kSize, 'x'));
  EXPECT_TRUE(socket.closed());
  const RawSocket iwarp = knock();
  Bytes frame = request();
  frame.resize(roce::Hello::kSize);
  iwarp.send(frame);
  EXPECT_TRUE(iwarp.closed());
  expect_still_works();
}

TEST_F(WiringStranger, SilentAndCutOffOnesHoldNobodyUp) {
  a.to_rtr(peer);
  const RawSocket silent = knock();
  RawSocket cut = knock();
  cut.send(Bytes(10, 'W'));
  cut.close();
  expect_still_works();
  EXPECT_TRUE(silent.closed());
}

// As many as a port keeps, and then a caller with a hello.
TEST_F(WiringStranger, TheOldestSilentOneMakesRoomForACaller) {
  if (!raise_descriptor_limit(3 * limits::kHalfOpenConnections)) {
    GTEST_SKIP() << "too few descriptors";
  }
  std::vector<RawSocket> silent;
  while (silent.size() < limits::kHalfOpenConnections) silent.push_back(knock());
  EXPECT_EQ(told(hello()), roce::Verdict::kNotYet);
  EXPECT_TRUE(silent.front().closed());
}

// Local ports from which this process waits for a handshake. /proc/net/tcp may leave one out while
// other sockets come and go.
std::set<std::uint16_t> calling() {
  std::set<std::uint16_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    tcp_info info{};
    socklen_t size = sizeof info;
    sockaddr_in local{};
    socklen_t length = sizeof local;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
        info.tcpi_state == TCP_SYN_SENT &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0) {
      out.insert(ntohs(local.sin_port));
    }
  }
  return out;
}

// A port whose queue is full: the kernel drops every SYN that comes.
struct DeafPort {
  DeafPort() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    SocketAddress at = *SocketAddress::parse("127.0.0.1:0");
    EXPECT_EQ(bind(socket.get(), at.get(), at.size()), 0);
    EXPECT_EQ(listen(socket.get(), 0), 0);
    port = io::local_address(socket.get()).port();
    EXPECT_GE(port, roce::kPortMin);
    at.set_port(port);
    while (calling().empty()) {
      fillers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      static_cast<void>(connect(fillers.back().get(), at.get(), at.size()));
    }
    before = calling();
  }
  // Those that call now, without the ones that fill the queue.
  [[nodiscard]] std::set<std::uint16_t> callers() const {
    std::set<std::uint16_t> out = calling();
    for (const std::uint16_t one : before) out.erase(one);
    return out;
  }
  const os::Fd socket;
  std::uint16_t port = 0;
  std::list<os::Fd> fillers;
  std::set<std::uint16_t> before;
};

// The kernel repeats the SYN of one socket after a second, which may be all the time that a request
// has. The first call goes on, since its peer may only be far away.
TEST_F(WiringStranger, AnotherCallIsTriedBesideOneThatNobodyAnswers) {
  constexpr std::size_t kCalls = 4;  // 700 ms
  const DeafPort deaf;
  WiringToReceive towards = a.towards(peer);
  towards.peer_number = roce::to_number({deaf.port, roce::kIndexMin});
  towards.turn = WiringTurn::kMine;
  a.to_init();
  ASSERT_TRUE(a.qp().wire(towards));
  ASSERT_TRUE(eventually([&] { return !deaf.callers().empty(); }));
  const std::uint16_t first = *deaf.callers().begin();
  std::set<std::uint16_t> all;
  EXPECT_TRUE(eventually([&] {
    const std::set<std::uint16_t> now = deaf.callers();
    EXPECT_TRUE(now.contains(first));
    EXPECT_LE(now.size(), 2U);
    all.insert(now.begin(), now.end());
    return all.size() >= kCalls || !now.contains(first);
  }));
  EXPECT_GE(all.size(), kCalls);
}

// The port of a peer whose machine takes the call, and which itself comes to it later.
class WiringLatePeer : public WiringStranger {
 protected:
  // Its hello is here, and the time is over that its retries leave it.
  [[nodiscard]] RawSocket overdue_call() {
    WiringToReceive towards = a.towards(peer);
    towards.peer_number = number();
    towards.turn = WiringTurn::kMine;
    a.to_init();
    EXPECT_TRUE(a.qp().wire(towards));
    a.to_rts(1);
    RawSocket socket = late->accept();
    EXPECT_EQ(socket.receive(roce::Hello::kSize).size(), roce::Hello::kSize);
    a.send(1);
    // As many retries of a later request, of a queue pair of the same device, are over.
    const QpSet other(a.host);
    EXPECT_TRUE(other.qp->modify(QpState::kInit));
    EXPECT_TRUE(other.qp->wire(a.towards(peer)));
    EXPECT_TRUE(other.qp->start_sending({.timeout = 1, .retry_count = 0}));
    SendWr wr;
    EXPECT_TRUE(other.qp->post_send(wr));
    WorkCompletion wc;
    EXPECT_TRUE(eventually([&] { return other.cq->poll({&wc, 1}) == 1; }));
    EXPECT_EQ(describe(wc.status), describe(WcStatus::kRetryExceeded));
    return socket;
  }
  [[nodiscard]] std::uint32_t number() const {
    return roce::to_number({late->address().port(), roce::kIndexMin});
  }
  [[nodiscard]] Bytes answer(roce::Verdict verdict) const {
    roce::Hello h = hello();
    h.kind = roce::HelloKind::kAnswer;
    h.verdict = verdict;
    h.from.number = number();
    h.psn = 100;
    return octets(h);
  }
  std::optional<RawListener> late{std::in_place};
};

TEST_F(WiringLatePeer, IsThereForRequestsWhoseRetriesAreUsedUp) {
  const RawSocket socket = overdue_call();
  EXPECT_EQ(a.completions(), 0U);
  EXPECT_EQ(a.qp().state(), QpState::kRts);
  socket.send(answer(roce::Verdict::kAccept));
  EXPECT_FALSE(socket.receive(1).empty());  // the request
}

TEST_F(WiringLatePeer, ThatIsBusyIsCalledAgain) {
  const RawSocket first = overdue_call();
  ASSERT_EQ(a.completions(), 0U);
  first.send(answer(roce::Verdict::kBusy));
  const RawSocket second = late->accept();
  EXPECT_EQ(second.receive(roce::Hello::kSize).size(), roce::Hello::kSize);
  second.send(answer(roce::Verdict::kAccept));
  EXPECT_FALSE(second.receive(1).empty());
}

TEST_F(WiringLatePeer, ThatDeclinesEndsThemAtOnce) {
  const RawSocket socket = overdue_call();
  socket.send(answer(roce::Verdict::kNotYet));
  EXPECT_EQ(describe(a.next().status), describe(WcStatus::kRetryExceeded));
}

TEST_F(WiringLatePeer, ThatGoesEndsThemAtOnce) {
  RawSocket socket = overdue_call();
  late.reset();
  socket.close();
  EXPECT_EQ(describe(a.next().status), describe(WcStatus::kRetryExceeded));
}

// One that greets as the peer, is let in, and does nothing by itself.
class WiringIdlePeer : public WiringStranger {
 protected:
  // A number below all others makes it the one to connect.
  [[nodiscard]] RawSocket meet(std::uint8_t timeout = 0, std::uint8_t rnr_retry = 7) const {
    WiringToReceive towards = a.towards(peer);
    towards.peer_number = roce::to_number({32768, 2});
    a.to_init();
    EXPECT_TRUE(a.qp().wire(towards));
    a.to_rts(timeout, rnr_retry);
    return greet();
  }
  static void acknowledge(const RawSocket& socket, AckKind kind, std::uint64_t value) {
    Bytes ack(DdpTagged::kSize);
    store_ddp(DdpTagged{true, kAckControl, Stag{static_cast<std::uint32_t>(kind)}, value},
              ack.data());
    socket.send(weft::testing::build_fpdu(ack));
  }
  // The next FPDU's ULPDU; nothing at the end of the stream.
  static Bytes next_ulpdu(const RawSocket& socket) {
    constexpr std::size_t kLength = 2, kCrc = 4, kWord = 4;
    const Bytes length = socket.receive(kLength);
    if (length.size() != kLength) return {};
    const std::size_t size = load_be16(length.data());
    const std::size_t padded = (kLength + size + kWord - 1) / kWord * kWord;
    Bytes rest = socket.receive(padded - kLength + kCrc);
    rest.resize(size);
    return rest;
  }
  [[nodiscard]] roce::Hello greeting() const {
    roce::Hello h = hello();
    h.from.number = roce::to_number({32768, 2});
    h.psn = 100;
    h.min_rnr_timer = rnr_timer;
    return h;
  }
  [[nodiscard]] RawSocket greet() const {
    RawSocket socket = knock();
    socket.send(octets(greeting()));
    EXPECT_EQ(socket.receive(roce::Hello::kSize).size(), roce::Hello::kSize);
    return socket;
  }
  std::uint8_t rnr_timer = 1;  // 10 us; 0 is 655 ms
  void leave(RawSocket& socket) const {
    socket.close();
    EXPECT_TRUE(eventually([&] { return !a.linked(); }));
  }
};

// To an adapter, a peer that has gone is one that does not answer.
TEST_F(WiringIdlePeer, WhatIsOutstandingWhenThePeerGoesStaysSo) {
  RawSocket socket = meet();
  a.receive(1);
  a.send(2);
  ASSERT_FALSE(socket.receive(1).empty());
  leave(socket);
  EXPECT_EQ(a.completions(), 0U);
  EXPECT_EQ(a.qp().state(), QpState::kRts);
  EXPECT_EQ(a.qp().query().sq_outstanding, 1U);
  EXPECT_EQ(told(greeting()), roce::Verdict::kNotYet);  // nobody else gets it
  ASSERT_TRUE(a.qp().modify(QpState::kError));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(a.next().status, WcStatus::kFlushed);
}

TEST_F(WiringIdlePeer, WhatIsOutstandingWhenThePeerGoesEndsWithTheRetries) {
  RawSocket socket = meet(1);
  a.send(1);
  ASSERT_FALSE(socket.receive(1).empty());
  leave(socket);
  a.send(2);
  const WorkCompletion first = a.next();
  EXPECT_EQ(first.wr_id, 1U);
  EXPECT_EQ(describe(first.status), describe(WcStatus::kRetryExceeded));
  EXPECT_EQ(a.next().status, WcStatus::kFlushed);
  EXPECT_EQ(a.qp().state(), QpState::kError);
}

TEST_F(WiringIdlePeer, WiredAnewAQueuePairForgetsWhatWasOutstanding) {
  RawSocket socket = meet();
  a.send(1);
  ASSERT_FALSE(socket.receive(1).empty());
  leave(socket);
  ASSERT_TRUE(a.qp().modify(QpState::kReset));
  a.to_rtr(peer);
  expect_still_works();
}

// Nobody has an answer to give to these.
TEST_F(WiringIdlePeer, AcksOfWhatWasNotSentEndTheConnection) {
  for (std::uint32_t kind = 0; kind < 4; ++kind) {
    RawSocket socket = meet();
    acknowledge(socket, static_cast<AckKind>(kind), 1);
    EXPECT_TRUE(eventually([&] { return a.qp().state() == QpState::kError; })) << kind;
    ASSERT_TRUE(a.qp().modify(QpState::kReset));
  }
  a.to_rtr(peer);
  expect_still_works();
}

// Of one Send, each of these at a place where it can't be.
TEST_F(WiringIdlePeer, AcksThatContradictWhatWasSaidEndTheConnection) {
  using Said = std::vector<std::pair<AckKind, std::uint64_t>>;
  const Said wrong[] = {
      {{AckKind::kPlaced, 2}},                             // more than was asked for
      {{AckKind::kNotReady, 2}},                           // a Send that was not sent
      {{AckKind::kNotReady, 1}, {AckKind::kNotReady, 1}},  // again, before we have resumed
      {{AckKind::kPlaced, 1}, {AckKind::kNotReady, 1}},    // placed, and refused after all
      {{AckKind::kNotReady, 1}, {AckKind::kPlaced, 1}},    // refused, and placed after all
  };
  rnr_timer = 0;  // so that it does not resume meanwhile
  for (const Said& said : wrong) {
    SCOPED_TRACE(&said - wrong);
    RawSocket socket = meet();
    a.send(1);
    ASSERT_FALSE(next_ulpdu(socket).empty());
    for (const auto& [kind, value] : said) acknowledge(socket, kind, value);
    EXPECT_TRUE(eventually([&] { return a.qp().state() == QpState::kError; }));
    ASSERT_TRUE(a.qp().modify(QpState::kReset));
  }
  a.to_rtr(peer);
  expect_still_works();
}

// rnr_retry counts the attempts after the first, and each waits for what the peer has named.
TEST_F(WiringIdlePeer, ARefusedSendComesAgainExactlyAsOftenAsAllowed) {
  for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{3}}) {
    SCOPED_TRACE(int{retries});
    RawSocket socket = meet(0, retries);
    a.send(1);
    for (int attempt = 0; attempt <= retries; ++attempt) {
      const Bytes send = next_ulpdu(socket);
      ASSERT_EQ(send.size(), DdpUntagged::kSize + 8) << attempt;
      EXPECT_EQ(load_ddp_untagged(send.data()).msn, Msn::first());
      EXPECT_EQ(a.completions(), 0U);
      acknowledge(socket, AckKind::kNotReady, 1);
      if (attempt == retries) break;
      const Bytes resume = next_ulpdu(socket);
      ASSERT_EQ(resume.size(), DdpTagged::kSize);
      EXPECT_EQ(load_ddp_tagged(resume.data()).stag,
                Stag{static_cast<std::uint32_t>(AckKind::kResume)});
    }
    EXPECT_EQ(describe(a.next().status), describe(WcStatus::kRnrRetryExceeded));
    EXPECT_EQ(a.qp().state(), QpState::kError);
    EXPECT_TRUE(next_ulpdu(socket).empty());  // and no Terminate
    ASSERT_TRUE(a.qp().modify(QpState::kReset));
  }
}

// The receive stays with the queue pair, and is flushed with the others.
TEST_F(WiringIdlePeer, OneThatGoesInTheMiddleOfAMessageCostsNoReceive) {
  RawSocket socket = meet();
  a.receive(1);
  Bytes segment(DdpUntagged::kSize + 8);
  const DdpUntagged half{false, rdmap_control(Opcode::kSend), 0, kQueueSend, Msn::first(), 0};
  store_ddp(half, segment.data());
  socket.send(weft::testing::build_fpdu(segment));
  ASSERT_TRUE(eventually([&] { return a.qp().query().rq_outstanding == 0; }));  // taken
  leave(socket);
  EXPECT_EQ(a.completions(), 0U);
  EXPECT_EQ(a.qp().state(), QpState::kRts);
  ASSERT_TRUE(a.qp().modify(QpState::kError));
  const WorkCompletion wc = a.next();
  EXPECT_EQ(wc.wr_id, 1U);
  EXPECT_EQ(wc.status, WcStatus::kFlushed);
}

TEST_F(WiringIdlePeer, AHelloThatIsReplayedIsDeclinedAndDisturbsNobody) {
  const RawSocket socket = meet();
  EXPECT_EQ(told(greeting()), roce::Verdict::kBusy);
  EXPECT_TRUE(a.linked());
  a.send(1);
  EXPECT_FALSE(socket.receive(1).empty());  // to the one that was first
  ASSERT_TRUE(a.qp().modify(QpState::kReset));
  EXPECT_EQ(told(greeting()), roce::Verdict::kNotYet);
}

TEST_F(WiringIdlePeer, AHelloOfAnotherTypeIsDeclined) {
  WiringToReceive towards = a.towards(peer);
  towards.peer_number = roce::to_number({32768, 2});
  a.to_init();
  ASSERT_TRUE(a.qp().wire(towards));
  roce::Hello h = greeting();
  h.type = roce::QpType::kUc;
  EXPECT_EQ(told(h), roce::Verdict::kOtherType);
  EXPECT_FALSE(a.linked());
}

// It may be let in, or told that the queue pair is busy with its own attempt: by the numbers.
TEST_F(WiringStranger, OneThatGreetsAsThePeerAndHangsUpLeavesTheQueuePairAsItWas) {
  a.to_rtr(peer);
  RawSocket socket = knock();
  socket.send(octets(hello()));
  EXPECT_EQ(socket.receive(roce::Hello::kSize).size(), roce::Hello::kSize);
  socket.close();
  expect_still_works();
}

}  // namespace
}  // namespace weft::verbs::test
