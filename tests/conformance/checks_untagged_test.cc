// The checks on untagged segments, one by one and in their order: DDP rows 4 to 12 of the table
// that docs/wire-support.md explains.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;
using raw::Code;
using Async = AsyncEventType;

// One Send and what is wrong with it and with the receiver.
struct Attempt {
  raw::Untagged segment{.payload = raw::text("12345678")};
  raw::Spoil spoil;
  bool receive_posted = true;
};

struct Fault {
  int row;
  const char* what;
  Code code;
  Attach attach;
  Async event;
  void (*apply)(Attempt&);
};

const Fault kFaults[] = {
    {1,
     "CRC",
     {2, 0, 2},
     Attach::kNothing,
     Async::kQpFatal,
     [](Attempt& a) { a.spoil.crc_xor = 0x10; }},
    {4,
     "DDP version",
     {1, 2, 6},
     Attach::kNothing,
     Async::kQpFatal,
     [](Attempt& a) { a.segment.ddp_bits = 0x02; }},
    {5,
     "RDMAP version",
     {0, 2, 5},
     Attach::kNothing,
     Async::kQpFatal,
     [](Attempt& a) { a.segment.rdmap_bits = 0x80; }},
    {6,
     "opcode",
     {0, 2, 6},
     Attach::kDdp,
     Async::kQpRequestError,
     [](Attempt& a) { a.segment.opcode = 13; }},
    {8,
     "queue",
     {1, 2, 1},
     Attach::kDdp,
     Async::kQpRequestError,
     [](Attempt& a) { a.segment.qn = 5; }},
    {9,
     "MSN",
     {1, 2, 3},
     Attach::kDdp,
     Async::kQpRequestError,
     [](Attempt& a) { a.segment.msn = 2; }},
    {10,
     "no buffer",
     {1, 2, 2},
     Attach::kDdp,
     Async::kQpRequestError,
     [](Attempt& a) { a.receive_posted = false; }},
    {11,
     "MO",
     {1, 2, 4},
     Attach::kDdp,
     Async::kQpRequestError,
     [](Attempt& a) { a.segment.mo = 4; }},
    {12,
     "too long",
     {1, 2, 5},
     Attach::kDdp,
     Async::kQpRequestError,
     [](Attempt& a) { a.segment.payload = raw::pattern(33); }},
};

// Runs the attempt against a receive of 32 octets and expects the effect of `fault`.
void expect_fault(Role role, const Attempt& a, const Fault& fault) {
  Session s({.role = role});
  Memory in(s.host, 32);
  if (a.receive_posted) post_recv(*s.weft.qp, 1, {in.sge()});
  s.expect_violation(raw::ulpdu(a.segment), fault.code, fault.attach, a.spoil);
  if (a.receive_posted) {
    const WorkCompletion wc = take(*s.weft.recv_cq);
    EXPECT_EQ(wc.status, fault.row == 12 ? WcStatus::kLocalLength : WcStatus::kFlushed);
    EXPECT_EQ(wc.wr_id, 1U);
  }
  EXPECT_TRUE(quiet(*s.weft.recv_cq, milliseconds(2)));
  if (fault.row != 12) s.expect_async(fault.event);
  EXPECT_TRUE(in.untouched());
}

void expect_row(int row) {
  for (const Fault& fault : kFaults) {
    if (fault.row != row) continue;
    for (const Role role : kBothRoles) {
      SCOPED_TRACE(std::string(fault.what) + ", " + to_string(role));
      Attempt a;
      fault.apply(a);
      expect_fault(role, a, fault);
    }
  }
}

//= RFC 5041 section 4.1
//# This field MUST be set to one to indicate the version of the specification described in this
//# document.
TEST(WireChecks, Row4UntaggedSegmentOfAnotherDdpVersionTerminates) {
  expect_row(4);
  for (const std::uint8_t version : {std::uint8_t{0}, std::uint8_t{2}, std::uint8_t{3}}) {
    Session s;
    s.expect_violation(raw::ulpdu(raw::Untagged{.payload = {}, .ddp_bits = version}), {1, 2, 6},
                       Attach::kNothing);
  }
}

//= RFC 5040 section 7.2
//# The RDMA Version MUST be valid.
TEST(WireChecks, Row5AnotherRdmapVersionTerminates) {
  expect_row(5);
  for (const std::uint8_t version : {std::uint8_t{0}, std::uint8_t{0x80}, std::uint8_t{0xc0}}) {
    Session s;
    s.expect_violation(raw::ulpdu(raw::Untagged{.payload = {}, .rdmap_bits = version}), {0, 2, 5},
                       Attach::kNothing);
  }
}

