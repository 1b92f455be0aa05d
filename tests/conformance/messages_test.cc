// DDP messages and RDMAP Sends and Writes in both directions. RFC 5041 sections 4 and 5, RFC 5040
// sections 4.1, 5.1, 5.3 and 5.5.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Bytes;

//= RFC 5040 section 5.3
//# * At the Remote Peer, the Send Message Type MUST be Delivered to the Remote Peer's ULP in the
//# order they were sent.
TEST(Rfc5040_5_3, SendsOfEveryKindAreDeliveredInOrder) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role});
    Memory in(s.host, 400);
    const std::uint8_t kinds[] = {raw::kSend, raw::kSendSe};
    for (std::uint32_t i = 0; i < 4; ++i) post_recv(*s.weft.qp, i, {in.sge(i * 100, 100)});
    for (std::uint32_t i = 0; i < 4; ++i) {
      s.peer.send_fpdu(raw::send(i + 1, raw::pattern(i * 30, i), kinds[i % 2]));
    }
    for (std::uint32_t i = 0; i < 4; ++i) {
      const WorkCompletion wc = take_success(*s.weft.recv_cq, i);
      EXPECT_EQ(wc.op, WcOp::kRecv);
      EXPECT_EQ(wc.byte_len, i * 30);
      EXPECT_EQ(wc.qp_num, s.weft.qp->number());
      EXPECT_EQ(has(wc.flags, WcFlags::kSolicited), i % 2 == 1);
      EXPECT_EQ(in.copy(i * 100, i * 30), raw::pattern(i * 30, i));
    }
    EXPECT_TRUE(in.guards_intact());
  }
}

//= RFC 5040 section 5.3
//# A zero-length Send Message Type MUST consume an Untagged Buffer at the Data Sink.
TEST(Rfc5040_5_3, ZeroLengthSendConsumesAReceive) {
  Session s;
  Memory in(s.host, 16);
  post_recv(*s.weft.qp, 1, {in.sge()});
  post_recv(*s.weft.qp, 2, {});
  s.peer.send_fpdus({raw::send(1, {}), raw::send(2, {})});
  EXPECT_EQ(take_success(*s.weft.recv_cq, 1).byte_len, 0U);
  EXPECT_EQ(take_success(*s.weft.recv_cq, 2).byte_len, 0U);
  EXPECT_TRUE(in.untouched());
}

//= RFC 5041 section 4.1
//# This field MUST be set to zero on transmit, and not checked on receive.
TEST(Rfc5041_4_1, ReservedBitsOfSegmentsAreNotChecked) {
  Session s;
  Memory in(s.host, 16);
  Memory target(s.host, 16);
  post_recv(*s.weft.qp, 1, {in.sge()});
  s.peer.send_fpdu(raw::ulpdu(raw::Tagged{.stag = target.rkey(),
                                          .to = target.to(),
                                          .payload = raw::pattern(4),
                                          .ddp_bits = 0x3d,
                                          .rdmap_bits = 0x70}));
  s.peer.send_fpdu(
      raw::ulpdu(raw::Untagged{.payload = raw::pattern(5), .ddp_bits = 0x3d, .rdmap_bits = 0x70}));
  take_success(*s.weft.recv_cq, 1);
  EXPECT_EQ(in.copy(0, 5), raw::pattern(5));
  EXPECT_EQ(target.copy(0, 4), raw::pattern(4));
}

//= RFC 5040 section 4.1
//# For Send, Send with Solicited Event, RDMA Read Request, and Terminate, the Invalidate STag
//# field MUST be set to zero on transmit and ignored by the receiver.
TEST(Rfc5040_4_1, InvalidateFieldOfPlainSendsIsIgnored) {
  Session s;
  post_empty_recvs(*s.weft.qp, 1, 2);
  s.peer.send_fpdu(raw::ulpdu(raw::Untagged{.payload = {}, .rsvd = s.canary.rkey()}));
  s.peer.send_fpdu(raw::ulpdu(
      raw::Untagged{.opcode = raw::kSendSe, .msn = 2, .payload = {}, .rsvd = 0xffffffff}));
  for (std::uint64_t id = 1; id <= 2; ++id) {
    EXPECT_FALSE(has(take_success(*s.weft.recv_cq, id).flags, WcFlags::kWithInvalidate));
  }
  s.peer.send_fpdu(raw::write(s.canary.rkey(), s.canary.to(), raw::text("still valid")));
  s.expect_alive(3, 3);
  EXPECT_EQ(s.canary.copy(0, 11), raw::text("still valid"));
}

