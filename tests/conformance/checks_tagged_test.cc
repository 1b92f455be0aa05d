// The checks on tagged segments, one by one and in their order: rows 4 to 19 of the table that
// docs/wire-support.md explains.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;
using raw::Code;
using Async = AsyncEventType;

// A connection and memory of every kind that a Write can meet.
struct Target {
  explicit Target(Role role = Role::kResponder)
      : s({.role = role}),
        foreign_pd(must(s.host.device->create_pd(), "create a protection domain")),
        good(s.host, 64),
        other(s.host, 64),
        read_only(s.host, 64, Access::kLocalWrite | Access::kRemoteRead),
        foreign(*foreign_pd, 64, kAllAccess),
        foreign_read_only(*foreign_pd, 64, Access::kRemoteRead) {}

  [[nodiscard]] bool all_untouched() const {
    return good.untouched() && other.untouched() && read_only.untouched() && foreign.untouched() &&
           foreign_read_only.untouched();
  }
  // A key that names nothing.
  [[nodiscard]] std::uint32_t unknown() const { return good.rkey() ^ 0x5a5a5a00U; }

  // The Write ends the stream with this code and changes nothing anywhere.
  void expect(const Bytes& write, Code code, Async event, int line = __builtin_LINE()) {
    s.expect_violation(write, code, Attach::kDdp, {}, line);
    s.expect_async(event, line);
    EXPECT_TRUE(all_untouched()) << "line " << line;
  }

  Session s;
  std::shared_ptr<ProtectionDomain> foreign_pd;
  Memory good, other, read_only, foreign, foreign_read_only;
};

const Bytes kData = raw::text("12345678");

TEST(WireChecks, Row4TaggedSegmentOfAnotherDdpVersionTerminates) {
  for (const std::uint8_t version : {std::uint8_t{0}, std::uint8_t{2}, std::uint8_t{3}}) {
    Target t;
    t.s.expect_violation(
        raw::ulpdu(raw::Tagged{
            .stag = t.good.rkey(), .to = t.good.to(), .payload = kData, .ddp_bits = version}),
        {1, 1, 4}, Attach::kNothing);
    t.s.expect_async(Async::kQpFatal);
    EXPECT_TRUE(t.all_untouched());
  }
}

TEST(WireChecks, Row5TaggedSegmentOfAnotherRdmapVersionTerminates) {
  Target t;
  t.s.expect_violation(
      raw::ulpdu(
          raw::Tagged{.stag = t.good.rkey(), .to = t.good.to(), .payload = kData, .rdmap_bits = 0}),
      {0, 2, 5}, Attach::kNothing);
  t.s.expect_async(Async::kQpFatal);
  EXPECT_TRUE(t.all_untouched());
}

//= RFC 5041 section 4.2
//# The STag MUST be valid for this DDP Stream.
TEST(WireChecks, Row13WriteToAnUnknownStagTerminates) {
  for (const Role role : kBothRoles) {
    Target t(role);
    t.expect(raw::write(t.unknown(), t.good.to(), kData), {1, 1, 0}, Async::kQpAccessError);
  }
}

TEST(WireChecks, Row13WriteWithTheWrongKeyOctetTerminates) {
  for (const std::uint32_t bit : {1U, 0x80U}) {
    Target t;
    t.expect(raw::write(t.good.rkey() ^ bit, t.good.to(), kData), {1, 1, 0}, Async::kQpAccessError);
  }
}

TEST(WireChecks, Row13WriteToADeregisteredStagTerminates) {
  Target t;
  const std::uint32_t rkey = t.good.rkey();
  const std::uint64_t to = t.good.to();
  must(t.good.region->deregister(), "deregister");
  t.expect(raw::write(rkey, to, kData), {1, 1, 0}, Async::kQpAccessError);
}

//= RFC 5041 section 8.2
//# For an incoming DDP Segment of a Tagged DDP Message on a DDP Stream, if the PD ID of the DDP
//# Stream is not the same as the PD ID of the STag targeted by the Tagged DDP Message, then the
//# DDP Segment is not Placed, and the DDP layer MUST surface a local error to the ULP.
TEST(WireChecks, Row14WriteToAnotherProtectionDomainTerminates) {
  for (const Role role : kBothRoles) {
    Target t(role);
    t.expect(raw::write(t.foreign.rkey(), t.foreign.to(), kData), {1, 1, 2}, Async::kQpAccessError);
  }
}

