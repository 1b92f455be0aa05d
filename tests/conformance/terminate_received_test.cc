// Terminates that a peer sends: each code of the registry, in the octet layout of the RFC and in
// that of Linux siw, gives the named request its status and every other request a flush, once.
#include <gtest/gtest.h>

#include <set>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;
using raw::Code;
using raw::Layout;

constexpr std::uint32_t kBig = 2U << 20U;

// What the second of three requests is. It is under way when the Terminate comes: a Write or Send
// because the peer does not read, a Read because it is not answered.
enum class Named { kWrite, kSend, kSendInvalidate, kRead };

Start not_reading(Role role) {
  Start start;
  start.role = role;
  start.config.socket_buffer_bytes = 65536;
  start.socket.receive_buffer_bytes = 16384;
  return start;
}

// A Read, then the named request, then a Send; and two receives.
struct UnderWay {
  explicit UnderWay(Named named, Role role = Role::kInitiator)
      : s(not_reading(role)), memory(s.host, kBig) {
    // Data has flowed: some Terminates of the two layouts look alike only during set-up.
    s.peer.send_fpdu(raw::write(0, 0, {}));
    post_empty_recvs(*s.weft.qp, 101, 2);
    post(*s.weft.qp, wr_read(1, 0x70, 0x100), {memory.sge(0, 8)});
    first_read = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
    // It is under way once its first segment is there: a doorbell may wait a moment.
    switch (named) {
      case Named::kWrite:
        post(*s.weft.qp, wr_write(2, 0x71, 0x1000), {memory.sge()});
        (void)s.peer.recv_segment();
        offending = raw::ulpdu(
            raw::Tagged{.last = false, .stag = 0x71, .to = 0x1000, .payload = raw::zeros(64)});
        break;
      case Named::kSend:
        post(*s.weft.qp, wr_send(2), {memory.sge()});
        (void)s.peer.recv_segment();
        offending = raw::ulpdu(raw::Untagged{.last = false, .payload = raw::zeros(64)});
        break;
      case Named::kSendInvalidate:
        post(*s.weft.qp, wr_send_invalidate(2, 0x72), {memory.sge()});
        (void)s.peer.recv_segment();
        offending = raw::ulpdu(raw::Untagged{
            .opcode = raw::kSendInv, .last = false, .payload = raw::zeros(64), .rsvd = 0x72});
        break;
      case Named::kRead:
        post(*s.weft.qp, wr_read(2, 0x73, 0x200), {memory.sge(8, 8)});
        offending = s.peer.recv_segment(raw::kReadRequest).whole;
        break;
    }
    post(*s.weft.qp, wr_send(3), {memory.sge(0, named == Named::kRead ? kBig : 8)});
  }

  // All three requests and both receives complete, request `id` with this status, in order.
  void expect(std::uint64_t id, WcStatus status, Code code, int line = __builtin_LINE()) {
    for (std::uint64_t i = 1; i <= 3; ++i) {
      const WorkCompletion wc = take(*s.weft.send_cq, line);
      EXPECT_EQ(wc.wr_id, i) << "line " << line;
      const WcStatus want = i == id ? status : WcStatus::kFlushed;
      EXPECT_EQ(wc.status, want) << "line " << line << ": " << to_string(wc) << ", expected "
                                 << describe(want);
      if (i == id) {
        EXPECT_EQ(wc.vendor_error,
                  static_cast<std::uint32_t>(code.layer << 16 | code.type << 8 | code.code))
            << "line " << line;
      }
    }
    s.expect_flushed_recvs({101, 102}, line);
    EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(5))) << "line " << line;
    // Nothing goes back but what was under way: no Terminate in answer to one.
    for (const raw::Segment& seg : s.peer.recv_to_end(line)) {
      EXPECT_NE(seg.opcode, raw::kTerminate) << "line " << line;
    }
    s.peer.close();
    s.expect_failed(line);
    EXPECT_EQ(s.host.device->counters().terminates_sent, 0U) << "line " << line;
    EXPECT_EQ(s.host.device->counters().terminates_received, 1U) << "line " << line;
  }

  Session s;
  Memory memory;
  raw::ReadFields first_read;
  Bytes offending;
};

struct Row {
  Code code;
  Named named;
  Attach attach;
  WcStatus status;
};

constexpr auto kAccess = WcStatus::kRemoteAccess;
constexpr auto kInvalid = WcStatus::kRemoteInvalidRequest;
constexpr auto kOperation = WcStatus::kRemoteOperation;
constexpr auto kDdp = Attach::kDdp;
constexpr auto kRead = Attach::kDdpAndRead;

