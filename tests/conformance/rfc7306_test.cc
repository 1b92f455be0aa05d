// Immediate Data and atomic operations, from both ends. RFC 7306.
#include <gtest/gtest.h>

#include <cstring>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;
using raw::Code;

//= RFC 7306 section 6.3
//# o For an Immediate Data or Immediate Data with SE Message, the Local Peer's RDMAP Layer MUST
//# request that the DDP layer transmit 8 bytes of data.
TEST(Rfc7306_6_3, ImmediateDataIsByteExact) {
  Session s({.role = Role::kInitiator});
  post(*s.weft.qp, wr_send(1), {});
  post(*s.weft.qp, wr_send(2), {});
  (void)s.peer.recv_segment(raw::kSend);
  (void)s.peer.recv_segment(raw::kSend);
  post(*s.weft.qp,
       wr_immediate(3, 0x0011223344556677, SendFlags::kSignaled | SendFlags::kSolicited));
  const Bytes expected =
      raw::hex("001a 41 49 00000000 00000000 00000003 00000000 0011223344556677 fb315de6");
  EXPECT_EQ(s.peer.recv(expected.size()), expected);
  post(*s.weft.qp, wr_immediate(4, 5));
  EXPECT_EQ(s.peer.recv_segment(raw::kImmediate).msn, 4U);
}

//= RFC 7306 section 6.3
//# o One Immediate Data or Immediate Data with SE Message MUST consume one Untagged Buffer.
TEST(Rfc7306_6_3, ImmediateDataTakesAReceiveAndLeavesItsMemoryAlone) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role});
    Memory in(s.host, 64);
    for (std::uint64_t id = 1; id <= 3; ++id) post_recv(*s.weft.qp, id, {in.sge()});
    s.peer.send_fpdus({raw::immediate(1, 0x0102030405060708), raw::immediate(2, 9, true),
                       raw::send(3, raw::text("x"))});
    const WorkCompletion plain = take_success(*s.weft.recv_cq, 1);
    EXPECT_EQ(plain.op, WcOp::kRecvWithImm);
    EXPECT_TRUE(has(plain.flags, WcFlags::kWithImm));
    EXPECT_FALSE(has(plain.flags, WcFlags::kSolicited));
    EXPECT_EQ(plain.imm_data, 0x0102030405060708U);
    EXPECT_EQ(plain.byte_len, 0U);
    const WorkCompletion solicited = take_success(*s.weft.recv_cq, 2);
    EXPECT_EQ(solicited.imm_data, 9U);
    EXPECT_TRUE(has(solicited.flags, WcFlags::kSolicited));
    const WorkCompletion send = take_success(*s.weft.recv_cq, 3);
    EXPECT_EQ(send.op, WcOp::kRecv);
    EXPECT_FALSE(has(send.flags, WcFlags::kWithImm));
    EXPECT_EQ(in.copy(0, 1), raw::text("x"));
    EXPECT_EQ(in.copy(1, 63), Bytes(63, 0xee));
  }
}

//= RFC 7306 section 6.3
//# o At the Remote Peer, the Immediate Data and Immediate Data with SE Messages MUST be Delivered
//# to the Remote Peer's ULP in the order they were sent.
TEST(Rfc7306_6_3, WriteIsInPlaceWhenTheImmediateDataBehindItIsDelivered) {
  Session s;
  Memory target(s.host, 40000);
  for (std::uint32_t msn = 1; msn <= 10; ++msn) {
    post_empty_recvs(*s.weft.qp, msn, 1);
    s.peer.send_fpdus({raw::write(target.rkey(), target.to(), raw::pattern(40000, msn)),
                       raw::immediate(msn, msn)});
    const WorkCompletion wc = take_success(*s.weft.recv_cq, msn);
    EXPECT_EQ(wc.imm_data, msn);
    EXPECT_EQ(wc.byte_len, 40000U);
    ASSERT_EQ(target.copy(0, 40000), raw::pattern(40000, msn));
  }
}

TEST(Rfc7306_6_3, WriteWithImmediateIsAWriteAndThenImmediateData) {
  Session s({.fpdu = FpduPolicy::kCapped});
  Memory out(s.host, 50000);
  out.fill_pattern(1);
  post(*s.weft.qp, wr_write_imm(1, 0x77, 0x1000, 0xaabbccdd00000000), {out.sge()});
  Bytes got;
  for (bool last = false; !last;) {
    const raw::Segment seg = s.peer.recv_segment(raw::kWrite);
    EXPECT_EQ(seg.to, 0x1000 + got.size());
    got += seg.payload;
    last = seg.last;
  }
  EXPECT_EQ(got, out.copy(0, 50000));
  const raw::Segment imm = s.peer.recv_segment(raw::kImmediate);
  EXPECT_EQ(imm.msn, 1U);
  EXPECT_EQ(imm.payload, raw::hex("aabbccdd00000000"));
  take_success(*s.weft.send_cq, 1);
  EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(10)));
}

