#include "wire/rdmap.h"

#include <gtest/gtest.h>

#include <random>

#include "wire_testing.h"

namespace weft {
namespace {

using namespace weft::testing;

TEST(RdmapControl, EveryOctetIsTakenOrRefusedByVersionAndOpcodeAlone) {
  for (unsigned octet = 0; octet < 256; ++octet) {
    const auto op = decode_rdmap_control(static_cast<std::uint8_t>(octet));
    if ((octet >> 6) != 1) {
      EXPECT_EQ(op, fail(Error::kBadRdmapVersion)) << octet;
    } else if ((octet & 0xfU) > 0xb) {
      EXPECT_EQ(op, fail(Error::kUnknownOpcode)) << octet;
    } else {
      ASSERT_TRUE(op) << "reserved bits are ignored: " << octet;
      EXPECT_EQ(static_cast<unsigned>(*op), octet & 0xfU);
      EXPECT_EQ(rdmap_control(*op), 0x40U + (octet & 0xfU)) << "and sent as zero";
    }
  }
}

TEST(RdmapControl, FirstTwoOctetsAreCheckedInTheOrderOfTheReceiver) {
  EXPECT_EQ(check_segment_control(0xc0, 0x00), fail(Error::kBadVersion));
  EXPECT_EQ(check_segment_control(0x42, 0x0f), fail(Error::kBadVersion));
  EXPECT_EQ(check_segment_control(0xc1, 0x0f), fail(Error::kBadRdmapVersion));
  EXPECT_EQ(check_segment_control(0xc1, 0x4c), fail(Error::kUnknownOpcode));
  EXPECT_EQ(check_segment_control(0xc1, 0x43), fail(Error::kTagged));
  EXPECT_EQ(check_segment_control(0x41, 0x40), fail(Error::kNotTagged));
  EXPECT_EQ(check_segment_control(0xfd, 0x70), Opcode::kWrite);
  EXPECT_EQ(check_segment_control(0x01, 0x43), Opcode::kSend);
}

TEST(RdmapControl, OnlyOneTagBitFitsEachOpcode) {
  for (unsigned op = 0; op < kOpcodeCount; ++op) {
    const bool tagged = op == 0 || op == 2;
    const auto second = static_cast<std::uint8_t>(0x40 + op);
    EXPECT_EQ(check_segment_control(0xc1, second).has_value(), tagged) << op;
    EXPECT_EQ(check_segment_control(0x41, second).has_value(), !tagged) << op;
  }
}

struct Expected {
  Opcode op;
  bool tagged;
  unsigned queue;
  unsigned min;
  unsigned max;
  bool last, receive, invalidate, solicited;
};

TEST(RdmapTable, SaysWhatTheRfcsSay) {
  constexpr Expected kRows[] = {
      {Opcode::kWrite, true, kNoQueue, 14, 65535, false, false, false, false},
      {Opcode::kReadRequest, false, 1, 46, 46, true, false, false, false},
      {Opcode::kReadResponse, true, kNoQueue, 14, 65535, false, false, false, false},
      {Opcode::kSend, false, 0, 18, 65535, false, true, false, false},
      {Opcode::kSendInvalidate, false, 0, 18, 65535, false, true, true, false},
      {Opcode::kSendSolicited, false, 0, 18, 65535, false, true, false, true},
      {Opcode::kSendSolicitedInvalidate, false, 0, 18, 65535, false, true, true, true},
      {Opcode::kTerminate, false, 2, 22, 70, true, false, false, false},
      {Opcode::kImmediate, false, 0, 26, 26, true, true, false, false},
      {Opcode::kImmediateSolicited, false, 0, 26, 26, true, true, false, true},
      {Opcode::kAtomicRequest, false, 1, 70, 70, true, false, false, false},
      {Opcode::kAtomicResponse, false, 3, 30, 30, true, false, false, false},
  };
  ASSERT_EQ(std::size(kRows), kOpcodeCount);
  for (const Expected& e : kRows) {
    const OpcodeInfo& i = info(e.op);
    EXPECT_EQ(i.tagged, e.tagged) << i.name;
    EXPECT_EQ(i.queue, e.queue) << i.name;
    EXPECT_EQ(i.must_be_last, e.last) << i.name;
    EXPECT_EQ(i.consumes_receive, e.receive) << i.name;
    EXPECT_EQ(i.carries_invalidate, e.invalidate) << i.name;
    EXPECT_EQ(i.solicited, e.solicited) << i.name;
    EXPECT_FALSE(ulpdu_length_ok(e.op, e.min - 1)) << i.name;
    EXPECT_TRUE(ulpdu_length_ok(e.op, e.min)) << i.name;
    EXPECT_TRUE(ulpdu_length_ok(e.op, e.max)) << i.name;
    EXPECT_FALSE(ulpdu_length_ok(e.op, e.max + 1)) << i.name;
  }
}

// --- Bodies of fixed length. ---

const Bytes kReadBytes = hex("11111111 0000000000002000 00000008 22222222 0000000000003000");
const ReadRequest kRead{.sink_stag = Stag{0x11111111},
                        .sink_to = 0x2000,
                        .size = 8,
                        .src_stag = Stag{0x22222222},
                        .src_to = 0x3000};

const Bytes kFetchAddBytes =
    hex("00000000 00000077 22222222 0000000000003000"
        "0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff");
const AtomicRequest kFetchAdd{.op = AtomicOp::kFetchAdd,
                              .request_id = 0x77,
                              .stag = Stag{0x22222222},
                              .to = 0x3000,
                              .add_swap = 1};

const Bytes kCompareSwapBytes =
    hex("00000002 00000078 22222222 0000000000003008"
        "000000000000aaaa ffffffffffffffff 0000000000005555 ffffffffffffffff");
const AtomicRequest kCompareSwap{.op = AtomicOp::kCompareSwap,
                                 .request_id = 0x78,
                                 .stag = Stag{0x22222222},
                                 .to = 0x3008,
                                 .add_swap = 0xaaaa,
                                 .add_swap_mask = ~std::uint64_t{0},
                                 .compare = 0x5555};

const Bytes kAtomicResponseBytes = hex("00000077 0000000000000029");
const AtomicResponse kAtomicResponse{.request_id = 0x77, .original = 41};

const Bytes kImmediateBytes = hex("0011223344556677");
const ImmediateData kImmediate{.value = 0x0011223344556677};

template <class T, class Decode>
void expect_codec(const Bytes& bytes, const T& value, Decode decode) {
  const Bytes with_rest = bytes + hex("aabb");
  ByteReader in(with_rest);
  const auto decoded = decode(in);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, value);
  EXPECT_EQ(to_hex(in.rest()), "aabb");
  EXPECT_EQ(to_hex(encoded(value, T::kSize)), to_hex(bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ByteReader cut{std::span(bytes).first(size)};
    EXPECT_EQ(decode(cut), fail(Error::kTruncated)) << size;
    EXPECT_EQ(cut.remaining(), size);
  }
  for (std::size_t bit = 32; bit < bytes.size() * 8; ++bit) {  // behind any AOpCode
    Bytes flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::uint8_t>(0x80U >> (bit % 8));
    ByteReader again(flipped);
    const auto other = decode(again);
    ASSERT_TRUE(other) << bit;
    EXPECT_EQ(to_hex(encoded(*other, T::kSize)), to_hex(flipped)) << bit;
  }
}

TEST(RdmapCodec, ReadRequestIsExact) {
  expect_codec(kReadBytes, kRead, [](ByteReader& in) { return decode_read_request(in); });
}

TEST(RdmapCodec, AtomicRequestIsExact) {
  const auto decode = [](ByteReader& in) { return decode_atomic_request(in); };
  expect_codec(kFetchAddBytes, kFetchAdd, decode);
  expect_codec(kCompareSwapBytes, kCompareSwap, decode);
}

TEST(RdmapCodec, AtomicResponseIsExact) {
  expect_codec(kAtomicResponseBytes, kAtomicResponse,
               [](ByteReader& in) { return decode_atomic_response(in); });
}

TEST(RdmapCodec, ImmediateDataIsExact) {
  expect_codec(kImmediateBytes, kImmediate,
               [](ByteReader& in) { return decode_immediate_data(in); });
}

TEST(RdmapCodec, OnlyTwoAtomicOperationsExist) {
  for (unsigned op = 0; op < 16; ++op) {
    Bytes bytes = kFetchAddBytes;
    bytes[3] = static_cast<std::uint8_t>(op);
    ByteReader in(bytes);
    const auto request = decode_atomic_request(in);
    if (op == 0 || op == 2) {
      ASSERT_TRUE(request) << op;
      EXPECT_EQ(static_cast<unsigned>(request->op), op);
    } else {
      EXPECT_EQ(request, fail(Error::kUnknownAtomicOp)) << op;
      EXPECT_EQ(in.remaining(), AtomicRequest::kSize) << "the reader has not moved";
    }
  }
}

TEST(RdmapCodec, ReservedBitsBeforeTheAtomicOperationAreIgnored) {
  for (unsigned bit = 4; bit < 32; ++bit) {
    Bytes bytes = kCompareSwapBytes;
    store_be32(bytes.data(), 2U | 1U << bit);
    ByteReader in(bytes);
    EXPECT_EQ(decode_atomic_request(in), kCompareSwap) << bit;
  }
}

// --- What an atomic leaves behind. ---

TEST(AtomicArithmetic, FetchAddMatchesTheWorkedExamples) {
  EXPECT_EQ(fetch_add_result(0xffffffff, 1, 0), 0x0000000100000000U);
  EXPECT_EQ(fetch_add_result(0xffffffff, 1, 0x8000000080000000), 0U);
  EXPECT_EQ(fetch_add_result(41, 1, 0), 42U);
}

TEST(AtomicArithmetic, FetchAddDropsTheCarryOutOfEachField) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t old = random();
    const std::uint64_t add = random();
    const std::uint64_t mask = random() & random();
    std::uint64_t expected = 0;  // RFC 7306 section 5.1.1: bit by bit, carry stops at a mask bit
    unsigned carry = 0;
    for (unsigned bit = 0; bit < 64; ++bit) {
      const auto sum = static_cast<unsigned>((old >> bit & 1U) + (add >> bit & 1U)) + carry;
      expected |= std::uint64_t{sum & 1U} << bit;
      carry = (mask >> bit & 1U) != 0 ? 0 : sum >> 1;
    }
    ASSERT_EQ(fetch_add_result(old, add, mask), expected);
  }
}

TEST(AtomicArithmetic, CompareSwapMatchesTheWorkedExamples) {
  constexpr std::uint64_t kOld = 0x1122334455667788;
  EXPECT_EQ(compare_swap_result(kOld, 0x8800000000000088, 0xff, 0xaaaaaaaaaaaaaaaa, 0xffff0000),
            0x11223344aaaa7788U);
  EXPECT_EQ(compare_swap_result(kOld, 0x89, 0xff, 0xaaaaaaaaaaaaaaaa, 0xffff0000), kOld);
}

TEST(AtomicArithmetic, TheRequestPicksItsOperation) {
  EXPECT_EQ(atomic_result(kFetchAdd, 41), 42U);
  EXPECT_EQ(atomic_result(kCompareSwap, 0x5555), 0xaaaaU);
  EXPECT_EQ(atomic_result(kCompareSwap, 0x5556), 0x5556U);
}

}  // namespace
}  // namespace weft