TEST(WireChecks, Row15WriteWithoutTheRemoteWriteRightTerminates) {
  for (const Role role : kBothRoles) {
    Target t(role);
    t.expect(raw::write(t.read_only.rkey(), t.read_only.to(), kData), {1, 1, 0},
             Async::kQpAccessError);
  }
}

TEST(WireChecks, Row16WriteThatWrapsTheOffsetTerminates) {
  for (const std::uint64_t to : {~0ULL, ~0ULL - 6}) {
    Target t;
    t.expect(raw::write(t.good.rkey(), to, kData), {1, 1, 3}, Async::kQpAccessError);
  }
}

TEST(WireChecks, Row17WriteOutsideTheRegionTerminates) {
  // First octet before, last octet behind, all behind, far away on either side.
  for (const std::int64_t at : {-1LL, -8LL, 57LL, 64LL, 1LL << 32, -(1LL << 32)}) {
    SCOPED_TRACE(at);
    Target t;
    t.expect(raw::write(t.good.rkey(), t.good.to() + static_cast<std::uint64_t>(at), kData),
             {1, 1, 1}, Async::kQpAccessError);
  }
  Target t;
  t.expect(raw::write(t.good.rkey(), ~0ULL - 7, kData), {1, 1, 1}, Async::kQpAccessError);
}

//= RFC 5040 section 8.1.1
//# An RNIC MUST ensure that a Remote Peer is not able to access memory outside of the buffer
//# specified when the STag was enabled for remote access.
TEST(WireChecks, Row17WritesAtBothEdgesOfTheRegionAreTaken) {
  Target t;
  t.s.peer.send_fpdu(raw::write(t.good.rkey(), t.good.to(), kData));
  t.s.peer.send_fpdu(raw::write(t.good.rkey(), t.good.to(56), kData));
  t.s.expect_alive(1, 1);
  EXPECT_EQ(t.good.copy(0, 8), kData);
  EXPECT_EQ(t.good.copy(56, 8), kData);
  EXPECT_TRUE(t.good.guards_intact());
}