// A connection and a row of 64-bit words for the peer to change.
struct Words {
  explicit Words(Role role = Role::kResponder) : s({.role = role}), memory(s.host, 64) {}

  raw::AtomicFields fetch_add(std::uint64_t add, std::uint64_t mask = 0) const {
    return {
        .request_id = 0x5150, .stag = memory.rkey(), .to = memory.to(8), .data = add, .mask = mask};
  }
  raw::AtomicFields cmp_swap(std::uint64_t compare, std::uint64_t compare_mask, std::uint64_t swap,
                             std::uint64_t swap_mask) const {
    return {.op = 2,
            .request_id = 0x5151,
            .stag = memory.rkey(),
            .to = memory.to(8),
            .data = swap,
            .mask = swap_mask,
            .compare = compare,
            .compare_mask = compare_mask};
  }
  // Runs it on the word at 8, which holds `before`; returns what the word then is.
  std::uint64_t run(const raw::AtomicFields& f, std::uint64_t before) {
    memory.store64(8, before);
    s.peer.send_fpdu(raw::atomic_request(++msn, f));
    EXPECT_EQ(s.peer.recv_ulpdu(), raw::atomic_response(msn, f.request_id, before));
    EXPECT_EQ(memory.copy(0, 8), Bytes(8, 0xee));
    EXPECT_EQ(memory.copy(16, 48), Bytes(48, 0xee));
    return memory.load64(8);
  }
  void expect(const raw::AtomicFields& f, Code code, AsyncEventType event,
              int line = __builtin_LINE()) {
    s.expect_violation(raw::atomic_request(1, f), code, Attach::kDdp, {}, line);
    s.expect_async(event, line);
    EXPECT_TRUE(memory.untouched()) << "line " << line;
  }

  Session s;
  Memory memory;
  std::uint32_t msn = 0;
};

constexpr std::uint64_t kOnes = ~std::uint64_t{0};

//= RFC 7306 section 5
//# An RNIC that supports Atomic Operations as specified in this document MUST implement both the
//# FetchAdd operation as specified in Section 5.1.1 and the CmpSwap operation as specified in
//# Section 5.1.2.
//= RFC 7306 section 5.2.1
//# If the Responder receives a valid Atomic Operation Request Message, it MUST respond with a
//# valid Atomic Operation Response Message.
//= RFC 7306 section 5
//# Atomic Operation Response Messages MUST use the Untagged Buffer model with QN=3.
TEST(Rfc7306_5_1, FetchAddReturnsTheOldValueAndAdds) {
  for (const Role role : kBothRoles) {
    Words w(role);
    EXPECT_EQ(w.run(w.fetch_add(1), 41), 42U);
    EXPECT_EQ(w.run(w.fetch_add(0), 42), 42U);
    EXPECT_EQ(w.run(w.fetch_add(kOnes), 5), 4U);
    EXPECT_EQ(w.run(w.fetch_add(1), kOnes), 0U);
  }
}

TEST(Rfc7306_5_1, FetchAddMaskCutsTheCarry) {
  Words w;
  EXPECT_EQ(w.run(w.fetch_add(1, 0), 0xffffffff), 0x100000000U);
  EXPECT_EQ(w.run(w.fetch_add(1, 0x8000000080000000), 0xffffffff), 0U);
  EXPECT_EQ(w.run(w.fetch_add(0x0101010101010101, 0x8080808080808080), 0xff00ff00ff00ff00),
            0x0001000100010001U);
  // Every bit a field of its own: addition without carry.
  EXPECT_EQ(w.run(w.fetch_add(0xff00ff00ff00ff00, kOnes), 0x0ff00ff00ff00ff0),
            0xff00ff00ff00ff00U ^ 0x0ff00ff00ff00ff0U);
}

