#include "wire/terminate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "wire_testing.h"

namespace weft {
namespace {

using namespace weft::testing;

const Bytes kTagged = hex("c140 01020304 0000000000001000");
const Bytes kUntagged = hex("4141 00000000 00000001 00000001 00000000");
const Bytes kReadBytes = hex("11111111 0000000000002000 00000008 22222222 0000000000003000");

DecodedTerminate decode(const Bytes& bytes, bool in_setup = false) {
  ByteReader in(bytes);
  const auto t = decode_terminate(in, in_setup);
  EXPECT_TRUE(t) << to_hex(bytes);
  EXPECT_TRUE(in.empty()) << "all of the body is taken";
  return t ? *t : DecodedTerminate{};
}

Bytes encode_all(const Terminate& t) { return encoded(t, t.encoded_size()); }

// Every registered code, and what siw can report in each phase.
constexpr TerminateCode kRegistered[] = {
    {0, 0, 0x00}, {0, 1, 0x00}, {0, 1, 0x01}, {0, 1, 0x02}, {0, 1, 0x03}, {0, 1, 0x04},
    {0, 1, 0x09}, {0, 1, 0xff}, {0, 2, 0x05}, {0, 2, 0x06}, {0, 2, 0x07}, {0, 2, 0x08},
    {0, 2, 0x09}, {0, 2, 0xff}, {1, 0, 0x00}, {1, 1, 0x00}, {1, 1, 0x01}, {1, 1, 0x02},
    {1, 1, 0x03}, {1, 1, 0x04}, {1, 2, 0x01}, {1, 2, 0x02}, {1, 2, 0x03}, {1, 2, 0x04},
    {1, 2, 0x05}, {1, 2, 0x06}, {1, 3, 0x00}, {2, 0, 0x01}, {2, 0, 0x02}, {2, 0, 0x03},
    {2, 0, 0x04}, {2, 0, 0x05}, {2, 0, 0x06}, {2, 0, 0x07},
};

Bytes siw_control(TerminateCode c, std::uint8_t flags) {
  return {static_cast<std::uint8_t>(c.etype << 4 | c.layer), c.code, flags, 0};
}

TEST(TerminateCodec, EveryRegisteredCodeIsReadFromTheRfcLayoutWithHeaders) {
  for (const TerminateCode code : kRegistered) {
    Terminate t = make_terminate(code);
    attach_ddp(t, kTagged, 0x18);
    for (const bool in_setup : {false, true}) {
      const DecodedTerminate d = decode(encode_all(t), in_setup);
      EXPECT_EQ(d.layout, TerminateLayout::kRfc);
      EXPECT_EQ(d.terminate, t);
    }
  }
}

TEST(TerminateCodec, EveryRegisteredCodeIsReadFromTheSiwLayoutWithHeaders) {
  for (const TerminateCode code : kRegistered) {
    for (const bool in_setup : {false, true}) {
      const DecodedTerminate d = decode(siw_control(code, 0x03) + hex("000a") + kTagged, in_setup);
      EXPECT_EQ(d.layout, TerminateLayout::kSiw);
      EXPECT_EQ(d.terminate.reason(), code);
      EXPECT_EQ(d.terminate.segment_length, 0x000a);
      EXPECT_EQ(to_hex(d.terminate.ddp_bytes()), to_hex(kTagged));
      EXPECT_FALSE(d.terminate.has_rdmap);
    }
  }
}

// 2/0/05 to 07 belong to set-up, 0/2/xx to full operation, where no header need be attached.
bool belongs_to_setup(TerminateCode c) { return c.layer == 2 && c.code >= 0x05; }

TEST(TerminateCodec, EveryRegisteredCodeIsReadFromTheRfcLayoutWithoutHeaders) {
  for (const TerminateCode code : kRegistered) {
    const DecodedTerminate d = decode(encode_all(make_terminate(code)), belongs_to_setup(code));
    EXPECT_EQ(d.layout, TerminateLayout::kRfc) << describe(code);
    EXPECT_EQ(d.terminate, make_terminate(code)) << describe(code);
  }
}

TEST(TerminateCodec, EveryCodeSiwSendsWithoutHeadersIsRead) {
  struct Case {
    TerminateCode code;
    bool in_setup;
  };
  constexpr Case kCases[] = {
      {term::kDdpUntaggedVersion, false},
      {term::kRdmapVersionError, false},
      {term::kRdmapUnexpectedOpcode, false},
      {term::kMpaCrc, false},
      {term::kMpaMarker, false},
      {term::kMpaBadStartup, false},
      {term::kMpaBadStartup, true},
      {term::kMpaInsufficientIrd, true},
      {term::kMpaNoMatchingRtr, true},
  };
  for (const Case& c : kCases) {
    const DecodedTerminate d = decode(siw_control(c.code, 0), c.in_setup);
    EXPECT_EQ(d.layout, TerminateLayout::kSiw) << describe(c.code);
    EXPECT_EQ(d.terminate.reason(), c.code) << describe(c.code);
  }
}

// The rule, spelled out for all 65536 pairs of first octets without flags.
TEST(TerminateCodec, WithoutFlagsOnlyTheNamedPairsAreSiw) {
  for (const bool in_setup : {false, true}) {
    for (unsigned pair = 0; pair < 65536; ++pair) {
      const unsigned first = pair >> 8;
      const unsigned code = pair & 0xffU;
      const bool siw = first == 0x21 || (first == 0x20 && !in_setup && (code == 5 || code == 6)) ||
                       (first == 0x02 && (code == 2 || code == 3 || code == 4)) ||
                       (first == 0x02 && in_setup && (code == 6 || code == 7));
      const Bytes bytes{static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(code), 0, 0};
      const DecodedTerminate d = decode(bytes, in_setup);
      ASSERT_EQ(d.layout == TerminateLayout::kSiw, siw) << pair << in_setup;
      ASSERT_EQ(d.terminate.layer, siw ? first & 0xfU : first >> 4);
      ASSERT_EQ(d.terminate.etype, siw ? first >> 4 : first & 0xfU);
      ASSERT_EQ(d.terminate.code, code);
    }
  }
}

TEST(TerminateCodec, AnyRfcFlagWinsOverAnySiwFlag) {
  for (unsigned flags = 0; flags < 256; ++flags) {
    Bytes bytes = hex("1201 0000") + hex("0018") + kUntagged + kReadBytes;
    bytes[2] = static_cast<std::uint8_t>(flags);
    const DecodedTerminate d = decode(bytes);
    const bool rfc = (flags & 0xe0U) != 0 || (flags & 0x07U) == 0;
    EXPECT_EQ(d.layout, rfc ? TerminateLayout::kRfc : TerminateLayout::kSiw) << flags;
    const unsigned m = rfc ? flags & 0x80U : flags & 0x01U;
    const unsigned dd = rfc ? flags & 0x40U : flags & 0x02U;
    const unsigned r = rfc ? flags & 0x20U : flags & 0x04U;
    EXPECT_EQ(d.terminate.has_length, m != 0) << flags;
    EXPECT_EQ(d.terminate.has_ddp, dd != 0) << flags;
    EXPECT_EQ(d.terminate.has_rdmap, dd != 0 && r != 0) << flags;
  }
}

TEST(TerminateCodec, ReservedOctetIsIgnoredAndSentAsZero) {
  for (unsigned reserved = 0; reserved < 256; ++reserved) {
    Bytes bytes = hex("1101 c000 0018") + kTagged;
    bytes[3] = static_cast<std::uint8_t>(reserved);
    EXPECT_EQ(to_hex(encode_all(decode(bytes).terminate)), "1101c0000018" + to_hex(kTagged));
  }
}

TEST(TerminateCodec, ReadRequestIsCarriedBehindTheUntaggedHeader) {
  const Bytes bytes = hex("0100 e000 002e") + kUntagged + kReadBytes;
  const DecodedTerminate d = decode(bytes);
  EXPECT_TRUE(d.terminate.has_rdmap);
  EXPECT_EQ(d.terminate.read_request.size, 8U);
  EXPECT_EQ(d.terminate.read_request.src_stag, Stag{0x22222222});

  Terminate t = make_terminate(term::kRdmapInvalidStag);
  attach_ddp(t, kUntagged, 0x2e);
  ByteReader in(kReadBytes);
  attach_read_request(t, *decode_read_request(in));
  EXPECT_EQ(t, d.terminate);
  EXPECT_EQ(to_hex(encode_all(t)), to_hex(bytes));
}

TEST(TerminateCodec, SizesAreThoseOfTheRfc) {
  Terminate t = make_terminate(term::kMpaCrc);
  EXPECT_EQ(DdpUntagged::kSize + t.encoded_size(), 22U);
  attach_ddp(t, kTagged, 0x18);
  EXPECT_EQ(DdpUntagged::kSize + t.encoded_size(), 38U);
  attach_ddp(t, kUntagged, 0x2e);
  EXPECT_EQ(DdpUntagged::kSize + t.encoded_size(), 42U);
  attach_read_request(t, ReadRequest{});
  EXPECT_EQ(DdpUntagged::kSize + t.encoded_size(), 70U);
}

TEST(TerminateCodec, RefusesABodyTooShortForTheControlOctetsOrTooLong) {
  const Bytes full = hex("0100 e000 002e") + kUntagged + kReadBytes;
  ASSERT_EQ(full.size(), Terminate::kMaxSize);
  for (std::size_t size = 0; size < 4; ++size) {
    ByteReader in{std::span(full).first(size)};
    const auto t = decode_terminate(in, false);
    ASSERT_FALSE(t);
    EXPECT_EQ(t.error(), Error::kTruncated);
    EXPECT_EQ(in.remaining(), size);
  }
  const Bytes longer = full + hex("00");
  ByteReader in(longer);
  const auto t = decode_terminate(in, false);
  ASSERT_FALSE(t);
  EXPECT_EQ(t.error(), Error::kBadLength);
  EXPECT_EQ(in.remaining(), longer.size());
}

TEST(TerminateCodec, HeadersCutShortAreAbsent) {
  const Bytes full = hex("0100 e000 002e") + kUntagged + kReadBytes;
  for (std::size_t size = 4; size <= full.size(); ++size) {
    const Bytes cut(full.begin(), full.begin() + static_cast<std::ptrdiff_t>(size));
    const Terminate t = decode(cut).terminate;
    EXPECT_EQ(t.reason(), term::kRdmapInvalidStag);
    EXPECT_EQ(t.has_length, size >= 6) << size;
    EXPECT_EQ(t.has_ddp, size >= 24) << size;
    EXPECT_EQ(t.has_rdmap, size >= 52) << size;
  }
}

TEST(TerminateCodec, ZeroFilledHeadersAreAbsent) {
  const Terminate t = decode(hex("1202 e000 0017") + zeros(18) + zeros(28)).terminate;
  EXPECT_EQ(t.reason(), term::kDdpNoBuffer);
  EXPECT_TRUE(t.has_length);
  EXPECT_FALSE(t.has_ddp);
  EXPECT_FALSE(t.has_rdmap);
  EXPECT_TRUE(t.ddp_bytes().empty());

  const Terminate unflagged = decode(hex("2002 0000") + zeros(48)).terminate;
  EXPECT_EQ(unflagged, make_terminate(term::kMpaCrc));

  const Terminate only_read_zero = decode(hex("0100 e000 002e") + kUntagged + zeros(28)).terminate;
  EXPECT_TRUE(only_read_zero.has_ddp);
  EXPECT_FALSE(only_read_zero.has_rdmap);
}

TEST(TerminateCodec, ReadHeaderFlagWithoutAReadHeaderIsAccepted) {
  EXPECT_FALSE(decode(hex("0100 e000 002e") + kUntagged).terminate.has_rdmap);
  EXPECT_FALSE(decode(hex("0100 2000")).terminate.has_rdmap);
  const Terminate tagged = decode(hex("1101 e000 0018") + kTagged + kReadBytes).terminate;
  EXPECT_TRUE(tagged.has_ddp);
  EXPECT_FALSE(tagged.has_rdmap);
}

TEST(TerminateCodec, LengthFieldWithoutItsFlagIsSkipped) {
  const Terminate t = decode(hex("1101 4000 1234") + kTagged).terminate;
  EXPECT_FALSE(t.has_length);
  EXPECT_EQ(t.segment_length, 0);
  EXPECT_EQ(to_hex(t.ddp_bytes()), to_hex(kTagged));
  EXPECT_EQ(to_hex(encode_all(t)), "110140000000" + to_hex(kTagged));
}

TEST(TerminateCodec, AttachingASecondHeaderLeavesNothingOfTheFirst) {
  Terminate a = make_terminate(term::kDdpBounds);
  attach_ddp(a, kUntagged, 1);
  attach_ddp(a, kTagged, 2);
  Terminate b = make_terminate(term::kDdpBounds);
  attach_ddp(b, kTagged, 2);
  EXPECT_EQ(a, b);
}

// Bodies captured from Linux siw (kernel 6.1), one per kind of refusal.
TEST(TerminateCodec, ReadsWhatSiwReallySends) {
  struct Capture {
    const char* bytes;
    TerminateCode code;
    std::uint16_t payload_len;
  };
  const Capture captures[] = {
      {"21020300 0011 4143 00000000 00000000 00000002 00000000", term::kDdpNoBuffer, 17},
      {"11000300 0040 c140 bf241700 00007f485bc98000", term::kDdpInvalidStag, 64},
      {"11010300 0594 8140 61c0fc00 00007fb4d64c4ff8", term::kDdpBounds, 1428},
      {"01000300 0040 c140 0f74b800 fffffffffffffff8", term::kDdpLocalCatastrophic, 64},
  };
  for (const Capture& c : captures) {
    const Bytes bytes = hex(c.bytes);
    const DecodedTerminate d = decode(bytes);
    EXPECT_EQ(d.layout, TerminateLayout::kSiw);
    EXPECT_EQ(d.terminate.reason(), c.code);
    EXPECT_EQ(d.terminate.segment_length, c.payload_len);
    EXPECT_EQ(to_hex(d.terminate.ddp_bytes()), to_hex(bytes).substr(12));
  }
}

TEST(TerminateCode, EveryRegisteredCodeIsDescribedAndNoOther) {
  std::size_t described = 0;
  for (unsigned v = 0; v < 0x100000; ++v) {
    const TerminateCode code{static_cast<std::uint8_t>(v >> 16),
                             static_cast<std::uint8_t>(v >> 8 & 0xfU),
                             static_cast<std::uint8_t>(v)};
    if ((v >> 12 & 0xfU) != 0) continue;
    if (describe(code) == "unassigned") continue;
    ++described;
    const bool any_code =
        (code.layer == 0 && code.etype == 0) || (code.layer == 1 && code.etype == 3);
    const bool listed =
        std::find(std::begin(kRegistered), std::end(kRegistered), code) != std::end(kRegistered);
    EXPECT_TRUE(any_code || listed) << v;
  }
  EXPECT_EQ(described, std::size(kRegistered) - 2 + 512) << "0/0 and 1/3 stand for all codes";
}

}  // namespace
}  // namespace weft
