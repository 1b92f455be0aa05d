// FPDUs: length, pad, CRC, and how large a sender makes them. RFC 5044 sections 4 to 6.
#include <gtest/gtest.h>

#include "session.h"

namespace weft::test {
namespace {

using raw::Attach;
using raw::Bytes;

//= RFC 5044 section 4.1
//# The format of an FPDU shown below MUST be used for all MPA FPDUs.
TEST(Rfc5044_4_1, SendsAreByteExact) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role});
    Memory out(s.host, 5);
    out.put(0, raw::text("hello"));
    post(*s.weft.qp, wr_send(1), {out.sge()});
    const Bytes expected =
        raw::hex("0017 41 43 00000000 00000000 00000001 00000000 68656c6c6f 000000 b990b10c");
    EXPECT_EQ(s.peer.recv(expected.size()), expected);
  }
}

//= RFC 5044 section 4.1
//# The pad data MUST be set to zero by the sender and ignored by the receiver (except for CRC
//# checking).
TEST(Rfc5044_4_1, PadIsSentAsZeroAndItsValueIsIgnored) {
  for (const bool crc : {true, false}) {
    SCOPED_TRACE(crc);
    Session s({.crc = crc});
    Memory in(s.host, 64);
    Memory out(s.host, 64);
    for (std::uint32_t size = 0; size < 8; ++size) {
      const std::uint32_t msn = size + 1;
      post_recv(*s.weft.qp, msn, {in.sge()});
      s.peer.send_fpdu(raw::send(msn, raw::pattern(size)), {.pad = 0xa5});
      EXPECT_EQ(take_success(*s.weft.recv_cq, msn).byte_len, size);
      EXPECT_EQ(in.copy(0, size), raw::pattern(size));
      post(*s.weft.qp, wr_send(msn), {out.sge(0, size)});
      EXPECT_EQ(s.peer.recv_segment(raw::kSend).payload.size(), size);  // checks the pad
    }
  }
}

//= RFC 5044 section 4.4
//# When sending an FPDU, the sender MUST include a CRC field.
//= RFC 5044 section 4.4
//# When CRCs are enabled, the CRC field in the MPA FPDU MUST be computed using the CRC32c
//# polynomial in the manner described in the iSCSI Protocol [iSCSI] document for Header and Data
//# Digests.
TEST(Rfc5044_4_4, EveryFpduHasACrcField) {
  for (const bool crc : {true, false}) {
    SCOPED_TRACE(crc);
    Session s({.crc = crc});
    Memory out(s.host, 3000);
    out.fill_pattern(4);
    for (std::uint64_t id = 1; id < 40; ++id) {
      const std::size_t size = id * 73 % 3000;
      post(*s.weft.qp, wr_write(id, 1, 2), {out.sge(0, size)});
      EXPECT_EQ(s.peer.recv_segment(raw::kWrite).payload, out.copy(0, size));
    }
  }
}

// Flips one bit of a whole FPDU at this octet and expects the end of the stream.
void expect_bad_crc(std::size_t octet, std::uint8_t bit) {
  Session s;
  Memory target(s.host, 64);
  post_empty_recvs(*s.weft.qp, 1, 2);
  Bytes fpdu = s.peer.frame(raw::write(target.rkey(), target.to(), raw::pattern(41)));
  fpdu[octet] ^= bit;
  fpdu += s.peer.frame(raw::send(1, {}));
  s.peer.send(fpdu);
  s.peer.expect_terminate({2, 0, 2});
  s.peer.expect_fin();
  s.peer.close();
  s.expect_failed();
  s.expect_async(AsyncEventType::kQpFatal);
  s.expect_flushed_recvs({1, 2});
  EXPECT_TRUE(target.untouched());
  EXPECT_EQ(s.host.device->counters().crc_errors, 1U);
  EXPECT_EQ(s.host.device->counters().terminates_sent, 1U);
}

//= RFC 5044 section 4.4
//# If not, the receiver MUST treat the FPDU as an invalid FPDU.
//= RFC 5044 section 6
//# An MPA receiver MUST first verify the FPDU before passing the ULPDU to DDP.
TEST(Rfc5044_4_4, AnyBitWrongUnderTheCrcTerminatesAndPlacesNothing) {
  // DDP control, RDMAP control, STag, TO, first and last octet of payload, pad, the CRC itself.
  for (const std::size_t octet : {2U, 3U, 4U, 9U, 16U, 56U, 57U, 59U, 60U, 63U}) {
    SCOPED_TRACE(octet);
    expect_bad_crc(octet, 0x01);
    expect_bad_crc(octet, 0x80);
  }
}