const Row kNamedRows[] = {
    {{0, 1, 0x00}, Named::kRead, kRead, kAccess},
    {{0, 1, 0x01}, Named::kRead, kRead, kAccess},
    {{0, 1, 0x02}, Named::kRead, kRead, kAccess},
    {{0, 1, 0x03}, Named::kRead, kRead, kAccess},
    {{0, 1, 0x04}, Named::kRead, kRead, kAccess},
    {{0, 1, 0xff}, Named::kRead, kRead, kAccess},
    {{0, 1, 0x02}, Named::kWrite, kDdp, kAccess},  // as Chelsio reports a missing write right
    {{0, 1, 0x09}, Named::kSendInvalidate, kDdp, kInvalid},
    {{0, 2, 0x05}, Named::kSend, kDdp, kInvalid},
    {{0, 2, 0x06}, Named::kSend, kDdp, kInvalid},
    {{0, 2, 0x06}, Named::kRead, kDdp, kInvalid},
    {{0, 2, 0x07}, Named::kRead, kDdp, kOperation},
    {{0, 2, 0x08}, Named::kWrite, kDdp, kOperation},
    {{0, 2, 0x09}, Named::kSendInvalidate, kDdp, kInvalid},
    {{0, 2, 0xff}, Named::kSend, kDdp, kOperation},
    {{1, 0, 0x00}, Named::kWrite, kDdp, kOperation},
    {{1, 1, 0x00}, Named::kWrite, kDdp, kAccess},
    {{1, 1, 0x01}, Named::kWrite, kDdp, kAccess},
    {{1, 1, 0x02}, Named::kWrite, kDdp, kAccess},
    {{1, 1, 0x03}, Named::kWrite, kDdp, kAccess},
    {{1, 1, 0x04}, Named::kWrite, kDdp, kInvalid},
    {{1, 2, 0x01}, Named::kSend, kDdp, kInvalid},
    {{1, 2, 0x02}, Named::kSend, kDdp, WcStatus::kRnrRetryExceeded},
    {{1, 2, 0x02}, Named::kRead, kDdp, kInvalid},
    {{1, 2, 0x03}, Named::kSend, kDdp, kInvalid},
    {{1, 2, 0x04}, Named::kSend, kDdp, kInvalid},
    {{1, 2, 0x05}, Named::kSend, kDdp, kInvalid},
    {{1, 2, 0x06}, Named::kSend, kDdp, kInvalid},
    {{1, 3, 0x00}, Named::kSend, kDdp, kOperation},
    {{1, 3, 0x42}, Named::kSend, kDdp, kOperation},
};

//= RFC 5040 section 5.4
//# The RDMAP layer MUST Deliver the Terminate Message to the ULP.
TEST(TerminateReceived, EachCodeGivesTheNamedRequestItsStatus) {
  for (const Row& row : kNamedRows) {
    SCOPED_TRACE(raw::to_string(row.code));
    UnderWay u(row.named);
    u.s.peer.send_fpdu(raw::terminate(row.code, row.attach, u.offending));
    u.expect(2, row.status, row.code);
  }
}

TEST(TerminateReceived, EachCodeInTheLayoutOfLinuxSiwMeansTheSame) {
  for (const Row& row : kNamedRows) {
    SCOPED_TRACE(raw::to_string(row.code));
    UnderWay u(row.named);
    u.s.peer.send_fpdu(raw::terminate(row.code, row.attach, u.offending, Layout::kSiw));
    u.expect(2, row.status, row.code);
  }
}

TEST(TerminateReceived, WithoutAHeaderTheOldestUnfinishedRequestIsMeant) {
  struct Bare {
    Code code;
    WcStatus status;
  };
  const Bare bare[] = {
      {{0, 0, 0x00}, kOperation}, {{0, 0, 0x01}, kOperation}, {{0, 2, 0x05}, kInvalid},
      {{0, 2, 0x07}, kOperation}, {{0, 2, 0x08}, kOperation}, {{1, 0, 0x00}, kOperation},
      {{1, 1, 0x04}, kInvalid},   {{1, 2, 0x06}, kInvalid},   {{1, 1, 0x01}, kAccess},
      {{2, 0, 0x02}, kOperation}, {{2, 0, 0x03}, kOperation},
  };
  for (const Bare& b : bare) {
    SCOPED_TRACE(raw::to_string(b.code));
    UnderWay u(Named::kWrite);
    u.s.peer.send_fpdu(raw::terminate(b.code));
    u.expect(1, b.status, b.code);
  }
}

TEST(TerminateReceived, BareTerminatesOfLinuxSiwAreReadInItsLayout) {
  struct Bare {
    Code code;
    WcStatus status;
  };
  const Bare bare[] = {{{1, 2, 0x06}, kInvalid},
                       {{0, 2, 0x05}, kInvalid},
                       {{0, 2, 0x06}, kInvalid},
                       {{2, 0, 0x02}, kOperation},
                       {{2, 0, 0x03}, kOperation}};
  for (const Bare& b : bare) {
    SCOPED_TRACE(raw::to_string(b.code));
    UnderWay u(Named::kWrite, Role::kResponder);
    u.s.peer.send_fpdu(raw::terminate(b.code, Attach::kNothing, {}, Layout::kSiw));
    u.expect(1, b.status, b.code);
  }
}

