// RDMA Read from both ends: what Weft asks for, and how it answers. RFC 5040 sections 5.2 and 7.2.
#include <gtest/gtest.h>

#include <algorithm>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;
using raw::Code;

// A connection and memory of every kind that a Read Request can name.
struct Source {
  explicit Source(Role role = Role::kResponder)
      : s({.role = role}),
        foreign_pd(must(s.host.device->create_pd(), "create a protection domain")),
        good(s.host, 64),
        write_only(s.host, 64, Access::kLocalWrite | Access::kRemoteWrite),
        foreign(*foreign_pd, 64, kAllAccess),
        foreign_write_only(*foreign_pd, 64, Access::kLocalWrite) {
    good.fill_pattern(5);
  }
  // Ends with this code about the Read Request, which is attached whole.
  void expect(std::uint32_t stag, std::uint64_t to, std::uint32_t size, Code code,
              int line = __builtin_LINE()) {
    const Bytes request = raw::read_request(1, {.size = size, .src_stag = stag, .src_to = to});
    s.expect_violation(request, code, Attach::kDdpAndRead, {}, line);
    s.expect_async(AsyncEventType::kQpAccessError, line);
  }
  [[nodiscard]] std::uint32_t unknown() const { return good.rkey() ^ 0x5a5a5a00U; }

  Session s;
  std::shared_ptr<ProtectionDomain> foreign_pd;
  Memory good, write_only, foreign, foreign_write_only;
};

//= RFC 5040 section 5.2.1
//# * If the Data Source receives a valid RDMA Read Request Message, it MUST respond with a valid
//# RDMA Read Response Message.
//= RFC 5040 section 4.4
//# This field MUST be copied, without interpretation, from the RDMA Read Request into the
//# corresponding RDMA Read Response; this field allows the Data Sink to place the returning data.
TEST(Rfc5040_5_2_1, ReadResponseIsByteExact) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Source t(role);
    t.good.put(3, raw::text("12345678"));
    t.s.peer.send_fpdu(
        raw::read_request(1, {.size = 8, .src_stag = t.good.rkey(), .src_to = t.good.to(3)}));
    const Bytes expected =
        raw::hex("0016 c1 42 11111111 0000000000002000 3132333435363738 064e10cb");
    EXPECT_EQ(t.s.peer.recv(expected.size()), expected);
  }
}

//= RFC 5040 section 5.2.1
//# * MUST NOT validate the Data Source STag and Data Source Tagged Offset contained in the RDMA
//# Read Request Header, and * MUST respond with a zero-length RDMA Read Response Message.
TEST(Rfc5040_5_2_1, ReadOfSize0IsAnsweredWithoutLookingAtItsSource) {
  Source t;
  std::uint32_t msn = 1;
  for (const std::uint32_t stag :
       {std::uint32_t{0}, t.unknown(), t.foreign.rkey(), t.write_only.rkey(), t.good.rkey()}) {
    t.s.peer.send_fpdu(raw::read_request(
        msn++,
        {.sink_stag = 0xdeadbeef, .sink_to = ~0ULL, .size = 0, .src_stag = stag, .src_to = ~0ULL}));
    const raw::Segment answer = t.s.peer.recv_segment(raw::kReadResponse);
    EXPECT_TRUE(answer.last);
    EXPECT_TRUE(answer.payload.empty());
    EXPECT_EQ(answer.stag, 0xdeadbeefU);
    EXPECT_EQ(answer.to, ~0ULL);
  }
}

//= RFC 5040 section 7.2
//# The Data Source STag MUST be valid.
TEST(Rfc5040_7_2, ReadFromAnUnknownStagTerminates) {
  for (const Role role : kBothRoles) {
    Source t(role);
    t.expect(t.unknown(), t.good.to(), 8, {0, 1, 0});
  }
}

TEST(Rfc5040_7_2, ReadWithTheWrongKeyOctetTerminates) {
  Source t;
  t.expect(t.good.rkey() ^ 1U, t.good.to(), 8, {0, 1, 0});
}

//= RFC 5040 section 7.2
//# The Data Source STag MUST be associated to this RDMAP Stream.
TEST(Rfc5040_7_2, ReadFromAnotherProtectionDomainTerminates) {
  Source t;
  t.expect(t.foreign.rkey(), t.foreign.to(), 8, {0, 1, 3});
}

TEST(Rfc5040_7_2, ReadWithoutTheRemoteReadRightTerminates) {
  Source t;
  t.expect(t.write_only.rkey(), t.write_only.to(), 8, {0, 1, 2});
}