//= RFC 7306 section 5.2.1
//# All Atomic Operation Codes from Figure 5 MUST be implemented by an RNIC that supports Atomic
//# Operations.
TEST(Rfc7306_5_1, CmpSwapSwapsWhatMatchesUnderTheMasks) {
  Words w;
  EXPECT_EQ(w.run(w.cmp_swap(7, kOnes, 9, kOnes), 7), 9U);
  EXPECT_EQ(w.run(w.cmp_swap(8, kOnes, 9, kOnes), 7), 7U);
  EXPECT_EQ(w.run(w.cmp_swap(123, 0, 9, kOnes), 7), 9U);  // compares nothing
  EXPECT_EQ(w.run(w.cmp_swap(7, kOnes, 9, 0), 7), 7U);    // writes nothing
  const std::uint64_t word = 0x1122334455667788;
  EXPECT_EQ(w.run(w.cmp_swap(0x8800000000000088, 0xff, 0xaaaaaaaaaaaaaaaa, 0xffff0000), word),
            0x11223344aaaa7788U);
  EXPECT_EQ(w.run(w.cmp_swap(0x89, 0xff, 0xaaaaaaaaaaaaaaaa, 0xffff0000), word), word);
}

//= RFC 7306 section 5.1.1
//# FetchAdd Atomic Operations that target ULP Buffer addresses that are not 64-bit aligned MUST be
//# surfaced as errors, and the Responder's memory MUST NOT be modified in such cases.
//= RFC 7306 section 8.2
//# In the case of an error, the RDMAP layer MUST generate a Terminate Message indicating RDMA
//# Layer Remote Operation Error with Error Code Name "Catastrophic error, localized to RDMAP
//# Stream" as described in Section 4.8 of RFC 5040.
TEST(Rfc7306_8_2, MisalignedAtomicTerminatesAndChangesNothing) {
  for (std::uint64_t off = 1; off < 8; ++off) {
    SCOPED_TRACE(off);
    Words add;
    raw::AtomicFields f = add.fetch_add(1);
    f.to += off;
    add.expect(f, {0, 2, 7}, AsyncEventType::kQpFatal);
    Words swap;
    f = swap.cmp_swap(0, 0, 1, kOnes);
    f.to += off;
    swap.expect(f, {0, 2, 7}, AsyncEventType::kQpFatal);
  }
}

//= RFC 7306 section 5.2.1
//# The Remote Tagged Offset MAY start at an arbitrary offset but MUST represent a ULP Buffer
//# address that is 64-bit aligned.
TEST(Rfc7306_5_2_1, AlignmentIsThatOfTheMemoryAndNotOfTheOffset) {
  alignas(8) std::uint8_t words[24] = {};
  Session s;
  const auto at_odd_offset =
      must(s.host.pd->register_memory_iova(words, 24, 0x1003, kAllAccess), "register");
  s.peer.send_fpdu(raw::atomic_request(
      1, {.request_id = 1, .stag = at_odd_offset->rkey(), .to = 0x100b, .data = 3}));
  EXPECT_EQ(s.peer.recv_segment(raw::kAtomicResponse).payload,
            raw::hex("00000001") + raw::zeros(8));
  std::uint64_t word = 0;
  std::memcpy(&word, words + 8, sizeof word);
  EXPECT_EQ(word, 3U);
  const auto odd_memory =
      must(s.host.pd->register_memory_iova(words + 3, 20, 0x1000, kAllAccess), "register");
  s.expect_violation(raw::atomic_request(2, {.stag = odd_memory->rkey(), .to = 0x1000, .data = 1}),
                     {0, 2, 7}, Attach::kDdp);
}

TEST(Rfc7306_8_2, AtomicWithAFaultyStagTerminates) {
  const auto access = AsyncEventType::kQpAccessError;
  Words unknown;
  raw::AtomicFields f = unknown.fetch_add(1);
  f.stag ^= 0x5a5a5a00;
  unknown.expect(f, {0, 1, 0}, access);

  Words bounds;
  f = bounds.fetch_add(1);
  f.to = bounds.memory.to(64);
  bounds.expect(f, {0, 1, 1}, access);

  Words wrap;
  f = wrap.fetch_add(1);
  f.to = kOnes - 3;
  wrap.expect(f, {0, 1, 4}, access);

  Words right;
  Memory no_atomics(right.s.host, 64,
                    Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead);
  f = right.fetch_add(1);
  f.stag = no_atomics.rkey();
  f.to = no_atomics.to();
  right.expect(f, {0, 1, 2}, access);
  EXPECT_TRUE(no_atomics.untouched());

  Words domain;
  const auto pd = must(domain.s.host.device->create_pd(), "create a protection domain");
  Memory foreign(*pd, 64, kAllAccess);
  f = domain.fetch_add(1);
  f.stag = foreign.rkey();
  f.to = foreign.to();
  domain.expect(f, {0, 1, 3}, access);
  EXPECT_TRUE(foreign.untouched());
}