//= RFC 5041 section 4.1
//# It MUST be set to one on the last DDP Segment of every DDP Message.
//= RFC 5041 section 4.1
//# It MUST NOT be set to one on any other DDP Segment.
//= RFC 5041 section 5.2
//# For each DDP Segment of a Untagged DDP Message, the MO MUST be set to the octet offset from the
//# first octet in the associated ULP Message (which is defined to be zero) to the first octet in
//# the ULP Payload contained in the DDP Segment.
//= RFC 5041 section 4.3
//# Each DDP segment within a specific DDP message MUST contain the same value for this field.
TEST(Rfc5041_5_2, LongSendIsCutIntoSegmentsInOrder) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role, .fpdu = FpduPolicy::kCapped});
    Memory out(s.host, 100000);
    out.fill_pattern(1);
    for (std::uint32_t msn = 1; msn <= 3; ++msn) {
      post(*s.weft.qp, wr_send(msn), {out.sge(0, 10), out.sge(10, 70000), out.sge(70010, 29990)});
      Bytes got;
      for (bool last = false; !last;) {
        const raw::Segment seg = s.peer.recv_segment(raw::kSend);
        EXPECT_EQ(seg.msn, msn);
        EXPECT_EQ(seg.mo, got.size());
        got += seg.payload;
        last = seg.last;
        EXPECT_EQ(last, got.size() == 100000);
      }
      EXPECT_EQ(got, out.copy(0, 100000));
    }
  }
}

//= RFC 5041 section 5.2
//# For each DDP Segment of a Tagged DDP Message, the TO MUST be set to the octet offset from the
//# first octet in the associated ULP Message to the first octet in the ULP Payload contained in
//# the DDP Segment, plus the TO assigned to the first octet in the associated ULP Message.
//= RFC 5041 section 4.2
//# The Data Source MUST ensure that each DDP Segment within a specific DDP Message contains the
//# same value for this field.
TEST(Rfc5041_5_2, LongWriteIsCutIntoSegmentsInOrder) {
  Session s({.fpdu = FpduPolicy::kCapped});
  Memory out(s.host, 100000);
  out.fill_pattern(2);
  post(*s.weft.qp, wr_write(1, 0xcafe0001, 0x123456789a),
       {out.sge(0, 33333), out.sge(33333, 66667)});
  Bytes got;
  for (bool last = false; !last;) {
    const raw::Segment seg = s.peer.recv_segment(raw::kWrite);
    EXPECT_EQ(seg.stag, 0xcafe0001U);
    EXPECT_EQ(seg.to, 0x123456789aULL + got.size());
    got += seg.payload;
    last = seg.last;
    EXPECT_EQ(last, got.size() == 100000);
  }
  EXPECT_EQ(got, out.copy(0, 100000));
}

//= RFC 5041 section 5.2
//# 1486 = 1500 (MULPDU) - 14 (for the DDP Header) A zero-length DDP Message is allowed and MUST
//# consume exactly one DDP Segment.
TEST(Rfc5041_5_2, EmptyMessagesAreOneSegmentEach) {
  Session s;
  post(*s.weft.qp, wr_send(1), {});
  post(*s.weft.qp, wr_write(2, 5, 6), {});
  const raw::Segment send = s.peer.recv_segment(raw::kSend);
  EXPECT_TRUE(send.last);
  EXPECT_TRUE(send.payload.empty());
  EXPECT_EQ(send.mo, 0U);
  const raw::Segment write = s.peer.recv_segment(raw::kWrite);
  EXPECT_TRUE(write.last);
  EXPECT_TRUE(write.payload.empty());
  EXPECT_TRUE(s.peer.quiet());
}

