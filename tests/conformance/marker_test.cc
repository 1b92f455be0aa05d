// Markers in both directions. RFC 5044 section 4.3.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;
using raw::hex;

struct Example {
  std::vector<std::size_t> sizes;  // payload of the Sends, zero octets; the last may say "hello"
  bool hello;
  std::size_t at;
  std::string last_fpdu;
};

// The worked examples: the stream of an initiator, from octet 0.
std::vector<Example> examples() {
  const std::string zeros24(48, '0');
  return {
      {{24},
       false,
       0,
       "00000000 002a 4143 00000000 00000000 00000001 00000000" + zeros24 + "52239983"},
      {{464, 24},
       false,
       492,
       "002a 4143 00000000 00000000 00000002 00000000 00000014" + zeros24 + "84925898"},
      {{480, 5},
       true,
       508,
       "0017 4143 00000004 00000000 00000000 00000002 00000000 68656c6c6f 000000 57cd95ee"},
      {{456, 5},
       true,
       484,
       "0017 4143 00000000 00000000 00000002 00000000 68656c6c6f 000000 0000001c 5a375eac"},
      {{24, 436, 5},
       true,
       512,
       "00000000 0017 4143 00000000 00000000 00000003 00000000 68656c6c6f 000000 b0114d10"},
  };
}

//= RFC 5044 section 4.3
//# When Markers are enabled (see Section 7.1, Connection Setup), the MPA Markers MUST be inserted
//# immediately preceding the first FPDU of Full Operation Phase, and at every 512th octet of the
//# TCP octet stream thereafter.
//= RFC 5044 section 4.3
//# FPDUPTR MUST contain the number of octets in the TCP stream from the beginning of the ULPDU
//# Length field to the first octet of the Marker, unless the Marker falls between FPDUs.
TEST(Rfc5044_4_3, SentMarkersEqualTheWorkedExamples) {
  for (const Example& e : examples()) {
    SCOPED_TRACE(e.at);
    Session s({.role = Role::kInitiator, .peer_wants_markers = true});
    Memory out(s.host, 512, kAllAccess, 0);
    for (std::size_t i = 0; i < e.sizes.size(); ++i) {
      const bool last = i + 1 == e.sizes.size();
      if (last && e.hello) out.put(0, raw::text("hello"));
      post(*s.weft.qp, wr_send(i), {out.sge(0, e.sizes[i])});
      take_success(*s.weft.send_cq, i);
    }
    if (e.at > 0) (void)s.peer.recv(e.at);
    const Bytes expected = hex(e.last_fpdu);
    EXPECT_EQ(s.peer.recv(expected.size()), expected);
  }
}

TEST(Rfc5044_4_3, ReceivedMarkersOfTheWorkedExamplesAreStripped) {
  for (const Example& e : examples()) {
    SCOPED_TRACE(e.at);
    Session s({.weft_wants_markers = true, .warm_up = false});
    Memory in(s.host, 512);
    Bytes all;
    for (std::size_t i = 0; i + 1 < e.sizes.size(); ++i) {
      all += s.peer.frame(raw::send(static_cast<std::uint32_t>(i + 1), raw::zeros(e.sizes[i])));
    }
    EXPECT_EQ(all.size(), e.at);
    all += hex(e.last_fpdu);
    for (std::size_t i = 0; i < e.sizes.size(); ++i) post_recv(*s.weft.qp, i, {in.sge()});
    s.peer.send(all);
    for (std::size_t i = 0; i < e.sizes.size(); ++i) {
      EXPECT_EQ(take_success(*s.weft.recv_cq, i).byte_len, e.sizes[i]);
    }
    EXPECT_EQ(in.copy(0, e.sizes.back()), e.hello ? raw::text("hello") : raw::zeros(24));
    EXPECT_TRUE(in.guards_intact());
  }
}

//= RFC 5044 section 4.3
//# If an FPDU is large enough to contain multiple Markers, they MUST all point to the same point
//# in the TCP stream: the first octet of the ULPDU Length field for the FPDU.
TEST(Rfc5044_4_3, LongFpduCarriesAllItsMarkers) {
  Session s({.role = Role::kInitiator, .peer_wants_markers = true, .fpdu = FpduPolicy::kLarge});
  Memory out(s.host, 1200);
  post(*s.weft.qp, wr_send(1), {out.sge()});
  const Bytes fpdu = s.peer.recv(1236);
  EXPECT_EQ(raw::get32(fpdu, 0), 0U);
  EXPECT_EQ(raw::get32(fpdu, 512), 508U);
  EXPECT_EQ(raw::get32(fpdu, 1024), 1020U);
  EXPECT_TRUE(s.peer.quiet());
}

//= RFC 5044 section 4.3
//# All MPA senders MUST be able to generate Markers when their use is declared by the opposing
//# receiver (see Section 7.1, Connection Setup).
//= RFC 5044 section 4.3
//# When Markers are enabled, MPA senders MUST insert a Marker into the data stream at a 512-octet
//# periodic interval in the TCP Sequence Number Space.
TEST(Rfc5044_4_3, SentMarkersAreRightAtEveryPositionOfAnFpdu) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role, .peer_wants_markers = true});
    Memory out(s.host, 1024);
    out.fill_pattern(3);
    // Each pair moves the second FPDU by 4 octets against the marker grid.
    for (std::uint64_t id = 0; id < 300; ++id) {
      const std::size_t size = id % 2 == 0 ? 480 : id * 4 % 300;
      post(*s.weft.qp, wr_send(id), {out.sge(0, size)});
      EXPECT_EQ(s.peer.recv_segment(raw::kSend).payload, out.copy(0, size));
      take_success(*s.weft.send_cq, id);
    }
  }
}