//= RFC 5040 section 7.2
//# The sum of the Data Source Tagged Offset and the RDMA Read Message Size MUST NOT cause the Data
//# Source Tagged Offset to wrap.
TEST(Rfc5040_7_2, ReadThatWrapsTheOffsetTerminates) {
  Source t;
  t.expect(t.good.rkey(), ~0ULL - 3, 8, {0, 1, 4});
}

//= RFC 5040 section 7.2
//# The Data Source Tagged Offset MUST fall in the range of legal offsets associated with the Data
//# Source STag.
//= RFC 5040 section 7.2
//# The sum of the Data Source Tagged Offset and the RDMA Read Message Size MUST fall in the range
//# of legal offsets associated with the Data Source STag.
TEST(Rfc5040_7_2, ReadOutsideTheRegionTerminates) {
  struct Case {
    std::int64_t at;
    std::uint32_t size;
  };
  for (const Case& c : {Case{-1, 8}, Case{57, 8}, Case{64, 1}, Case{0, 65}, Case{0, 0xffffffff}}) {
    SCOPED_TRACE(std::to_string(c.at) + " + " + std::to_string(c.size));
    Source t;
    t.expect(t.good.rkey(), t.good.to() + static_cast<std::uint64_t>(c.at), c.size, {0, 1, 1});
  }
}

TEST(Rfc5040_7_2, ReadOfTheWholeRegionIsAnswered) {
  Source t;
  t.s.peer.send_fpdu(
      raw::read_request(1, {.size = 64, .src_stag = t.good.rkey(), .src_to = t.good.to()}));
  EXPECT_EQ(t.s.peer.recv_segment(raw::kReadResponse).payload, t.good.copy(0, 64));
}

TEST(Rfc5040_7_2, OfTwoFaultsInAReadTheEarlierIsReported) {
  Source stag_first;
  stag_first.expect(stag_first.unknown(), ~0ULL, 8, {0, 1, 0});
  Source domain_first;
  domain_first.expect(domain_first.foreign_write_only.rkey(), ~0ULL, 8, {0, 1, 3});
  Source right_first;
  right_first.expect(right_first.write_only.rkey(), ~0ULL, 8, {0, 1, 2});
}

//= RFC 5040 section 5.2.2
//# * The Data Source RDMAP layer MUST pass RDMA Read Response Messages to the DDP layer, in the
//# order that the RDMA Read Request Messages were received by the RDMAP layer, at the Data Source.
TEST(Rfc5040_5_2_2, ResponsesComeInTheOrderOfTheRequests) {
  Session s;
  Memory source(s.host, 100000);
  source.fill_pattern(6);
  std::vector<Bytes> requests;
  for (std::uint32_t i = 0; i < 16; ++i) {
    requests.push_back(raw::read_request(i + 1, {.sink_stag = i,
                                                 .sink_to = 1000ULL * i,
                                                 .size = i * 6000,
                                                 .src_stag = source.rkey(),
                                                 .src_to = source.to(i)}));
  }
  s.peer.send_fpdus(requests);
  for (std::uint32_t i = 0; i < 16; ++i) {
    Bytes got;
    for (bool last = false; !last;) {
      const raw::Segment seg = s.peer.recv_segment(raw::kReadResponse);
      EXPECT_EQ(seg.stag, i);
      EXPECT_EQ(seg.to, 1000ULL * i + got.size());
      got += seg.payload;
      last = seg.last;
    }
    EXPECT_EQ(got, source.copy(i, i * 6000));
  }
}

// A peer that does not read, and a Weft that can buffer little: Read Responses stay under way.
Start slow_reader(std::uint16_t ird) {
  Start start;
  start.ird = ird;
  start.config.socket_buffer_bytes = 65536;
  start.socket.receive_buffer_bytes = 16384;
  return start;
}

//= RFC 5040 section 6.1
//# * For inbound RDMA Read Requests, the RDMAP layer MUST NOT exceed the maximum number of
//# outstanding, inbound RDMA Read Requests that were negotiated between the ULP and the Local
//# Peer's RDMAP layer.
TEST(Rfc5040_6_1, OneReadMoreThanIrdTerminates) {
  constexpr std::uint32_t kSize = 4U << 20U;
  Session s(slow_reader(2));
  Memory source(s.host, kSize);
  const raw::ReadFields f{.size = kSize, .src_stag = source.rkey(), .src_to = source.to()};
  s.peer.send_fpdus({raw::read_request(1, f), raw::read_request(2, f), raw::read_request(3, f)});
  const auto segments = s.peer.recv_to_end();
  ASSERT_FALSE(segments.empty());
  EXPECT_EQ(segments.back().whole,
            raw::terminate({1, 2, 2}, Attach::kDdp, raw::read_request(3, f)));
  s.peer.close();
  s.expect_failed();
  s.expect_async(AsyncEventType::kQpRequestError);
}