//= RFC 5041 section 4.3
//# The Message Sequence Number specifies a sequence number that MUST be increased by one (modulo
//# 2^32) with each DDP Message targeting the specific Queue Number on the DDP Stream associated
//# with this DDP Segment.
TEST(Rfc5041_4_3, EachQueueCountsItsOwnMessagesFromOne) {
  Session s;
  Memory memory(s.host, 64);
  post(*s.weft.qp, wr_send(1), {});
  post(*s.weft.qp, wr_read(2, 1, 0), {memory.sge(0, 8)});
  post(*s.weft.qp, wr_write(3, 1, 0), {memory.sge(0, 8)});
  post(*s.weft.qp, wr_immediate(4, 1), {});
  post(*s.weft.qp, wr_fetch_add(5, 1, 0, 1), {memory.sge(8, 8)});
  EXPECT_EQ(s.peer.recv_segment(raw::kSend).msn, 1U);
  EXPECT_EQ(s.peer.recv_segment(raw::kReadRequest).msn, 1U);
  (void)s.peer.recv_segment(raw::kWrite);
  EXPECT_EQ(s.peer.recv_segment(raw::kImmediate).msn, 2U);
  EXPECT_EQ(s.peer.recv_segment(raw::kAtomicRequest).msn, 2U);
}

//= RFC 5040 section 4.1
//# Figure 4 defines the value of the RDMA Opcode field that MUST be used for each RDMA Message.
//= RFC 5040 section 4.1
//# For Send with Invalidate and Send with Solicited Event and Invalidate, the second through fifth
//# octets of the DDP RsvdULP field MUST be used by RDMAP to carry the Invalidate STag.
TEST(Rfc5040_4_1, EachSendKindHasItsOpcode) {
  Session s;
  SendWr inv = wr_send_invalidate(3, 0x01020304);
  SendWr se_inv = wr_send_invalidate(4, 0x05060708);
  se_inv.flags = SendFlags::kSignaled | SendFlags::kSolicited;
  post(*s.weft.qp, wr_send(1), {});
  post(*s.weft.qp, wr_send(2, SendFlags::kSignaled | SendFlags::kSolicited), {});
  post(*s.weft.qp, inv, {});
  post(*s.weft.qp, se_inv, {});
  EXPECT_EQ(s.peer.recv_segment().opcode, raw::kSend);
  EXPECT_EQ(s.peer.recv_segment().opcode, raw::kSendSe);
  EXPECT_EQ(s.peer.recv_segment(raw::kSendInv).rsvd, 0x01020304U);
  EXPECT_EQ(s.peer.recv_segment(raw::kSendSeInv).rsvd, 0x05060708U);
}

TEST(Rfc5041_4_3, SendWithInvalidateIsByteExact) {
  Session s({.role = Role::kInitiator});
  Memory out(s.host, 3);
  out.put(0, raw::text("bye"));
  post(*s.weft.qp, wr_send(1), {});
  (void)s.peer.recv_segment(raw::kSend);
  post(*s.weft.qp, wr_send_invalidate(2, 0x01020304), {out.sge()});
  const Bytes expected =
      raw::hex("0015 41 44 01020304 00000000 00000002 00000000 627965 00 ab4fd012");
  EXPECT_EQ(s.peer.recv(expected.size()), expected);
}