//= RFC 5040 section 7.2
//# The RDMA OpCode MUST be valid.
TEST(WireChecks, Row6UnassignedOpcodeTerminates) {
  expect_row(6);
  for (const std::uint8_t opcode :
       {std::uint8_t{12}, std::uint8_t{13}, std::uint8_t{14}, std::uint8_t{15}}) {
    SCOPED_TRACE(int{opcode});
    Session untagged;
    untagged.expect_violation(raw::ulpdu(raw::Untagged{.opcode = opcode, .payload = {}}), {0, 2, 6},
                              Attach::kDdp);
    Session tagged;
    tagged.expect_violation(raw::ulpdu(raw::Tagged{.opcode = opcode, .payload = {}}), {0, 2, 6},
                            Attach::kDdp);
    tagged.expect_async(Async::kQpRequestError);
  }
}

//= RFC 5040 section 4.1
//# Figure 4, "RDMA Usage of DDP Fields", MUST be used to define the value of the Tagged flag that
//# is handed to the DDP layer for each RDMA Message.
TEST(WireChecks, Row7TaggedFlagThatDoesNotFitTheOpcodeTerminates) {
  for (std::uint8_t opcode = 0; opcode <= raw::kAtomicResponse; ++opcode) {
    SCOPED_TRACE(int{opcode});
    const bool tagged = opcode == raw::kWrite || opcode == raw::kReadResponse;
    const Bytes bad = tagged
                          ? raw::ulpdu(raw::Untagged{.opcode = opcode, .payload = raw::zeros(52)})
                          : raw::ulpdu(raw::Tagged{.opcode = opcode, .payload = raw::zeros(56)});
    Session s;
    post_empty_recvs(*s.weft.qp, 1, 1);
    s.expect_violation(bad, {0, 2, 6}, Attach::kDdp);
    s.expect_async(Async::kQpRequestError);
    s.expect_flushed_recvs({1});
  }
}

TEST(WireChecks, Row8WrongQueueTerminates) {
  expect_row(8);
  struct Case {
    std::uint8_t opcode;
    std::uint32_t qn;
    std::size_t payload;
  };
  const Case cases[] = {
      {raw::kSend, 1, 8},
      {raw::kSend, 2, 8},
      {raw::kSend, 3, 8},
      {raw::kSend, 4, 8},
      {raw::kSend, 0xffffffff, 8},
      {raw::kSendInv, 1, 8},
      {raw::kReadRequest, 0, 28},
      {raw::kReadRequest, 2, 28},
      {raw::kTerminate, 0, 4},
      {raw::kTerminate, 1, 4},
      {raw::kImmediate, 1, 8},
      {raw::kAtomicRequest, 0, 52},
      {raw::kAtomicRequest, 3, 52},
      {raw::kAtomicResponse, 0, 12},
      {raw::kAtomicResponse, 1, 12},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::to_string(c.opcode) + " on queue " + std::to_string(c.qn));
    Session s;
    post_empty_recvs(*s.weft.qp, 1, 1);
    s.expect_violation(
        raw::ulpdu(raw::Untagged{.opcode = c.opcode, .qn = c.qn, .payload = raw::zeros(c.payload)}),
        {1, 2, 1}, Attach::kDdp);
  }
}

//= RFC 5041 section 4.3
//# The initial value for MSN MUST be one.
TEST(WireChecks, Row9UnexpectedMessageNumberTerminates) {
  expect_row(9);
  for (const std::uint32_t msn : {0U, 2U, 0xffffffffU}) {
    SCOPED_TRACE(msn);
    Session first;
    post_empty_recvs(*first.weft.qp, 1, 4);
    first.expect_violation(raw::send(msn, {}), {1, 2, 3}, Attach::kDdp);
  }
  Session again;
  post_empty_recvs(*again.weft.qp, 1, 4);
  again.peer.send_fpdu(raw::send(1, {}));
  take_success(*again.weft.recv_cq, 1);
  again.expect_violation(raw::send(1, {}), {1, 2, 3}, Attach::kDdp);
  again.expect_flushed_recvs({2, 3, 4});
}

TEST(WireChecks, Row9HoldsForReadRequestsAndAtomicsToo) {
  Session read;
  read.expect_violation(raw::read_request(2, {}), {1, 2, 3}, Attach::kDdp);
  read.expect_async(Async::kQpRequestError);
  Session atomic;
  atomic.expect_violation(raw::atomic_request(0, {}), {1, 2, 3}, Attach::kDdp);
  Session shared;
  shared.peer.send_fpdu(raw::read_request(1, {.size = 0}));
  (void)shared.peer.recv_segment(raw::kReadResponse);
  shared.expect_violation(raw::atomic_request(1, {}), {1, 2, 3}, Attach::kDdp);
}

TEST(WireChecks, Row10SendWithoutAReceivePostedTerminates) { expect_row(10); }

