#include "wire/print.h"

#include <gtest/gtest.h>

#include "wire_testing.h"

namespace weft {
namespace {

using namespace weft::testing;

TEST(WirePrint, StartupFramesShowFlagsAndDepths) {
  const Bytes words = hex("8010c010");
  const MpaFrame request{.crc = true, .enhanced = true, .revision = 2, .private_data = words};
  EXPECT_EQ(to_string(request),
            "MPA Request rev 2 C S private 4 [IRD 16 ORD 16 peer-to-peer RTR-Write RTR-Read]");
  const MpaFrame reject{.is_reply = true, .markers = true, .reject = true, .enhanced = true};
  EXPECT_EQ(to_string(reject), "MPA Reply rev 2 M R S private 0 [not enough bytes]");
}

TEST(WirePrint, HeadersShowEveryField) {
  EXPECT_EQ(to_string(DdpTagged{true, 0x40, Stag{0x01020304}, 0x1000}),
            "Write tagged last STag 01020304 TO 0000000000001000");
  EXPECT_EQ(to_string(DdpUntagged{false, 0x44, 0xa, 0, Msn{7}, 1424}),
            "SendInvalidate untagged QN 0 MSN 7 MO 1424 RsvdULP 0000000a");
  EXPECT_EQ(to_string(DdpTagged{false, 0x4f, Stag{0}, 0}),
            "control 4f tagged STag 00000000 TO 0000000000000000");
}

TEST(WirePrint, BodiesShowEveryField) {
  EXPECT_EQ(to_string(ReadRequest{Stag{1}, 2, 4294967295U, Stag{3}, 4}),
            "sink STag 00000001 TO 0000000000000002 size 4294967295 source STag 00000003 TO "
            "0000000000000004");
  EXPECT_EQ(to_string(AtomicRequest{AtomicOp::kFetchAdd, 0x77, Stag{2}, 8, 1, 0, 0, 0}),
            "FetchAdd id 00000077 STag 00000002 TO 0000000000000008 add 0000000000000001 mask "
            "0000000000000000");
  EXPECT_EQ(to_string(AtomicRequest{AtomicOp::kCompareSwap, 0x78, Stag{2}, 8, 1, 2, 3, 4}),
            "CompareSwap id 00000078 STag 00000002 TO 0000000000000008 swap 0000000000000001 mask "
            "0000000000000002 compare 0000000000000003 mask 0000000000000004");
  EXPECT_EQ(to_string(AtomicResponse{0x77, 41}), "id 00000077 original 0000000000000029");
  EXPECT_EQ(to_string(ImmediateData{0x0011223344556677}), "data 0011223344556677");
}

TEST(WirePrint, TerminatesShowCodeMeaningAndOffender) {
  EXPECT_EQ(to_string(term::kDdpTooLong), "1/2/05");
  Terminate t = make_terminate(term::kDdpBounds);
  attach_ddp(t, hex("c140 01020304 0000000000001000"), 24);
  EXPECT_EQ(to_string(t),
            "1/1/01 base or bounds violation; length 24; on Write tagged last STag 01020304 TO "
            "0000000000001000");
}

TEST(WirePrint, WholeUlpdusAreDescribedValidOrNot) {
  EXPECT_EQ(describe_ulpdu({}), "ULPDU 0: not enough bytes");
  EXPECT_EQ(describe_ulpdu(hex("4143")), "ULPDU 2: not enough bytes");
  EXPECT_EQ(describe_ulpdu(hex("c240")), "ULPDU 2: DDP version is not 1, first octets c240");
  EXPECT_EQ(describe_ulpdu(hex("4143 00000000 00000000 00000001 00000000 68656c6c6f")),
            "ULPDU 23: Send untagged last QN 0 MSN 1 MO 0; payload 5");
  EXPECT_EQ(describe_ulpdu(hex("4149 00000000 00000000 00000003 00000000 0011223344556677")),
            "ULPDU 26: ImmediateSolicited untagged last QN 0 MSN 3 MO 0; data 0011223344556677");
  EXPECT_EQ(describe_ulpdu(hex("4141 00000000 00000001 00000001 00000000 1111")),
            "ULPDU 20: ReadRequest untagged last QN 1 MSN 1 MO 0; not enough bytes");
  EXPECT_EQ(describe_ulpdu(hex("4147 00000000 00000002 00000001 00000000 02020000")),
            "ULPDU 22: Terminate untagged last QN 2 MSN 1 MO 0; 2/0/02 CRC does not match (siw "
            "layout)");
}

TEST(WirePrint, EveryOpcodeHasAName) {
  EXPECT_EQ(to_string(Opcode::kWrite), "Write");
  EXPECT_EQ(to_string(Opcode::kAtomicResponse), "AtomicResponse");
}

}  // namespace
}  // namespace weft