//= RFC 5041 section 5.3
//# Messages passed through the DDP MUST conform to the ordering rules defined in this section.
TEST(Rfc5041_5_3, MessagesAreSentInTheOrderOfSubmission) {
  Session s;
  Memory out(s.host, 40000);
  for (std::uint64_t id = 0; id < 60; ++id) {
    const std::size_t size = id * 997 % 40000;
    if (id % 3 == 0) {
      post(*s.weft.qp, wr_send(id), {out.sge(0, size)});
    } else {
      post(*s.weft.qp, wr_write(id, static_cast<std::uint32_t>(id), 0), {out.sge(0, size)});
    }
  }
  std::uint32_t msn = 0;
  for (std::uint64_t id = 0; id < 60; ++id) {
    std::size_t got = 0;
    for (bool last = false; !last;) {
      const raw::Segment seg = s.peer.recv_segment();
      if (id % 3 == 0) {
        if (got == 0) ++msn;
        ASSERT_EQ(seg.opcode, raw::kSend);
        ASSERT_EQ(seg.msn, msn);
      } else {
        ASSERT_EQ(seg.opcode, raw::kWrite);
        ASSERT_EQ(seg.stag, id);
      }
      got += seg.payload.size();
      last = seg.last;
    }
    EXPECT_EQ(got, id * 997 % 40000);
    take_success(*s.weft.send_cq, id);
  }
}

TEST(Rfc5041_5_2, SegmentsOfAnySizeAreReassembledEvenEmptyOnes) {
  Session s;
  Memory in(s.host, 200);
  Memory target(s.host, 200);
  const Bytes data = raw::pattern(150);
  post_recv(*s.weft.qp, 1, {in.sge(0, 7), in.sge(7, 0), in.sge(7, 193)});
  std::uint32_t at = 0;
  for (const std::size_t size : {0U, 1U, 0U, 60U, 2U, 87U, 0U}) {
    const auto from = data.begin() + at;
    const Bytes piece(from, from + static_cast<std::ptrdiff_t>(size));
    const bool last = at + size == 150 && size == 0;
    s.peer.send_fpdu(raw::ulpdu(raw::Untagged{.last = last, .mo = at, .payload = piece}));
    at += static_cast<std::uint32_t>(size);
  }
  EXPECT_EQ(take_success(*s.weft.recv_cq, 1).byte_len, 150U);
  EXPECT_EQ(in.copy(0, 150), data);
  for (const bool last : {false, true}) {
    s.peer.send_fpdu(raw::ulpdu(raw::Tagged{.last = last,
                                            .stag = target.rkey(),
                                            .to = target.to(last ? 90 : 0),
                                            .payload = raw::pattern(last ? 60 : 90, last)}));
  }
  s.expect_alive(2, 2);
  EXPECT_EQ(target.copy(0, 90), raw::pattern(90, 0));
  EXPECT_EQ(target.copy(90, 60), raw::pattern(60, 1));
}

TEST(Rfc5041_5_2, WorkedMultiSegmentMessagesAreTaken) {
  Session s({.warm_up = false});
  Memory in(s.host, 16);
  post_recv(*s.weft.qp, 1, {in.sge()});
  s.peer.send(
      raw::hex("001a 01 43 00000000 00000000 00000001 00000000 6162636465666768 d5a5d405"
               "0014 41 43 00000000 00000000 00000001 00000008 696a 0000 515bbf60"));
  EXPECT_EQ(take_success(*s.weft.recv_cq, 1).byte_len, 10U);
  EXPECT_EQ(in.copy(0, 10), raw::text("abcdefghij"));
}

// One tagged and one untagged message may alternate; Linux siw sends so, and DDP allows it.
TEST(Rfc5041_5_3, OneTaggedAndOneUntaggedMessageMayBeInterleaved) {
  Session s;
  Memory in(s.host, 64);
  Memory target(s.host, 64);
  post_recv(*s.weft.qp, 1, {in.sge()});
  for (std::uint32_t i = 0; i < 4; ++i) {
    const bool last = i == 3;
    s.peer.send_fpdu(
        raw::ulpdu(raw::Untagged{.last = last, .mo = 10 * i, .payload = raw::pattern(10, i)}));
    s.peer.send_fpdu(raw::ulpdu(raw::Tagged{.last = last,
                                            .stag = target.rkey(),
                                            .to = target.to(12 * i),
                                            .payload = raw::pattern(12, 50 + i)}));
  }
  EXPECT_EQ(take_success(*s.weft.recv_cq, 1).byte_len, 40U);
  s.expect_alive(2, 2);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(in.copy(10 * i, 10), raw::pattern(10, i));
    EXPECT_EQ(target.copy(12 * i, 12), raw::pattern(12, 50 + i));
  }
}