TEST(WireChecks, Row10ImmediateDataWithoutAReceivePostedTerminates) {
  Session s;
  s.expect_violation(raw::immediate(1, 5), {1, 2, 2}, Attach::kDdp);
  s.expect_async(Async::kQpRequestError);
}

TEST(WireChecks, Row10AtomicResponseWithoutAnAtomicOutstandingTerminates) {
  Session s;
  s.expect_violation(raw::atomic_response(1, 0, 0), {1, 2, 2}, Attach::kDdp);
  s.expect_async(Async::kQpRequestError);
}

// Sends one message in two segments; the second starts at `mo`.
void expect_bad_continuation(raw::Untagged second, Code code) {
  Session s;
  Memory in(s.host, 64);
  post_recv(*s.weft.qp, 1, {in.sge()});
  s.peer.send_fpdu(raw::ulpdu(raw::Untagged{.last = false, .payload = raw::pattern(16)}));
  s.expect_violation(raw::ulpdu(second), code, Attach::kDdp);
  const WorkCompletion wc = take(*s.weft.recv_cq);
  const bool too_long = code.code == 5;
  EXPECT_EQ(wc.status, too_long ? WcStatus::kLocalLength : WcStatus::kFlushed);
  EXPECT_EQ(in.copy(16, 48), Bytes(48, 0xee));
  EXPECT_TRUE(in.guards_intact());
}

TEST(WireChecks, Row11MessageOffsetThatLeavesAGapOrRepeatsTerminates) {
  expect_row(11);
  for (const std::uint32_t mo : {0U, 15U, 17U, 32U, 0xffffffffU}) {
    SCOPED_TRACE(mo);
    expect_bad_continuation({.mo = mo, .payload = raw::pattern(8)}, {1, 2, 4});
  }
}

TEST(WireChecks, Row9MessageNumberThatChangesInsideAMessageTerminates) {
  expect_bad_continuation({.msn = 2, .mo = 16, .payload = raw::pattern(8)}, {1, 2, 3});
  expect_bad_continuation({.msn = 2, .mo = 0, .payload = raw::pattern(8)}, {1, 2, 3});
}

TEST(WireChecks, Row12MessageTooLongTerminates) {
  expect_row(12);
  expect_bad_continuation({.mo = 16, .payload = raw::pattern(49)}, {1, 2, 5});
  expect_bad_continuation({.last = false, .mo = 16, .payload = raw::pattern(49)}, {1, 2, 5});
}

TEST(WireChecks, Row12MessageThatJustFitsIsTaken) {
  Session s;
  Memory in(s.host, 64);
  post_recv(*s.weft.qp, 1, {in.sge(0, 40), in.sge(40, 24)});
  s.peer.send_fpdu(raw::send(1, raw::pattern(64)));
  EXPECT_EQ(take_success(*s.weft.recv_cq, 1).byte_len, 64U);
  EXPECT_EQ(in.copy(0, 64), raw::pattern(64));
  EXPECT_TRUE(in.guards_intact());
}

TEST(WireChecks, Row12NonEmptySendIntoAnEmptyReceiveTerminates) {
  Session s;
  post_recv(*s.weft.qp, 1, {});
  s.expect_violation(raw::send(1, raw::text("x")), {1, 2, 5}, Attach::kDdp);
  EXPECT_EQ(take(*s.weft.recv_cq).status, WcStatus::kLocalLength);
}

//= RFC 5041 section 7.1
//# For non-zero-length Untagged DDP Segments, the DDP Segment MUST be validated before Placement
//# by verifying:
TEST(WireChecks, OfTwoFaultsInAnUntaggedSegmentTheEarlierRowIsReported) {
  for (const Fault& first : kFaults) {
    for (const Fault& second : kFaults) {
      if (second.row <= first.row) continue;
      SCOPED_TRACE(std::string(first.what) + " and " + second.what);
      Attempt a;
      first.apply(a);
      second.apply(a);
      expect_fault(Role::kResponder, a, first);
    }
  }
}

TEST(WireChecks, Row3WrongLengthIsFoundAfterTheOpcodeAndBeforeTheQueue) {
  const auto spoiled = [](std::uint8_t opcode, std::uint8_t rdmap_bits) {
    return raw::ulpdu(raw::Untagged{
        .opcode = opcode, .qn = 7, .msn = 9, .payload = raw::zeros(9), .rdmap_bits = rdmap_bits});
  };
  Session length;
  length.expect_violation(spoiled(raw::kImmediate, 0x40), {0, 2, 0xff}, Attach::kDdp);
  length.expect_async(Async::kQpRequestError);
  Session version;
  version.expect_violation(spoiled(raw::kImmediate, 0x00), {0, 2, 5}, Attach::kNothing);
  Session opcode;
  opcode.expect_violation(spoiled(14, 0x40), {0, 2, 6}, Attach::kDdp);
}

}  // namespace
}  // namespace weft::test