TEST(WireChecks, OfTwoFaultsInAWriteTheEarlierRowIsReported) {
  struct Case {
    const char* what;
    Code code;
    std::uint32_t (*stag)(const Target&);
    std::uint64_t to;
  };
  const auto unknown = [](const Target& t) { return t.unknown(); };
  const auto foreign = [](const Target& t) { return t.foreign.rkey(); };
  const auto foreign_read_only = [](const Target& t) { return t.foreign_read_only.rkey(); };
  const auto read_only = [](const Target& t) { return t.read_only.rkey(); };
  const Case cases[] = {
      {"13 before 16", {1, 1, 0}, unknown, ~0ULL},
      {"13 before 17", {1, 1, 0}, unknown, 0},
      {"14 before 15", {1, 1, 2}, foreign_read_only, 0},
      {"14 before 16", {1, 1, 2}, foreign, ~0ULL},
      {"14 before 17", {1, 1, 2}, foreign, 0},
      {"15 before 16", {1, 1, 0}, read_only, ~0ULL},
      {"15 before 17", {1, 1, 0}, read_only, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Target t;
    t.expect(raw::write(c.stag(t), c.to, kData), c.code, Async::kQpAccessError);
  }
}

//= RFC 5041 section 5.2
//# The STag and TO fields MUST NOT be checked for a zero-length Tagged DDP Message.
TEST(Rfc5041_5_2, ZeroLengthTaggedIgnoresStagAndOffset) {
  for (const Role role : kBothRoles) {
    Target t(role);
    t.s.peer.send_fpdus({raw::write(0, 0, {}), raw::write(t.unknown(), ~0ULL, {}),
                         raw::write(t.foreign.rkey(), 1, {}),
                         raw::write(t.read_only.rkey(), t.read_only.to(1000), {}),
                         raw::write(0xffffffff, 5, {})});
    t.s.expect_alive(1, 1);
    EXPECT_TRUE(t.all_untouched());
  }
}

// The second segment of a Write whose first left 8 octets at the start of `good`.
void expect_bad_second(const char* what, Code code, raw::Tagged (*make)(const Target&)) {
  SCOPED_TRACE(what);
  Target t;
  t.s.peer.send_fpdu(raw::ulpdu(raw::Tagged{
      .last = false, .stag = t.good.rkey(), .to = t.good.to(), .payload = raw::pattern(8)}));
  t.s.expect_violation(raw::ulpdu(make(t)), code, Attach::kDdp);
  t.s.expect_async(Async::kQpAccessError);
  EXPECT_EQ(t.good.copy(8, 56), Bytes(56, 0xee));
  EXPECT_TRUE(t.other.untouched());
}

//= RFC 5041 section 4.2
//# Each DDP Segment within a specific DDP Message MUST contain the same value for this field and
//# MUST be the value supplied by the ULP.
TEST(WireChecks, Row18WriteThatDoesNotContinueTheOpenOneTerminates) {
  expect_bad_second("another STag", {1, 1, 0}, [](const Target& t) {
    return raw::Tagged{.stag = t.other.rkey(), .to = t.other.to(8), .payload = kData};
  });
  expect_bad_second("a gap", {1, 1, 1}, [](const Target& t) {
    return raw::Tagged{.stag = t.good.rkey(), .to = t.good.to(9), .payload = kData};
  });
  expect_bad_second("going back", {1, 1, 1}, [](const Target& t) {
    return raw::Tagged{.stag = t.good.rkey(), .to = t.good.to(), .payload = kData};
  });
  expect_bad_second("another STag and a gap", {1, 1, 0}, [](const Target& t) {
    return raw::Tagged{.stag = t.other.rkey(), .to = t.other.to(30), .payload = kData};
  });
}

TEST(WireChecks, Row17ComesBeforeRow18) {
  expect_bad_second("out of bounds with another STag", {1, 1, 1}, [](const Target& t) {
    return raw::Tagged{.stag = t.other.rkey(), .to = t.other.to(64), .payload = kData};
  });
}

TEST(WireChecks, Row18SecondSegmentIsStillCheckedAgainstTheRegion) {
  Target t;
  t.s.peer.send_fpdu(raw::ulpdu(raw::Tagged{
      .last = false, .stag = t.good.rkey(), .to = t.good.to(56), .payload = raw::pattern(8)}));
  t.s.expect_violation(raw::write(t.good.rkey(), t.good.to(64), raw::text("x")), {1, 1, 1},
                       Attach::kDdp);
  EXPECT_TRUE(t.good.guards_intact());
}

TEST(WireChecks, Row18ARegionRevokedBetweenTwoSegmentsTakesNoMore) {
  Target t;
  t.s.peer.send_fpdu(raw::ulpdu(raw::Tagged{
      .last = false, .stag = t.good.rkey(), .to = t.good.to(), .payload = raw::pattern(8)}));
  // It is counted before it is placed.
  ASSERT_TRUE(eventually([&] { return t.good.copy(0, 8) == raw::pattern(8); }));
  const std::uint32_t rkey = t.good.rkey();
  const std::uint64_t to = t.good.to(8);
  must(t.good.region->deregister(), "deregister");
  t.s.expect_violation(raw::write(rkey, to, kData), {1, 1, 0}, Attach::kDdp);
  EXPECT_EQ(t.good.copy(8, 56), Bytes(56, 0xee));
}

// Row 19. One Read of 16 octets is outstanding; what comes back is wrong.
struct PendingRead {
  explicit PendingRead(Role role = Role::kResponder) : s({.role = role}), sink(s.host, 64) {
    post(*s.weft.qp, wr_read(1, 0x1234, 0x5678), {sink.sge(0, 16)});
    post(*s.weft.qp, wr_read(2, 0x1234, 0x5678), {sink.sge(32, 16)});
    first = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
    second = raw::parse_read(s.peer.recv_segment(raw::kReadRequest));
  }
  // `bad` ends the stream; the first Read gets `status`, the second is flushed.
  void expect(const Bytes& bad, Code code, WcStatus status, int line = __builtin_LINE()) {
    s.expect_violation(bad, code, Attach::kDdp, {}, line);
    const WorkCompletion a = take(*s.weft.send_cq, line);
    EXPECT_EQ(a.wr_id, 1U) << "line " << line;
    EXPECT_EQ(a.status, status) << "line " << line << ": " << to_string(a);
    const WorkCompletion b = take(*s.weft.send_cq, line);
    EXPECT_EQ(b.wr_id, 2U) << "line " << line;
    EXPECT_EQ(b.status, WcStatus::kFlushed) << "line " << line;
    EXPECT_EQ(sink.copy(16, 48), Bytes(48, 0xee)) << "line " << line;
    EXPECT_TRUE(sink.guards_intact()) << "line " << line;
  }
  Session s;
  Memory sink;
  raw::ReadFields first, second;
};

TEST(WireChecks, Row19ReadResponseNobodyAskedForTerminates) {
  for (const Role role : kBothRoles) {
    for (const std::size_t size : {0U, 8U}) {
      SCOPED_TRACE(size);
      Target t(role);
      t.s.expect_violation(raw::read_response(t.good.rkey(), t.good.to(), raw::pattern(size)),
                           {0, 2, 6}, Attach::kDdp);
      t.s.expect_async(Async::kQpRequestError);
      EXPECT_TRUE(t.all_untouched());
    }
  }
}

TEST(WireChecks, Row19ReadResponseWithAnotherStagTerminates) {
  PendingRead unknown;
  unknown.expect(
      raw::read_response(unknown.first.sink_stag ^ 0x100, unknown.first.sink_to, raw::pattern(16)),
      {1, 1, 0}, WcStatus::kBadResponse);
  PendingRead valid;
  Memory elsewhere(valid.s.host, 64);
  valid.expect(raw::read_response(elsewhere.rkey(), elsewhere.to(), raw::pattern(16)), {1, 1, 0},
               WcStatus::kBadResponse);
  EXPECT_TRUE(elsewhere.untouched());
}

TEST(WireChecks, Row19ReadResponseAtAnotherOffsetTerminates) {
  for (const int delta : {-1, 1, 16}) {
    SCOPED_TRACE(delta);
    PendingRead p;
    p.expect(
        raw::read_response(p.first.sink_stag, p.first.sink_to + static_cast<std::uint64_t>(delta),
                           raw::pattern(16)),
        {1, 1, 1}, WcStatus::kBadResponse);
    EXPECT_TRUE(p.sink.untouched());
  }
}

TEST(WireChecks, Row19ReadResponseOfAnotherLengthTerminates) {
  PendingRead longer;
  longer.expect(raw::read_response(longer.first.sink_stag, longer.first.sink_to, raw::pattern(17)),
                {1, 1, 1}, WcStatus::kLocalLength);
  EXPECT_TRUE(longer.sink.untouched());
  PendingRead shorter;
  shorter.expect(
      raw::read_response(shorter.first.sink_stag, shorter.first.sink_to, raw::pattern(15)),
      {1, 1, 1}, WcStatus::kLocalLength);
  PendingRead empty;
  empty.expect(raw::read_response(empty.first.sink_stag, empty.first.sink_to, {}), {1, 1, 1},
               WcStatus::kLocalLength);
}

TEST(WireChecks, Row19LaterSegmentsOfAReadResponseAreCheckedToo) {
  const auto after_half = [](raw::Tagged (*make)(const PendingRead&), Code code, WcStatus status) {
    PendingRead p;
    p.s.peer.send_fpdu(
        raw::read_response(p.first.sink_stag, p.first.sink_to, raw::pattern(8), false));
    raw::Tagged second = make(p);
    second.opcode = raw::kReadResponse;
    p.expect(raw::ulpdu(second), code, status);
  };
  after_half(
      [](const PendingRead& p) {
        return raw::Tagged{.stag = p.first.sink_stag ^ 0x10000,
                           .to = p.first.sink_to + 8,
                           .payload = raw::pattern(8)};
      },
      {1, 1, 0}, WcStatus::kBadResponse);
  after_half(
      [](const PendingRead& p) {
        return raw::Tagged{
            .stag = p.first.sink_stag, .to = p.first.sink_to + 9, .payload = raw::pattern(7)};
      },
      {1, 1, 1}, WcStatus::kBadResponse);
  after_half(
      [](const PendingRead& p) {
        return raw::Tagged{
            .stag = p.first.sink_stag, .to = p.first.sink_to + 8, .payload = raw::pattern(9)};
      },
      {1, 1, 1}, WcStatus::kLocalLength);
  after_half(
      [](const PendingRead& p) {
        return raw::Tagged{
            .stag = p.first.sink_stag, .to = p.first.sink_to + 8, .payload = raw::pattern(7)};
      },
      {1, 1, 1}, WcStatus::kLocalLength);
  after_half(
      [](const PendingRead& p) {
        return raw::Tagged{.last = false,
                           .stag = p.first.sink_stag,
                           .to = p.first.sink_to + 8,
                           .payload = raw::pattern(9)};
      },
      {1, 1, 1}, WcStatus::kLocalLength);
}

TEST(WireChecks, Row19ResponsesInTheWrongOrderTerminate) {
  PendingRead p;
  const std::uint8_t code = p.first.sink_stag == p.second.sink_stag ? 1 : 0;
  p.s.expect_violation_code(
      raw::read_response(p.second.sink_stag, p.second.sink_to, raw::pattern(16)), {1, 1, code});
  EXPECT_EQ(take(*p.s.weft.send_cq).status, WcStatus::kBadResponse);
  EXPECT_EQ(take(*p.s.weft.send_cq).status, WcStatus::kFlushed);
}

}  // namespace
}  // namespace weft::test