TEST(Rfc5040_6_1, AsManyReadsAsIrdAreServed) {
  constexpr std::uint32_t kSize = 1U << 20U;
  Session s(slow_reader(3));
  Memory source(s.host, kSize);
  const raw::ReadFields f{.size = kSize, .src_stag = source.rkey(), .src_to = source.to()};
  s.peer.send_fpdus({raw::read_request(1, f), raw::read_request(2, f), raw::read_request(3, f)});
  for (int i = 0; i < 3; ++i) {
    std::size_t got = 0;
    for (bool last = false; !last;) {
      const raw::Segment seg = s.peer.recv_segment(raw::kReadResponse);
      got += seg.payload.size();
      last = seg.last;
    }
    EXPECT_EQ(got, kSize);
  }
  s.peer.send_fpdu(raw::read_request(4, {.size = 0}));
  EXPECT_TRUE(s.peer.recv_segment(raw::kReadResponse).payload.empty());
}

// A Read whose memory goes while it is answered ends where it stands: at an FPDU border with a
// Terminate whose Read Request is moved on by what was answered; inside an FPDU, which can then
// never be finished, with a reset.
TEST(Rfc5040_4_8, ReadPartlyAnsweredIsReportedFromWhereItStopped) {
  constexpr std::uint32_t kSize = 8U << 20U;
  Session s(slow_reader(4));
  Memory source(s.host, kSize);
  source.fill_pattern(8);
  const auto expected = source.copy(0, kSize);
  raw::ReadFields f{.size = kSize, .src_stag = source.rkey(), .src_to = source.to()};
  s.peer.send_fpdu(raw::read_request(1, f));
  Bytes got = s.peer.recv_segment().payload;
  must(source.region->deregister(), "deregister");
  std::ranges::fill(source.bytes(), std::uint8_t{0});  // must not be sent any more
  auto segments = s.peer.recv_to_end();
  ASSERT_FALSE(segments.empty());
  const raw::Segment end = segments.back();
  if (end.opcode == raw::kTerminate) segments.pop_back();
  for (const raw::Segment& seg : segments) {
    ASSERT_EQ(seg.opcode, raw::kReadResponse);
    got += seg.payload;
  }
  ASSERT_LT(got.size(), kSize);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
  if (end.opcode == raw::kTerminate) {
    f.sink_to += got.size();
    f.src_to += got.size();
    f.size -= static_cast<std::uint32_t>(got.size());
    EXPECT_EQ(end.whole, raw::terminate({0, 1, 0}, Attach::kDdpAndRead, raw::read_request(1, f)));
  } else {
    EXPECT_EQ(s.peer.end(), raw::End::kReset);
  }
  s.expect_failed();
}

//= RFC 5040 section 4.4
//# The following figure depicts the RDMA Read Request Header that MUST be used for all RDMA Read
//# Request Messages:
TEST(Rfc5040_4_4, ReadRequestNamesSourceSizeAndASinkThatWorks) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role});
    Memory sink(s.host, 4096, Access::kLocalWrite);
    post(*s.weft.qp, wr_read(1, 0x22222222, 0x3000), {sink.sge(100, 3000)});
    const raw::Segment request = s.peer.recv_segment(raw::kReadRequest);
    EXPECT_EQ(request.msn, 1U);
    const raw::ReadFields f = raw::parse_read(request);
    EXPECT_EQ(f.size, 3000U);
    EXPECT_EQ(f.src_stag, 0x22222222U);
    EXPECT_EQ(f.src_to, 0x3000U);
    EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(20)));
    s.peer.send_fpdu(raw::read_response(f.sink_stag, f.sink_to, raw::pattern(3000)));
    EXPECT_EQ(take_success(*s.weft.send_cq, 1).byte_len, 3000U);
    EXPECT_EQ(sink.copy(100, 3000), raw::pattern(3000));
    EXPECT_EQ(sink.copy(0, 100), Bytes(100, 0xee));
    EXPECT_TRUE(sink.guards_intact());
  }
}