TEST(TerminateReceived, LossOfTcpReportedByThePeerFlushesEverything) {
  UnderWay u(Named::kWrite);
  u.s.peer.send_fpdu(raw::terminate({2, 0, 1}));
  u.expect(0, WcStatus::kFlushed, {2, 0, 1});
}

// The worked examples of siw, built from its source.
TEST(TerminateReceived, WorkedExamplesOfSiwAreTaken) {
  const char* const examples[] = {
      "0026 4147 00000000 00000002 00000001 00000000 11 01 03 00 000a c140 01020304"
      "0000000000001000 1ffb8b66",
      "002a 4147 00000000 00000002 00000001 00000000 21 02 03 00 0005 4143 00000000 00000000"
      "00000001 00000000 c5d505cb",
      "0016 4147 00000000 00000002 00000001 00000000 02 02 00 00 75d367ed"};
  const WcStatus statuses[] = {kAccess, WcStatus::kRnrRetryExceeded, kOperation};
  for (std::size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    Session s(not_reading(Role::kInitiator));
    Memory memory(s.host, kBig);
    if (i == 1) {
      post(*s.weft.qp, wr_send(1), {memory.sge()});
    } else {
      post(*s.weft.qp, wr_write(1, 0x01020304, 0x1000), {memory.sge()});
    }
    s.peer.send(raw::hex(examples[i]));
    EXPECT_EQ(take(*s.weft.send_cq).status, statuses[i]);
    s.expect_failed();
  }
}

// Peers attach less, or more, than they should.
TEST(TerminateReceived, ShortMissingAndZeroFilledHeadersAreTaken) {
  const Bytes write =
      raw::ulpdu(raw::Tagged{.last = false, .stag = 0x71, .to = 0x1000, .payload = {}});
  const Bytes whole = raw::terminate({1, 1, 1}, Attach::kDdp, write);
  const auto cut = [&](std::ptrdiff_t octets) {
    return Bytes(whole.begin(), whole.begin() + octets);
  };
  const Bytes no_header = raw::terminate({1, 1, 1});
  const Bytes zero_filled = no_header + raw::zeros(48);
  Bytes r_without_read = whole;
  r_without_read[20] |= 0x20;
  struct Case {
    const char* what;
    Bytes ulpdu;
  };
  const Case cases[] = {{"only the length", cut(24)},
                        {"half a header", cut(31)},
                        {"flags and nothing behind them", cut(22)},
                        {"zero-filled", zero_filled},
                        {"R without a Read header", r_without_read}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    UnderWay u(Named::kWrite);
    u.s.peer.send_fpdu(c.ulpdu);
    std::set<std::uint64_t> failed;
    for (const WorkCompletion& wc : take_n(*u.s.weft.send_cq, 3)) {
      if (wc.status == kAccess) failed.insert(wc.wr_id);
    }
    // The Write where its header came, else the oldest; but exactly one.
    EXPECT_EQ(failed.size(), 1U);
    EXPECT_FALSE(failed.contains(3));
    EXPECT_TRUE(quiet(*u.s.weft.send_cq, milliseconds(5)));
    u.s.expect_flushed_recvs({101, 102});
    u.s.expect_failed();
  }
}

TEST(TerminateReceived, AsTheFirstFpduEndsTheConnection) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role, .warm_up = false});
    post_empty_recvs(*s.weft.qp, 1, 2);
    s.peer.send_fpdu(raw::terminate({0, 0, 0}));
    s.peer.expect_closed();
    s.expect_flushed_recvs({1, 2});
    s.expect_failed();
  }
}

//= RFC 5040 section 5.4
//# * After sending a Terminate Message on an RDMAP Stream, the Local Peer MUST NOT send any more
//# Messages on that specific RDMAP Stream.
TEST(TerminateReceived, WhatFollowsItIsNotTaken) {
  Session s;
  post_empty_recvs(*s.weft.qp, 1, 1);
  s.peer.send_fpdus({raw::terminate({0, 0, 0}),
                     raw::write(s.canary.rkey(), s.canary.to(), raw::text("after all")),
                     raw::send(1, {})});
  s.expect_flushed_recvs({1});
  s.expect_failed();
  EXPECT_TRUE(s.canary.untouched());
}

TEST(TerminateReceived, WithNothingOutstandingOnlyTheConnectionEnds) {
  Session s;
  s.peer.send_fpdu(raw::terminate({1, 2, 2}, Attach::kDdp, raw::send(1, {})));
  s.peer.expect_closed();
  s.expect_failed();
  EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(10)));
}

}  // namespace
}  // namespace weft::test