TEST(Rfc5041_5_3, ReadRequestBetweenTheSegmentsOfASendIsServed) {
  Session s;
  Memory in(s.host, 64);
  post_recv(*s.weft.qp, 1, {in.sge()});
  s.peer.send_fpdu(raw::ulpdu(raw::Untagged{.last = false, .payload = raw::pattern(10)}));
  s.peer.send_fpdu(
      raw::read_request(1, {.size = 256, .src_stag = s.canary.rkey(), .src_to = s.canary.to()}));
  EXPECT_EQ(s.peer.recv_segment(raw::kReadResponse).payload.size(), 256U);
  s.peer.send_fpdu(raw::ulpdu(raw::Untagged{.mo = 10, .payload = raw::pattern(10)}));
  EXPECT_EQ(take_success(*s.weft.recv_cq, 1).byte_len, 20U);
}

//= RFC 5040 section 5.1
//# * A valid RDMA Write Message MUST NOT be delivered to the Data Sink's ULP (i.e., it is placed
//# by the DDP layer).
TEST(Rfc5040_5_1, WritesReachNoApplication) {
  Session s;
  Memory target(s.host, 64);
  post_empty_recvs(*s.weft.qp, 1, 1);
  for (std::size_t i = 0; i < 8; ++i) {
    s.peer.send_fpdu(raw::write(target.rkey(), target.to(i * 8), raw::pattern(8)));
  }
  EXPECT_TRUE(quiet(*s.weft.recv_cq));
  EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(1)));
  s.peer.send_fpdu(raw::send(1, {}));
  take_success(*s.weft.recv_cq, 1);
}

//= RFC 5040 section 5.5
//# Send Messages MUST be Delivered to the ULP at the Remote Peer after they are Delivered to RDMAP
//# by DDP and in the order that they were Delivered to RDMAP.
TEST(Rfc5040_5_5, WritesAreInPlaceWhenTheSendBehindThemIsDelivered) {
  Session s;
  Memory target(s.host, 60000);
  for (std::uint32_t msn = 1; msn <= 20; ++msn) {
    post_empty_recvs(*s.weft.qp, msn, 1);
    s.peer.send_fpdus({raw::write(target.rkey(), target.to(), raw::pattern(30000, msn)),
                       raw::write(target.rkey(), target.to(30000), raw::pattern(30000, msn + 1)),
                       raw::send(msn, {})});
    take_success(*s.weft.recv_cq, msn);
    ASSERT_EQ(target.copy(0, 30000), raw::pattern(30000, msn));
    ASSERT_EQ(target.copy(30000, 30000), raw::pattern(30000, msn + 1));
  }
}

TEST(Rfc5040_5_5, ReadSeesTheWriteBeforeIt) {
  Session s;
  Memory target(s.host, 8000);
  const raw::ReadFields f{.size = 8000, .src_stag = target.rkey(), .src_to = target.to()};
  s.peer.send_fpdus(
      {raw::write(target.rkey(), target.to(), raw::pattern(8000, 77)), raw::read_request(1, f)});
  Bytes got;
  while (got.size() < 8000) got += s.peer.recv_segment(raw::kReadResponse).payload;
  EXPECT_EQ(got, raw::pattern(8000, 77));
}

//= RFC 5040 section 5.5
//# A Send or RDMA Write Message MUST NOT be considered Complete at the Local Peer (Data Source)
//# until it has been successfully completed at the DDP layer.
TEST(Rfc5040_5_5, SendThatTcpHasNotTakenIsNotComplete) {
  Start start;
  start.config.socket_buffer_bytes = 65536;
  start.socket.receive_buffer_bytes = 16384;
  Session s(start);
  Memory out(s.host, 4U << 20U);
  post(*s.weft.qp, wr_write(1, 2, 3), {out.sge()});
  EXPECT_TRUE(quiet(*s.weft.send_cq));
  std::size_t got = 0;
  for (bool last = false; !last;) {
    const raw::Segment seg = s.peer.recv_segment(raw::kWrite);
    got += seg.payload.size();
    last = seg.last;
  }
  EXPECT_EQ(got, out.size());
  take_success(*s.weft.send_cq, 1);
}