//= RFC 7306 section 5.2.1
//# At the Responder, an error MUST be surfaced in response to delivery to the Remote Peer's RDMAP
//# layer of an Atomic Operation Request Message with an Atomic Operation Code that the RNIC does
//# not support.
TEST(Rfc7306_5_2_1, UnknownAtomicOperationTerminates) {
  for (const std::uint32_t op : {1U, 3U, 4U, 15U}) {
    SCOPED_TRACE(op);
    Words w;
    raw::AtomicFields f = w.fetch_add(1);
    f.op = op;
    w.expect(f, {0, 2, 6}, AsyncEventType::kQpRequestError);
  }
}

TEST(Rfc7306_5_2_1, ReservedBitsOfTheOperationAreIgnored) {
  Words w;
  raw::AtomicFields f = w.fetch_add(2);
  f.op = 0xfffffff0;
  EXPECT_EQ(w.run(f, 3), 5U);
}

//= RFC 7306 section 5.2
//# Atomic Operation Request messages MUST use the same Queue Number as RDMA Read Requests (QN=1).
//= RFC 7306 section 5.2.2
//# When the Responder receives Atomic Operation Request messages, the Responder RDMAP layer MUST
//# pass Atomic Operation Response Messages to the DDP layer, in the order that the Atomic
//# Operation Request Messages were received by the RDMAP layer, at the Responder.
//= RFC 7306 section 5.4
//# If more than one outstanding Atomic Request Message is supported by both peers, the Atomic
//# Operation Request Messages MUST be processed in the order they were delivered by the DDP layer
//# on the Responder.
TEST(Rfc7306_5_4, AtomicsAndReadsShareTheirQueueAndAreAnsweredInOrder) {
  Words w;
  w.memory.store64(8, 100);
  const raw::ReadFields read{.size = 8, .src_stag = w.memory.rkey(), .src_to = w.memory.to()};
  std::vector<Bytes> requests;
  for (std::uint32_t i = 1; i <= 12; ++i) {
    raw::AtomicFields f = w.fetch_add(1);
    f.request_id = i;
    requests.push_back(i % 3 == 0 ? raw::read_request(i, read) : raw::atomic_request(i, f));
  }
  w.s.peer.send_fpdus(requests);
  std::uint32_t response_msn = 0;
  for (std::uint32_t i = 1; i <= 12; ++i) {
    if (i % 3 == 0) {
      (void)w.s.peer.recv_segment(raw::kReadResponse);
    } else {
      const std::uint64_t old = 100 + response_msn;
      EXPECT_EQ(w.s.peer.recv_ulpdu(), raw::atomic_response(++response_msn, i, old));
    }
  }
  EXPECT_EQ(w.memory.load64(8), 108U);
}

TEST(Rfc7306_5_2_2, AtomicsCountAgainstIrd) {
  constexpr std::uint32_t kSize = 4U << 20U;
  Start start;
  start.ird = 1;
  start.config.socket_buffer_bytes = 65536;
  start.socket.receive_buffer_bytes = 16384;
  Session s(start);
  Memory source(s.host, kSize);
  const raw::AtomicFields f{.stag = source.rkey(), .to = source.to()};
  s.peer.send_fpdus(
      {raw::read_request(1, {.size = kSize, .src_stag = source.rkey(), .src_to = source.to()}),
       raw::atomic_request(2, f)});
  const auto segments = s.peer.recv_to_end();
  ASSERT_FALSE(segments.empty());
  EXPECT_EQ(segments.back().whole,
            raw::terminate({1, 2, 2}, Attach::kDdp, raw::atomic_request(2, f)));
}

