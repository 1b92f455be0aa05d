// The lengths and the L bit that each operation allows. RFC 5040 section 4.3, RFC 7306.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;

// A ULPDU of this opcode and total length, the rest zero, right in every other way.
Bytes of_length(std::uint8_t opcode, std::size_t length) {
  const bool tagged = opcode == raw::kWrite || opcode == raw::kReadResponse;
  Bytes whole;
  if (tagged) {
    whole = raw::ulpdu(raw::Tagged{.opcode = opcode, .payload = raw::zeros(80)});
  } else {
    raw::Untagged u{.opcode = opcode, .payload = raw::zeros(80)};
    if (opcode == raw::kReadRequest || opcode == raw::kAtomicRequest) u.qn = 1;
    if (opcode == raw::kTerminate) u.qn = 2;
    if (opcode == raw::kAtomicResponse) u.qn = 3;
    whole = raw::ulpdu(u);
  }
  whole.resize(length);
  return whole;
}

struct Lengths {
  std::uint8_t opcode;
  std::size_t shortest, longest;  // 0: no limit
};
constexpr Lengths kLengths[] = {
    {raw::kWrite, 14, 0},        {raw::kReadRequest, 46, 46},   {raw::kReadResponse, 14, 0},
    {raw::kSend, 18, 0},         {raw::kSendInv, 18, 0},        {raw::kSendSe, 18, 0},
    {raw::kSendSeInv, 18, 0},    {raw::kTerminate, 22, 70},     {raw::kImmediate, 26, 26},
    {raw::kImmediateSe, 26, 26}, {raw::kAtomicRequest, 70, 70}, {raw::kAtomicResponse, 30, 30},
};

void expect_length_refused(std::uint8_t opcode, std::size_t length, raw::Code code, Attach attach,
                           AsyncEventType event) {
  SCOPED_TRACE("opcode " + std::to_string(opcode) + ", " + std::to_string(length) + " octets");
  Session s;
  post_empty_recvs(*s.weft.qp, 1, 1);
  s.expect_violation(of_length(opcode, length), code, attach);
  s.expect_async(event);
  s.expect_flushed_recvs({1});
}

// A segment that ends before its headers do is reported like one that ends before its FPDU does.
TEST(WireChecks, Row3SegmentTooShortForItsOpcodeTerminates) {
  for (const Lengths& l : kLengths) {
    for (const std::size_t length : {std::size_t{2}, l.shortest - 1}) {
      expect_length_refused(l.opcode, length, {2, 0, 3}, Attach::kNothing,
                            AsyncEventType::kQpFatal);
    }
  }
}

//= RFC 5040 section 4.2
//# The following figure defines which RDMA Headers MUST be used on each RDMA Message and which
//# RDMA Messages are allowed to carry ULP Payload:
TEST(WireChecks, Row3SegmentTooLongForItsOpcodeTerminates) {
  for (const Lengths& l : kLengths) {
    if (l.longest == 0) continue;
    expect_length_refused(l.opcode, l.longest + 1, {0, 2, 0xff}, Attach::kDdp,
                          AsyncEventType::kQpRequestError);
  }
}

//= RFC 7306 section 6.3
//# o The Remote Peer MUST check that Immediate Data and Immediate Data with SE Messages include
//# exactly 8 bytes of data from the DDP layer.
TEST(Rfc7306_6_3, ImmediateDataOfAnyOtherLengthThan8Terminates) {
  for (const std::size_t size : {0U, 1U, 4U, 7U, 9U, 16U, 100U}) {
    for (const std::uint8_t opcode : {raw::kImmediate, raw::kImmediateSe}) {
      SCOPED_TRACE(size);
      Session s;
      Memory in(s.host, 64);
      post_recv(*s.weft.qp, 1, {in.sge()});
      s.expect_violation(raw::ulpdu(raw::Untagged{.opcode = opcode, .payload = raw::zeros(size)}),
                         size < 8 ? raw::Code{2, 0, 3} : raw::Code{0, 2, 0xff},
                         size < 8 ? Attach::kNothing : Attach::kDdp);
      EXPECT_TRUE(in.untouched());
    }
  }
}

TEST(WireChecks, OperationsOfFixedLengthMustBeWholeMessages) {
  for (const std::uint8_t opcode :
       {raw::kReadRequest, raw::kTerminate, raw::kImmediate, raw::kAtomicRequest}) {
    SCOPED_TRACE(int{opcode});
    Bytes not_last = of_length(opcode, opcode == raw::kReadRequest     ? 46
                                       : opcode == raw::kTerminate     ? 22
                                       : opcode == raw::kAtomicRequest ? 70
                                                                       : 26);
    Bytes at_offset = not_last;
    not_last[0] &= static_cast<std::uint8_t>(~0x40U);
    Session a;
    post_empty_recvs(*a.weft.qp, 1, 2);
    a.expect_violation(not_last, {0, 2, 0xff}, Attach::kDdp);
    at_offset[17] = 8;
    Session b;
    post_empty_recvs(*b.weft.qp, 1, 2);
    b.expect_violation(at_offset, {1, 2, 4}, Attach::kDdp);
  }
}

// The longest Terminate is still taken for one.
TEST(WireChecks, TerminateOfTheLongestLengthIsTaken) {
  Session s;
  const Bytes read = raw::read_request(1, {.size = 8, .src_stag = 5, .src_to = 6});
  const Bytes terminate = raw::terminate({0, 1, 0}, Attach::kDdpAndRead, read);
  ASSERT_EQ(terminate.size(), 70U);
  s.peer.send_fpdu(terminate);
  s.peer.expect_closed();
  s.expect_failed();
  EXPECT_EQ(s.host.device->counters().terminates_received, 1U);
  EXPECT_EQ(s.host.device->counters().terminates_sent, 0U);
}

}  // namespace
}  // namespace weft::test