TEST(Rfc5044_4_3, ReceivedMarkersAreStrippedAtEveryPositionOfAnFpdu) {
  for (const bool crc : {true, false}) {
    SCOPED_TRACE(crc);
    Session s({.crc = crc, .weft_wants_markers = true});
    Memory in(s.host, 1024);
    Memory target(s.host, 1024);
    for (std::uint32_t msn = 1; msn <= 300; ++msn) {
      const std::size_t size = msn % 2 == 0 ? 470 : msn * 4 % 300;
      post_recv(*s.weft.qp, msn, {in.sge()});
      s.peer.send_fpdus({raw::write(target.rkey(), target.to(msn % 7), raw::pattern(size, msn)),
                         raw::send(msn, raw::pattern(size + msn % 4, msn))});
      ASSERT_EQ(take_success(*s.weft.recv_cq, msn).byte_len, size + msn % 4);
      ASSERT_EQ(in.copy(0, size + msn % 4), raw::pattern(size + msn % 4, msn));
      ASSERT_EQ(target.copy(msn % 7, size), raw::pattern(size, msn));
    }
    EXPECT_TRUE(in.guards_intact());
    EXPECT_TRUE(target.guards_intact());
  }
}

TEST(Rfc5044_4_3, ReceivedMarkersMayBeCutBySegmentsAnywhere) {
  for (const std::size_t piece : {1U, 3U, 511U, 513U}) {
    SCOPED_TRACE(piece);
    Session s({.weft_wants_markers = true});
    Memory in(s.host, 2048);
    post_recv(*s.weft.qp, 1, {in.sge()});
    s.peer.send_in_pieces(s.peer.frame(raw::send(1, raw::pattern(1500))), piece);
    take_success(*s.weft.recv_cq, 1);
    EXPECT_EQ(in.copy(0, 1500), raw::pattern(1500));
  }
}

//= RFC 5044 section 4.2
//# The Reserved field MUST be set to zero on transmit and ignored on receive (except for CRC
//# calculation).
TEST(Rfc5044_4_2, ReservedOctetsOfAMarkerAreIgnored) {
  Session s({.weft_wants_markers = true});
  post_empty_recvs(*s.weft.qp, 1, 1);
  Memory target(s.host, 1500);
  s.peer.send_fpdu(raw::write(target.rkey(), target.to(), raw::pattern(1500)),
                   {.marker_high = 0xbeef});
  s.peer.send_fpdu(raw::send(1, {}), {.marker_high = 0xffff});
  take_success(*s.weft.recv_cq, 1);
  EXPECT_EQ(target.copy(0, 1500), raw::pattern(1500));
}

//= RFC 5044 section 4.2
//# The least significant two bits MUST always be set to zero at the transmitter, and the receivers
//# MUST always treat these as zero for calculations.
TEST(Rfc5044_4_2, LowTwoBitsOfFpduptrAreIgnored) {
  for (const std::uint16_t bits : U16s{1, 2, 3}) {
    SCOPED_TRACE(bits);
    Session s({.weft_wants_markers = true});
    post_empty_recvs(*s.weft.qp, 1, 1);
    Memory target(s.host, 1500);
    s.peer.send_fpdu(raw::write(target.rkey(), target.to(), raw::pattern(1500)),
                     {.marker_xor = bits});
    s.peer.send_fpdu(raw::send(1, {}), {.marker_xor = bits});
    take_success(*s.weft.recv_cq, 1);
    EXPECT_EQ(target.copy(0, 1500), raw::pattern(1500));
  }
}

//= RFC 5044 section 8
//# The following errors MUST be detected by MPA and the codes SHOULD be provided to DDP or other
//# Consumer:
TEST(WireChecks, Row2MarkerThatDisagreesUnderAGoodCrcTerminates) {
  for (const Role role : kBothRoles) {
    for (const bool crc : {true, false}) {
      SCOPED_TRACE(std::string(to_string(role)) + (crc ? ", CRC on" : ", CRC off"));
      Session s({.role = role, .crc = crc, .weft_wants_markers = true});
      post_empty_recvs(*s.weft.qp, 1, 1);
      Memory target(s.host, 1500);
      s.expect_violation(raw::write(target.rkey(), target.to(), raw::pattern(1500)), {2, 0, 3},
                         Attach::kNothing, {.marker_xor = 8});
      s.expect_async(AsyncEventType::kQpFatal);
      s.expect_flushed_recvs({1});
      // Without a CRC to wait for, octets ahead of the marker may be in place already.
      if (crc) {
        EXPECT_TRUE(target.untouched());
      }
      EXPECT_TRUE(target.guards_intact());
    }
  }
}

TEST(WireChecks, Row1ComesBeforeRow2BadCrcHidesABadMarker) {
  Session s({.weft_wants_markers = true});
  Memory target(s.host, 1500);
  s.expect_violation(raw::write(target.rkey(), target.to(), raw::pattern(1500)), {2, 0, 2},
                     Attach::kNothing, {.crc_xor = 1, .marker_xor = 8});
}

}  // namespace
}  // namespace weft::test