//= RFC 7306 section 5.2.1
//# An Atomic Operation Request Message MUST reference an Untagged Buffer.
TEST(Rfc7306_5_2_1, AtomicRequestsAreByteExact) {
  Session s({.role = Role::kInitiator});
  Memory result(s.host, 16);
  post(*s.weft.qp, wr_fetch_add(1, 0x22222222, 0x3000, 1), {result.sge(0, 8)});
  SendWr masked = wr_cmp_swap(2, 0x22222222, 0x3008, 0x5555, 0xaaaa);
  masked.compare_mask = 0xff;
  masked.swap_mask = 0xff00;
  post(*s.weft.qp, masked, {result.sge(8, 8)});
  const raw::Segment add = s.peer.recv_segment(raw::kAtomicRequest);
  raw::AtomicFields a = raw::parse_atomic(add);
  EXPECT_EQ(add.whole,
            raw::atomic_request(
                1, {.request_id = a.request_id, .stag = 0x22222222, .to = 0x3000, .data = 1}));
  const raw::Segment swap = s.peer.recv_segment(raw::kAtomicRequest);
  raw::AtomicFields c = raw::parse_atomic(swap);
  EXPECT_EQ(swap.whole, raw::atomic_request(2, {.op = 2,
                                                .request_id = c.request_id,
                                                .stag = 0x22222222,
                                                .to = 0x3008,
                                                .data = 0xaaaa,
                                                .mask = 0xff00,
                                                .compare = 0x5555,
                                                .compare_mask = 0xff}));
  EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(10)));
  s.peer.send_fpdu(raw::atomic_response(1, a.request_id, 0x0102030405060708));
  const WorkCompletion first = take_success(*s.weft.send_cq, 1);
  EXPECT_EQ(first.op, WcOp::kFetchAdd);
  EXPECT_EQ(result.load64(0), 0x0102030405060708U);
  s.peer.send_fpdu(raw::atomic_response(2, c.request_id, 9));
  EXPECT_EQ(take_success(*s.weft.send_cq, 2).op, WcOp::kCmpSwap);
  EXPECT_EQ(result.load64(8), 9U);
}

//= RFC 7306 section 5.2.2
//# The Requester MUST ensure that a sufficient number of Untagged Buffers are available on the
//# RDMA Atomic Response Queue (Queue with DDP Queue Number 3) to support the maximum number of
//# Atomic Operation Requests negotiated by the ULP.
TEST(Rfc7306_5_2_2, AtomicsCountAgainstOrd) {
  Session s({.peer_ird = 1});
  Memory memory(s.host, 64);
  post(*s.weft.qp, wr_fetch_add(1, 1, 0, 1), {memory.sge(0, 8)});
  post(*s.weft.qp, wr_read(2, 1, 0), {memory.sge(8, 8)});
  post(*s.weft.qp, wr_cmp_swap(3, 1, 0, 1, 2), {memory.sge(16, 8)});
  const auto a = raw::parse_atomic(s.peer.recv_segment(raw::kAtomicRequest));
  EXPECT_TRUE(s.peer.quiet());
  s.peer.send_fpdu(raw::atomic_response(1, a.request_id, 1));
  take_success(*s.weft.send_cq, 1);
  const auto r = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
  EXPECT_TRUE(s.peer.quiet());
  s.peer.send_fpdu(raw::read_response(r.sink_stag, r.sink_to, raw::zeros(8)));
  take_success(*s.weft.send_cq, 2);
  const auto c = raw::parse_atomic(s.peer.recv_segment(raw::kAtomicRequest));
  s.peer.send_fpdu(raw::atomic_response(2, c.request_id, 1));
  take_success(*s.weft.send_cq, 3);
}

TEST(Rfc7306_5_4, AnswersThatDoNotFitTheOldestRequestTerminate) {
  const auto pending = [](Session& s, Memory& memory) {
    post(*s.weft.qp, wr_fetch_add(1, 1, 0, 1), {memory.sge(0, 8)});
    return raw::parse_atomic(s.peer.recv_segment(raw::kAtomicRequest)).request_id;
  };
  Session number;
  Memory a(number.host, 8);
  number.expect_violation(raw::atomic_response(2, pending(number, a), 1), {1, 2, 3}, Attach::kDdp);
  EXPECT_NE(take(*number.weft.send_cq).status, WcStatus::kSuccess);
  EXPECT_TRUE(a.untouched());
  Session kind;
  Memory b(kind.host, 8);
  (void)pending(kind, b);
  kind.expect_violation_code(raw::read_response(b.rkey(), b.to(), raw::zeros(8)), {0, 2, 6});
  EXPECT_NE(take(*kind.weft.send_cq).status, WcStatus::kSuccess);
  EXPECT_TRUE(b.untouched());
  Session identifier;
  Memory c(identifier.host, 8);
  identifier.expect_violation_code(raw::atomic_response(1, pending(identifier, c) + 1, 1),
                                   {1, 2, 2});
  EXPECT_NE(take(*identifier.weft.send_cq).status, WcStatus::kSuccess);
  EXPECT_TRUE(c.untouched());
}

}  // namespace
}  // namespace weft::test
