// Whole FPDUs, byte for byte: built from values by the encoders, and read back by the decoders.
// The values beside each example are written out by hand; the bytes come from the examples of
// RFC 5044 and from packets checked with an independent decoder.

#include <gtest/gtest.h>

#include <string>

#include "wire/ddp.h"
#include "wire/fpdu.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"
#include "wire_testing.h"

namespace weft {
namespace {

using namespace weft::testing;

Bytes text(std::string_view s) { return Bytes(s.begin(), s.end()); }

Bytes tagged(bool last, Opcode op, std::uint32_t stag, std::uint64_t to) {
  return encoded(DdpTagged{last, rdmap_control(op), Stag{stag}, to}, DdpTagged::kSize);
}

Bytes untagged(Opcode op, std::uint32_t msn, std::uint32_t mo = 0, bool last = true,
               std::uint32_t invalidate = 0) {
  return encoded(DdpUntagged{last, rdmap_control(op), invalidate, info(op).queue, Msn{msn}, mo},
                 DdpUntagged::kSize);
}

template <class T>
Bytes body(const T& value) {
  return encoded(value, T::kSize);
}

Bytes body(const Terminate& t) { return encoded(t, t.encoded_size()); }

Terminate terminate_on(TerminateCode code, const Bytes& ddp_header, std::uint16_t ulpdu_len) {
  Terminate t = make_terminate(code);
  attach_ddp(t, ddp_header, ulpdu_len);
  return t;
}

struct Example {
  const char* name;
  const char* wire;
  Bytes ulpdu;  // what our encoders make of the same values
};

const ReadRequest kRead{Stag{0x11111111}, 0x2000, 8, Stag{0x22222222}, 0x3000};
const ReadRequest kRtrRead{Stag{1}, 0, 0, Stag{1}, 0};

std::vector<Example> initiator_examples() {
  const AtomicRequest add{AtomicOp::kFetchAdd, 0x77, Stag{0x22222222}, 0x3000, 1, 0, 0,
                          ~std::uint64_t{0}};
  const AtomicRequest swap{AtomicOp::kCompareSwap, 0x78,   Stag{0x22222222}, 0x3008, 0xaaaa,
                           ~std::uint64_t{0},      0x5555, ~std::uint64_t{0}};
  return {
      {"Send", "0017 41 43 00000000 00000000 00000001 00000000 68656c6c6f 000000 b990b10c",
       untagged(Opcode::kSend, 1) + text("hello")},
      {"Write", "0018 c1 40 01020304 0000000000001000 52444d412d5772697465 0000 bb340e93",
       tagged(true, Opcode::kWrite, 0x01020304, 0x1000) + text("RDMA-Write")},
      {"Read Request",
       "002e 41 41 00000000 00000001 00000001 00000000 11111111 0000000000002000 00000008 22222222"
       "0000000000003000 4acebf6e",
       untagged(Opcode::kReadRequest, 1) + body(kRead)},
      {"Send with Invalidate", "0015 41 44 01020304 00000000 00000002 00000000 627965 00 ab4fd012",
       untagged(Opcode::kSendInvalidate, 2, 0, true, 0x01020304) + text("bye")},
      {"Immediate with SE",
       "001a 41 49 00000000 00000000 00000003 00000000 0011223344556677 fb315de6",
       untagged(Opcode::kImmediateSolicited, 3) + body(ImmediateData{0x0011223344556677})},
      {"FetchAdd",
       "0046 41 4a 00000000 00000001 00000002 00000000 00000000 00000077 22222222 0000000000003000"
       "0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff d6b50c98",
       untagged(Opcode::kAtomicRequest, 2) + body(add)},
      {"CmpSwap",
       "0046 41 4a 00000000 00000001 00000003 00000000 00000002 00000078 22222222 0000000000003008"
       "000000000000aaaa ffffffffffffffff 0000000000005555 ffffffffffffffff 6e4daba7",
       untagged(Opcode::kAtomicRequest, 3) + body(swap)},
  };
}

std::vector<Example> responder_examples() {
  Terminate read_refused =
      terminate_on(term::kRdmapInvalidStag, untagged(Opcode::kReadRequest, 1), 0x2e);
  attach_read_request(read_refused, kRead);
  const Bytes terminate = untagged(Opcode::kTerminate, 1);
  return {
      {"Read Response", "0016 c1 42 11111111 0000000000002000 3132333435363738 064e10cb",
       tagged(true, Opcode::kReadResponse, 0x11111111, 0x2000) + text("12345678")},
      {"Atomic Response",
       "001e 41 4b 00000000 00000003 00000001 00000000 00000077 0000000000000029 556671a6",
       untagged(Opcode::kAtomicResponse, 1) + body(AtomicResponse{0x77, 41})},
      {"Terminate 1/1/01",
       "0026 41 47 00000000 00000002 00000001 00000000 11 01 c0 00 0018 c140 01020304"
       "0000000000001000 d2a5dba5",
       terminate + body(terminate_on(term::kDdpBounds,
                                     tagged(true, Opcode::kWrite, 0x01020304, 0x1000), 0x18))},
      {"Terminate 1/2/02",
       "002a 41 47 00000000 00000002 00000001 00000000 12 02 c0 00 0017 4143 00000000 00000000"
       "00000001 00000000 9b27256c",
       terminate + body(terminate_on(term::kDdpNoBuffer, untagged(Opcode::kSend, 1), 0x17))},
      {"Terminate 0/1/00",
       "0046 41 47 00000000 00000002 00000001 00000000 01 00 e0 00 002e 4141 00000000 00000001"
       "00000001 00000000 11111111 0000000000002000 00000008 22222222 0000000000003000 b3df3277",
       terminate + body(read_refused)},
      {"Terminate 2/0/02", "0016 41 47 00000000 00000002 00000001 00000000 20 02 00 00 7fe42585",
       terminate + body(make_terminate(term::kMpaCrc))},
  };
}

std::vector<Example> lone_examples() {
  return {
      {"RTR Read",
       "002e 41 41 00000000 00000001 00000001 00000000 00000001 0000000000000000 00000000 00000001"
       "0000000000000000 27dbd7e7",
       untagged(Opcode::kReadRequest, 1) + body(kRtrRead)},
      {"RTR Read answer", "000e c1 42 00000001 0000000000000000 21a3e83e",
       tagged(true, Opcode::kReadResponse, 1, 0)},
      {"RTR Write", "000e c1 40 00000001 0000000000000000 ebd34c5f",
       tagged(true, Opcode::kWrite, 1, 0)},
      {"RTR Send", "0012 41 43 00000000 00000000 00000001 00000000 587be8c4",
       untagged(Opcode::kSend, 1)},
      {"Send with SE", "0017 41 45 00000000 00000000 00000001 00000000 68656c6c6f 000000 f7290be8",
       untagged(Opcode::kSendSolicited, 1) + text("hello")},
      {"Send, first of two",
       "001a 01 43 00000000 00000000 00000001 00000000 6162636465666768 d5a5d405",
       untagged(Opcode::kSend, 1, 0, false) + text("abcdefgh")},
      {"Send, second of two", "0014 41 43 00000000 00000000 00000001 00000008 696a 0000 515bbf60",
       untagged(Opcode::kSend, 1, 8) + text("ij")},
      {"Write, first of two", "0016 81 40 01020304 0000000000001000 6162636465666768 e2ae9c4d",
       tagged(false, Opcode::kWrite, 0x01020304, 0x1000) + text("abcdefgh")},
      {"Write, second of two", "0010 c1 40 01020304 0000000000001008 696a 0000 478decc7",
       tagged(true, Opcode::kWrite, 0x01020304, 0x1008) + text("ij")},
  };
}

std::vector<Example> all_examples() {
  std::vector<Example> all = initiator_examples();
  for (const auto& more : {responder_examples(), lone_examples()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST(WireExamples, EveryFpduIsBuiltByteForByte) {
  for (const Example& e : all_examples()) {
    EXPECT_EQ(to_hex(build_fpdu(e.ulpdu)), to_hex(hex(e.wire))) << e.name;
  }
}

// Decodes header and body and encodes both again.
Bytes recode(Opcode op, const Bytes& ulpdu) {
  ByteReader in(ulpdu);
  Bytes out = info(op).tagged ? body(*decode_ddp_tagged(in)) : body(*decode_ddp_untagged(in));
  if (op == Opcode::kReadRequest) out = out + body(*decode_read_request(in));
  if (op == Opcode::kAtomicRequest) out = out + body(*decode_atomic_request(in));
  if (op == Opcode::kAtomicResponse) out = out + body(*decode_atomic_response(in));
  if (op == Opcode::kImmediateSolicited) out = out + body(*decode_immediate_data(in));
  if (op == Opcode::kTerminate) out = out + body(decode_terminate(in, false)->terminate);
  const auto payload = in.rest();
  return out + Bytes(payload.begin(), payload.end());
}

TEST(WireExamples, EveryFpduIsReadBackToTheSameBytes) {
  for (const Example& e : all_examples()) {
    const Bytes fpdu = hex(e.wire);
    const std::uint16_t len = load_ulpdu_length(fpdu.data());
    ASSERT_EQ(fpdu.size(), fpdu_size(len)) << e.name;
    EXPECT_EQ(load_crc(fpdu.data() + fpdu.size() - 4),
              crc32c(std::span(fpdu).first(fpdu_covered(len))))
        << e.name;
    const Bytes ulpdu(fpdu.begin() + 2, fpdu.begin() + 2 + len);
    const auto op = check_segment_control(ulpdu[0], ulpdu[1]);
    ASSERT_TRUE(op) << e.name;
    EXPECT_TRUE(ulpdu_length_ok(*op, len)) << e.name;
    EXPECT_EQ(to_hex(recode(*op, ulpdu)), to_hex(ulpdu)) << e.name;
  }
}

// --- Markers: RFC 5044 figures 5 and 6, then three more positions of the marker. ---

struct MarkedExample {
  const char* name;
  std::uint64_t offset;
  const char* wire;
  std::uint32_t msn;
  Bytes payload;
};

TEST(WireExamples, MarkersFallWhereTheRfcSays) {
  const MarkedExample examples[] = {
      {"first FPDU", 0,
       "[0000 0000] 002a 4143 00000000 00000000 00000001 00000000"
       "000000000000000000000000000000000000000000000000 52239983",
       1, zeros(24)},
      {"behind the header", 492,
       "002a 4143 00000000 00000000 00000002 00000000 [0000 0014]"
       "000000000000000000000000000000000000000000000000 84925898",
       2, zeros(24)},
      {"inside the header", 508,
       "0017 4143 [0000 0004] 00000000 00000000 00000002 00000000 68656c6c6f 000000 57cd95ee", 2,
       text("hello")},
      {"between PAD and CRC", 484,
       "0017 4143 00000000 00000000 00000002 00000000 68656c6c6f 000000 [0000 001c] 5a375eac", 2,
       text("hello")},
      {"before the length field", 512,
       "[0000 0000] 0017 4143 00000000 00000000 00000003 00000000 68656c6c6f 000000 b0114d10", 3,
       text("hello")},
  };
  for (const MarkedExample& e : examples) {
    const Bytes ulpdu = untagged(Opcode::kSend, e.msn) + e.payload;
    const Bytes fpdu = build_fpdu(ulpdu, true, e.offset);
    EXPECT_EQ(to_hex(fpdu), to_hex(hex(e.wire))) << e.name;
    EXPECT_EQ(fpdu.size(), fpdu_size_marked(e.offset, static_cast<std::uint32_t>(ulpdu.size())))
        << e.name;
  }
}

TEST(WireExamples, TheEarlierFpdusOfTheMarkerExamplesEndWhereTheExamplesBegin) {
  EXPECT_EQ(fpdu_size_marked(0, 18 + 464), 492U);
  EXPECT_EQ(fpdu_size_marked(0, 18 + 480), 508U);
  EXPECT_EQ(fpdu_size_marked(0, 18 + 456), 484U);
  EXPECT_EQ(fpdu_size_marked(0, 18 + 24), 52U);
  EXPECT_EQ(52 + fpdu_size_marked(52, 18 + 436), 512U);
}

// --- Terminates in the bit order of Linux siw. ---

TEST(WireExamples, SiwTerminatesAreReadByMeaning) {
  struct SiwExample {
    const char* wire;
    TerminateCode code;
    const char* ddp_header;
  };
  const SiwExample examples[] = {
      {"0026 4147 00000000 00000002 00000001 00000000 11 01 03 00 000a c140 01020304"
       "0000000000001000 1ffb8b66",
       term::kDdpBounds, "c140010203040000000000001000"},
      {"002a 4147 00000000 00000002 00000001 00000000 21 02 03 00 0005 4143 00000000 00000000"
       "00000001 00000000 c5d505cb",
       term::kDdpNoBuffer, "414300000000000000000000000100000000"},
      {"0016 4147 00000000 00000002 00000001 00000000 02 02 00 00 75d367ed", term::kMpaCrc, ""},
  };
  for (const SiwExample& e : examples) {
    const Bytes fpdu = hex(e.wire);
    const std::uint16_t len = load_ulpdu_length(fpdu.data());
    ASSERT_EQ(fpdu.size(), fpdu_size(len));
    EXPECT_EQ(load_crc(fpdu.data() + fpdu.size() - 4),
              crc32c(std::span(fpdu).first(fpdu_covered(len))));
    ByteReader in{std::span(fpdu).subspan(2, len)};
    ASSERT_TRUE(decode_ddp_untagged(in));
    const auto t = decode_terminate(in, false);
    ASSERT_TRUE(t);
    EXPECT_EQ(t->layout, TerminateLayout::kSiw);
    EXPECT_EQ(t->terminate.reason(), e.code);
    EXPECT_EQ(to_hex(t->terminate.ddp_bytes()), e.ddp_header);
  }
}

}  // namespace
}  // namespace weft