TEST(Rfc5044_4_4, WrongLengthWithinTheDataAtHandIsCaughtByTheCrc) {
  Session s;
  Memory target(s.host, 64);
  Bytes fpdu = s.peer.frame(raw::write(target.rkey(), target.to(), raw::pattern(42)));
  fpdu[1] = static_cast<std::uint8_t>(fpdu[1] - 4);
  s.peer.send(fpdu);
  s.peer.expect_terminate({2, 0, 2});
  s.peer.expect_fin();
  EXPECT_TRUE(target.untouched());
}

//= RFC 5044 section 8
//# Once MPA delivers an error of any type, it MUST NOT pass or deliver any additional FPDUs on
//# that half connection.
TEST(Rfc5044_8, NothingIsDeliveredAfterAnMpaError) {
  Session s;
  post_empty_recvs(*s.weft.qp, 1, 2);
  s.expect_violation(raw::send(1, raw::text("bad")), {2, 0, 2}, Attach::kNothing, {.crc_xor = 4});
  s.expect_flushed_recvs({1, 2});
}

//= RFC 5044 section 8
//# For Error codes 2 and 3, MPA MUST NOT close the TCP connection following a reported error.
TEST(Rfc5044_8, TheTerminateSurvivesWhateverThePeerStillSends) {
  for (const Role role : kBothRoles) {
    SCOPED_TRACE(to_string(role));
    Session s({.role = role});
    s.peer.send_fpdu(raw::send(1, {}), {.crc_xor = 0x80000000});
    for (int i = 0; i < 20; ++i) s.peer.send(raw::zeros(5000));
    s.peer.expect_terminate({2, 0, 2});
    s.peer.send(raw::zeros(5000));
    s.peer.expect_fin();
    s.peer.close();
    s.expect_failed();
  }
}

// A ULPDU too short for the two control octets cannot be told apart from garbage.
TEST(WireChecks, Row3UlpduShorterThanItsControlOctetsTerminates) {
  for (const Role role : kBothRoles) {
    for (const std::size_t size : {0U, 1U}) {
      SCOPED_TRACE(std::string(to_string(role)) + ", " + std::to_string(size));
      Session s({.role = role});
      post_empty_recvs(*s.weft.qp, 1, 1);
      s.expect_violation(Bytes(size, 0xc1), {2, 0, 3}, Attach::kNothing);
      s.expect_async(AsyncEventType::kQpFatal);
      s.expect_flushed_recvs({1});
    }
  }
}

TEST(Rfc5044_6, FpdusUpToTheLastValueOfTheLengthFieldAreTaken) {
  for (const bool crc : {true, false}) {
    SCOPED_TRACE(crc);
    Session s({.crc = crc});
    Memory target(s.host, 65536);
    std::uint32_t msn = 1;
    for (const std::size_t ulpdu : {64768U, 64769U, 65532U, 65533U, 65534U, 65535U}) {
      SCOPED_TRACE(ulpdu);
      s.peer.send_fpdu(raw::write(target.rkey(), target.to(), raw::pattern(ulpdu - 14, msn)));
      Memory in(s.host, 65536);
      post_recv(*s.weft.qp, msn, {in.sge()});
      s.peer.send_fpdu(raw::send(msn, raw::pattern(ulpdu - 18, msn)));
      EXPECT_EQ(take_success(*s.weft.recv_cq, msn).byte_len, ulpdu - 18);
      EXPECT_EQ(in.copy(0, ulpdu - 18), raw::pattern(ulpdu - 18, msn));
      EXPECT_EQ(target.copy(0, ulpdu - 14), raw::pattern(ulpdu - 14, msn));
      EXPECT_TRUE(target.guards_intact());
      ++msn;
    }
  }
}

//= RFC 5044 section 5.1
//# MPA receivers are REQUIRED to be able to operate correctly even if alignment is lost (see
//# Section 6).
TEST(Rfc5044_5_1, FpdusArriveWholeFromAnySplitOfTheStream) {
  for (const std::size_t piece : {1U, 2U, 3U, 5U, 7U, 19U, 20U, 21U, 100U, 1448U}) {
    SCOPED_TRACE(piece);
    Session s;
    Memory target(s.host, 512);
    Memory in(s.host, 64);
    post_recv(*s.weft.qp, 1, {in.sge()});
    post_recv(*s.weft.qp, 2, {in.sge()});
    Bytes all = s.peer.frame(raw::write(target.rkey(), target.to(3), raw::pattern(300)));
    all += s.peer.frame(raw::send(1, {}));
    all += s.peer.frame(raw::write(target.rkey(), target.to(400), raw::pattern(1)));
    all += s.peer.frame(raw::send(2, raw::pattern(33)));
    s.peer.send_in_pieces(all, piece);
    EXPECT_EQ(take_success(*s.weft.recv_cq, 1).byte_len, 0U);
    EXPECT_EQ(target.copy(3, 300), raw::pattern(300));
    EXPECT_EQ(take_success(*s.weft.recv_cq, 2).byte_len, 33U);
    EXPECT_EQ(in.copy(0, 33), raw::pattern(33));
    EXPECT_EQ(target.copy(0, 3), Bytes(3, 0xee));
    EXPECT_EQ(target.copy(303, 97), Bytes(97, 0xee));
  }
}