// With completions held back until TCP has them acknowledged nothing else changes.
TEST(Rfc5040_5_5, AcknowledgedCompletionsComeInOrderToo) {
  Start start;
  start.config.completions = CompletionMode::kAcked;
  Session s(start);
  Memory out(s.host, 1000);
  for (std::uint64_t id = 1; id <= 10; ++id) post(*s.weft.qp, wr_send(id), {out.sge()});
  for (std::uint64_t id = 1; id <= 10; ++id) {
    (void)s.peer.recv_segment(raw::kSend);
    take_success(*s.weft.send_cq, id);
  }
}

// A solicited event wakes a sleeper that asked for solicited ones only; a plain Send does not.
TEST(Rfc5040_5_3, SolicitedEventRaisesTheArmedNotification) {
  Session s({.endpoint = {.with_channel = true}});
  post_empty_recvs(*s.weft.qp, 1, 4);
  must(s.weft.recv_cq->arm(CompletionQueue::Arm::kSolicited), "arm");
  s.peer.send_fpdu(raw::send(1, {}));
  EXPECT_FALSE(s.weft.channel->wait(kGlance));
  s.peer.send_fpdu(raw::send(2, {}, raw::kSendSe));
  const auto woken = s.weft.channel->wait(kPatience);
  ASSERT_TRUE(woken);
  EXPECT_EQ(*woken, s.weft.recv_cq.get());
  s.weft.recv_cq->ack_events(1);
  take_success(*s.weft.recv_cq, 1);
  take_success(*s.weft.recv_cq, 2);
  must(s.weft.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
  s.peer.send_fpdu(raw::send(3, {}));
  ASSERT_TRUE(s.weft.channel->wait(kPatience));
  s.weft.recv_cq->ack_events(1);
}

// What wired queue pairs add to RDMAP (docs/personality.md) has no meaning here: their Acks are of
// an unassigned opcode, and the two reserved bits ask for nothing.
TEST(WiredAdditions, AcksOfEveryKindTerminate) {
  for (std::uint32_t kind = 0; kind < 4; ++kind) {
    SCOPED_TRACE(kind);
    constexpr std::uint8_t kAck = 12;
    Session s;
    post_empty_recvs(*s.weft.qp, 1, 1);
    const Bytes ack = raw::ulpdu(raw::Tagged{.opcode = kAck, .stag = kind, .to = 1});
    ASSERT_EQ(ack.size(), 14U);
    s.expect_violation(ack, {0, 2, 6}, raw::Attach::kDdp);
    s.expect_flushed_recvs({1});
  }
}

TEST(WiredAdditions, ReservedBitsAskForNoAckAndCarryNoImmediate) {
  for (const std::uint8_t bits : {std::uint8_t{0x60}, std::uint8_t{0x50}, std::uint8_t{0x70}}) {
    SCOPED_TRACE(int{bits});
    Session s;
    post_empty_recvs(*s.weft.qp, 1, 1);
    s.peer.send_fpdu(raw::ulpdu(raw::Untagged{.rsvd = 0xabcd, .rdmap_bits = bits}));
    const WorkCompletion wc = take_success(*s.weft.recv_cq, 1);
    EXPECT_FALSE(has(wc.flags, WcFlags::kWithImm));
    s.peer.send_fpdu(raw::ulpdu(raw::Tagged{.stag = s.canary.rkey(), .rdmap_bits = bits}));
    EXPECT_TRUE(s.peer.quiet());
    s.expect_alive(2, 2);
  }
}

}  // namespace
}  // namespace weft::test