TEST(Rfc5040_5_2_2, ResponseMayComeInSegmentsOfAnySize) {
  Session s;
  Memory sink(s.host, 300);
  post(*s.weft.qp, wr_read(1, 5, 0), {sink.sge()});
  const raw::ReadFields f = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
  const Bytes data = raw::pattern(300);
  std::size_t at = 0;
  for (const std::size_t size : {1U, 0U, 2U, 100U, 0U, 0U, 197U}) {
    const auto from = data.begin() + static_cast<std::ptrdiff_t>(at);
    const Bytes piece(from, from + static_cast<std::ptrdiff_t>(size));
    s.peer.send_fpdu(raw::read_response(f.sink_stag, f.sink_to + at, piece, at + size == 300));
    at += size;
  }
  EXPECT_EQ(take_success(*s.weft.send_cq, 1).byte_len, 300U);
  EXPECT_EQ(sink.copy(0, 300), data);
}

TEST(Rfc5040_5_2_2, ReadIntoSeveralPiecesOfMemoryIsScattered) {
  Session s;
  Memory a(s.host, 100, Access::kLocalWrite);
  Memory b(s.host, 100, Access::kLocalWrite);
  post(*s.weft.qp, wr_read(1, 5, 0), {a.sge(10, 20), b.sge(0, 0), b.sge(50, 30), a.sge(60, 1)});
  Bytes data = raw::pattern(51);
  std::size_t answered = 0;
  // One Read Request, or one for each piece: the RFC leaves it open. All must be answered.
  while (answered < data.size()) {
    const raw::ReadFields f = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
    EXPECT_EQ(f.src_to, answered);
    const auto from = data.begin() + static_cast<std::ptrdiff_t>(answered);
    s.peer.send_fpdu(raw::read_response(f.sink_stag, f.sink_to, Bytes(from, from + f.size)));
    answered += f.size;
  }
  EXPECT_EQ(take_success(*s.weft.send_cq, 1).byte_len, 51U);
  EXPECT_EQ(a.copy(10, 20), Bytes(data.begin(), data.begin() + 20));
  EXPECT_EQ(b.copy(50, 30), Bytes(data.begin() + 20, data.begin() + 50));
  EXPECT_EQ(a.copy(60, 1), Bytes(data.begin() + 50, data.end()));
  EXPECT_EQ(a.copy(30, 30), Bytes(30, 0xee));
}

TEST(Rfc5040_5_2_2, ReadOfNothingIsAskedAndCompletedByItsEmptyAnswer) {
  Session s;
  post(*s.weft.qp, wr_read(1, 0x99, 0x100), {});
  const raw::ReadFields f = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
  EXPECT_EQ(f.size, 0U);
  EXPECT_TRUE(quiet(*s.weft.send_cq, milliseconds(20)));
  s.peer.send_fpdu(raw::read_response(0xabcdabcd, 77, {}));  // not checked at length 0
  EXPECT_EQ(take_success(*s.weft.send_cq, 1).byte_len, 0U);
}

//= RFC 5040 section 5.5
//# RDMA Operations MUST be Completed at the Local Peer in the order that they were submitted by
//# the ULP.
TEST(Rfc5040_5_5, SendPostedBehindAReadCompletesBehindIt) {
  Session s;
  Memory memory(s.host, 64);
  post(*s.weft.qp, wr_read(1, 5, 0), {memory.sge(0, 8)});
  post(*s.weft.qp, wr_send(2), {memory.sge(8, 8)});
  post(*s.weft.qp, wr_write(3, 6, 0), {memory.sge(8, 8)});
  const raw::ReadFields f = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
  (void)s.peer.recv_segment(raw::kSend);  // need not wait for the answer
  (void)s.peer.recv_segment(raw::kWrite);
  EXPECT_TRUE(quiet(*s.weft.send_cq));
  s.peer.send_fpdu(raw::read_response(f.sink_stag, f.sink_to, raw::pattern(8)));
  take_success(*s.weft.send_cq, 1);
  take_success(*s.weft.send_cq, 2);
  take_success(*s.weft.send_cq, 3);
}

TEST(Rfc5040_5_5, FenceHoldsTheNextRequestUntilReadsAreAnswered) {
  Session s;
  Memory memory(s.host, 64);
  post(*s.weft.qp, wr_read(1, 5, 0), {memory.sge(0, 8)});
  post(*s.weft.qp, wr_send(2, SendFlags::kSignaled | SendFlags::kFence), {memory.sge(8, 8)});
  const raw::ReadFields f = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
  EXPECT_TRUE(s.peer.quiet());
  s.peer.send_fpdu(raw::read_response(f.sink_stag, f.sink_to, raw::pattern(8)));
  EXPECT_EQ(s.peer.recv_segment(raw::kSend).payload, memory.copy(8, 8));
  take_success(*s.weft.send_cq, 1);
  take_success(*s.weft.send_cq, 2);
}

}  // namespace
}  // namespace weft::test