//= RFC 5044 section 5.2
//# The receivers MUST identify FPDU boundaries by using the ULPDU_LENGTH field, as described in
//# Section 6.
TEST(Rfc5044_5_2, ManyFpdusInOneSegmentAreToldApart) {
  constexpr std::uint32_t kCount = 200;
  Session s;
  post_empty_recvs(*s.weft.qp, 1, kCount);
  std::vector<Bytes> ulpdus;
  for (std::uint32_t msn = 1; msn <= kCount; ++msn) ulpdus.push_back(raw::send(msn, {}));
  s.peer.send_fpdus(ulpdus);
  for (std::uint32_t msn = 1; msn <= kCount; ++msn) take_success(*s.weft.recv_cq, msn);
}

// Segments of one long Write or Send as Weft cuts it.
std::vector<raw::Segment> segments_of(Session& s, const SendWr& wr, Memory& from) {
  post(*s.weft.qp, wr, {from.sge()});
  std::vector<raw::Segment> out;
  do {
    out.push_back(s.peer.recv_segment());
  } while (!out.back().last);
  return out;
}

//= RFC 5044 section 3
//# The range of MULPDU values MUST be between 128 octets and 64768 octets, inclusive.
//= RFC 5044 section 3
//# The sending DDP MUST NOT post a ULPDU larger than 64768 octets to MPA.
TEST(Rfc5044_3, NoUlpduIsLongerThanAllowed) {
  for (const FpduPolicy policy :
       {FpduPolicy::kAuto, FpduPolicy::kMss, FpduPolicy::kCapped, FpduPolicy::kLarge}) {
    SCOPED_TRACE(static_cast<int>(policy));
    Session s({.fpdu = policy});
    Memory from(s.host, 300000);
    from.fill_pattern(2);
    Bytes got;
    for (const raw::Segment& seg : segments_of(s, wr_write(1, 7, 0), from)) {
      EXPECT_LE(seg.whole.size(), policy == FpduPolicy::kCapped ? 16384U : 64768U);
      EXPECT_TRUE(seg.last || seg.whole.size() >= 128);
      got += seg.payload;
    }
    EXPECT_EQ(got, from.copy(0, from.size()));
  }
}

// What one TCP segment carries on this connection: between the MSS less the timestamp option and
// the MSS.
bool fits_emss(std::size_t ulpdu, std::size_t mss, bool markers) {
  for (std::size_t emss = mss - 12; emss <= mss; emss += 12) {
    const std::size_t marker_octets = markers ? 4 * ((emss + 511) / 512) : 0;
    if (ulpdu == emss - (6 + marker_octets + emss % 4)) return true;
  }
  return false;
}

//= RFC 5044 section 4.5
//# The maximum ULPDU Length for a single ULPDU when Markers are present MUST be computed as:
//= RFC 5044 section 4.5
//# The maximum ULPDU Length for a single ULPDU when Markers are NOT present MUST be computed as:
TEST(Rfc5044_4_5, AlignedFpdusFillOneTcpSegment) {
  for (const bool markers : {false, true}) {
    SCOPED_TRACE(markers);
    Session s({.role = Role::kInitiator,
               .peer_wants_markers = markers,
               .socket = {.mss_bytes = 1460},
               .fpdu = FpduPolicy::kMss});
    Memory from(s.host, 20000);
    const auto segments = segments_of(s, wr_send(1), from);
    ASSERT_GT(segments.size(), 10U);
    for (const raw::Segment& seg : segments) {
      if (seg.last) break;
      EXPECT_TRUE(fits_emss(seg.whole.size(), 1460, markers)) << seg.whole.size();
    }
  }
}

//= RFC 5044 section 4.5
//# If this occurs, the MPA on TCP sender MUST NOT shrink the MULPDU below 128 octets and is not
//# required to follow the segmentation rules in Section 5.1 and Appendix A.
TEST(Rfc5044_4_5, TinyTcpSegmentsGiveUpAlignmentBeforeTheMinimum) {
  Session s({.role = Role::kInitiator, .socket = {.mss_bytes = 96}, .fpdu = FpduPolicy::kMss});
  Memory from(s.host, 2000);
  for (const raw::Segment& seg : segments_of(s, wr_send(1), from)) {
    if (!seg.last) {
      EXPECT_EQ(seg.whole.size(), 128U);
    }
  }
}

}  // namespace
}  // namespace weft::test
