#include "wire/mpa_startup.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "wire_testing.h"

namespace weft {
namespace {

using namespace weft::testing;

const Bytes kRequestKey = hex("4d504120494420526571204672616d65");
const Bytes kReplyKey = hex("4d504120494420526570204672616d65");

Result<MpaFrame> decode(const Bytes& bytes, MpaKind expected) {
  ByteReader in(bytes);
  return decode_mpa_frame(in, expected);
}

MpaKind kind_of(const MpaFrame& frame) {
  return frame.is_reply ? MpaKind::kReply : MpaKind::kRequest;
}

// A worked example: the frame, its enhanced words if it has them, the application's private data.
struct Example {
  const char* name;
  Bytes bytes;
  MpaFrame frame;
  EnhancedWords words;
  Bytes application;
};

std::vector<Example> examples() {
  const MpaFrame request_1{.crc = true, .revision = 1};
  const MpaFrame request_2{.crc = true, .enhanced = true, .revision = 2};
  const MpaFrame reply_2{.is_reply = true, .crc = true, .enhanced = true, .revision = 2};
  const MpaFrame reject_2{.is_reply = true, .reject = true, .enhanced = true, .revision = 2};
  const MpaFrame siw{.enhanced = true, .revision = 2};
  return {
      {"rev 1", kRequestKey + hex("40 01 0000"), request_1, {}, {}},
      {"rev 2 A C D",
       kRequestKey + hex("50 02 0008 8010 c010 70696e67"),
       request_2,
       {.peer_to_peer = true, .rtr_write = true, .rtr_read = true, .ird = 16, .ord = 16},
       hex("70696e67")},
      {"reply A D",
       kReplyKey + hex("50 02 0008 8010 4008 706f6e67"),
       reply_2,
       {.peer_to_peer = true, .rtr_read = true, .ird = 16, .ord = 8},
       hex("706f6e67")},
      {"reject", kReplyKey + hex("30 02 0004 0000 0000"), reject_2, {}, {}},
      {"siw default", kRequestKey + hex("10 02 0004 0080 0080"), siw, {.ird = 128, .ord = 128}, {}},
  };
}

TEST(MpaFrameCodec, DecodesTheWorkedExamples) {
  for (const Example& e : examples()) {
    ByteReader in(e.bytes);
    const auto frame = decode_mpa_frame(in, kind_of(e.frame));
    ASSERT_TRUE(frame) << e.name;
    EXPECT_TRUE(in.empty()) << e.name;
    EXPECT_EQ(frame->is_reply, e.frame.is_reply) << e.name;
    EXPECT_EQ(frame->markers, e.frame.markers) << e.name;
    EXPECT_EQ(frame->crc, e.frame.crc) << e.name;
    EXPECT_EQ(frame->reject, e.frame.reject) << e.name;
    EXPECT_EQ(frame->enhanced, e.frame.enhanced) << e.name;
    EXPECT_EQ(frame->revision, e.frame.revision) << e.name;

    ByteReader data(frame->private_data);
    if (frame->enhanced) {
      const auto words = decode_enhanced_words(data);
      ASSERT_TRUE(words) << e.name;
      EXPECT_EQ(*words, e.words) << e.name;
    }
    EXPECT_EQ(to_hex(data.rest()), to_hex(e.application)) << e.name;
  }
}

TEST(MpaFrameCodec, EncodesTheWorkedExamples) {
  for (const Example& e : examples()) {
    Bytes data;
    if (e.frame.enhanced) data = encoded(e.words, EnhancedWords::kSize);
    data = data + e.application;
    MpaFrame frame = e.frame;
    frame.private_data = data;
    EXPECT_EQ(to_hex(encoded(frame, frame.encoded_size())), to_hex(e.bytes)) << e.name;
  }
}

TEST(MpaFrameCodec, RefusesEveryPrefixAndSaysHowMuchIsMissing) {
  for (const Example& e : examples()) {
    for (std::size_t size = 0; size < e.bytes.size(); ++size) {
      const Bytes prefix(e.bytes.begin(), e.bytes.begin() + static_cast<std::ptrdiff_t>(size));
      ByteReader in(prefix);
      const auto frame = decode_mpa_frame(in, kind_of(e.frame));
      ASSERT_FALSE(frame) << e.name << " " << size;
      EXPECT_EQ(frame.error(), Error::kTruncated);
      EXPECT_EQ(in.remaining(), size) << "the reader has not moved";
      const std::size_t goal = size < MpaFrame::kSize ? MpaFrame::kSize : e.bytes.size();
      EXPECT_EQ(mpa_frame_missing(prefix, kind_of(e.frame)), goal - size) << e.name << " " << size;
    }
    EXPECT_EQ(mpa_frame_missing(e.bytes, kind_of(e.frame)), 0U);
  }
}

TEST(MpaFrameCodec, LeavesOctetsBehindTheFrameToTheCaller) {
  const Bytes bytes = examples()[2].bytes + hex("000ec142");
  ByteReader in(bytes);
  ASSERT_TRUE(decode_mpa_frame(in, MpaKind::kReply));
  EXPECT_EQ(to_hex(in.rest()), "000ec142");
  EXPECT_EQ(mpa_frame_missing(bytes, MpaKind::kReply), 0U);
}

TEST(MpaFrameCodec, RefusesTheOtherKindOfFrame) {
  const Bytes request = examples()[0].bytes;
  EXPECT_EQ(decode(request, MpaKind::kReply).error(), Error::kBadKey);
  const Bytes reply = examples()[2].bytes;
  EXPECT_EQ(decode(reply, MpaKind::kRequest).error(), Error::kBadKey);
}

TEST(MpaFrameCodec, RefusesAKeyWithAnyBitFlippedAsSoonAsThatOctetIsThere) {
  const Bytes good = examples()[0].bytes;
  for (std::size_t bit = 0; bit < 16 * 8; ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    EXPECT_EQ(decode(bad, MpaKind::kRequest).error(), Error::kBadKey) << bit;
    bad.resize(bit / 8 + 1);
    EXPECT_EQ(mpa_frame_missing(bad, MpaKind::kRequest), fail(Error::kBadKey)) << bit;
    bad.resize(bit / 8);
    EXPECT_TRUE(mpa_frame_missing(bad, MpaKind::kRequest)) << bit;
  }
}

TEST(MpaFrameCodec, IgnoresEveryReservedFlagBit) {
  for (const Example& e : examples()) {
    for (unsigned reserved = 0; reserved < 16; ++reserved) {
      Bytes bytes = e.bytes;
      bytes[16] |= static_cast<std::uint8_t>(reserved);
      const auto frame = decode(bytes, kind_of(e.frame));
      ASSERT_TRUE(frame) << e.name;
      const Bytes again = encoded(*frame, frame->encoded_size());
      EXPECT_EQ(to_hex(again), to_hex(e.bytes)) << "reserved bits go out as zero";
    }
  }
}

TEST(MpaFrameCodec, ReadsEachFlagFromItsOwnBit) {
  for (unsigned flags = 0; flags < 16; ++flags) {
    Bytes bytes = kReplyKey + hex("00 02 0004 00000000");
    bytes[16] = static_cast<std::uint8_t>(flags << 4);
    const auto frame = decode(bytes, MpaKind::kReply);
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->markers, (flags & 8U) != 0);
    EXPECT_EQ(frame->crc, (flags & 4U) != 0);
    EXPECT_EQ(frame->reject, (flags & 2U) != 0);
    EXPECT_EQ(frame->enhanced, (flags & 1U) != 0);
    EXPECT_EQ(to_hex(encoded(*frame, frame->encoded_size())), to_hex(bytes));
  }
}

TEST(MpaFrameCodec, DoesNotCheckTheRejectBitOfARequest) {
  const auto frame = decode(kRequestKey + hex("60 01 0000"), MpaKind::kRequest);
  ASSERT_TRUE(frame);
  EXPECT_TRUE(frame->reject);
}

TEST(MpaFrameCodec, HandsEveryRevisionUp) {
  for (unsigned revision = 0; revision < 256; ++revision) {
    Bytes bytes = kRequestKey + hex("40 00 0000");
    bytes[17] = static_cast<std::uint8_t>(revision);
    const auto frame = decode(bytes, MpaKind::kRequest);
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->revision, revision);
  }
}

TEST(MpaFrameCodec, TakesTheEnhancedBitForAReservedOneBelowRevisionTwo) {
  EXPECT_FALSE(decode(kRequestKey + hex("50 01 0000"), MpaKind::kRequest)->enhanced);
  EXPECT_FALSE(decode(kRequestKey + hex("50 00 0000"), MpaKind::kRequest)->enhanced);
  EXPECT_TRUE(decode(kRequestKey + hex("50 02 0004 00000000"), MpaKind::kRequest)->enhanced);
}

TEST(MpaFrameCodec, Takes512OctetsOfPrivateDataAndNotOneMore) {
  Bytes data(512);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i * 7);
  const MpaFrame frame{.crc = true, .revision = 1, .private_data = data};
  const Bytes longest = encoded(frame, frame.encoded_size());
  EXPECT_EQ(longest.size(), 532U);
  const auto back = decode(longest, MpaKind::kRequest);
  ASSERT_TRUE(back);
  EXPECT_TRUE(
      std::equal(data.begin(), data.end(), back->private_data.begin(), back->private_data.end()));

  for (const char* length : {"0201", "8000", "ffff"}) {
    const Bytes too_long = kRequestKey + hex("40 01") + hex(length);
    EXPECT_EQ(mpa_frame_missing(too_long, MpaKind::kRequest), fail(Error::kPrivateDataTooLong))
        << "refused by the length alone";
    EXPECT_EQ(decode(too_long + zeros(70000), MpaKind::kRequest).error(),
              Error::kPrivateDataTooLong);
  }
}

TEST(MpaFrameCodec, PrivateDataBorrowsFromTheInput) {
  const Bytes bytes = examples()[1].bytes;
  const auto frame = decode(bytes, MpaKind::kRequest);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->private_data.data(), bytes.data() + MpaFrame::kSize);
}

TEST(EnhancedWordsCodec, RefusesEveryPrefix) {
  const Bytes words = hex("8010c010");
  for (std::size_t size = 0; size < words.size(); ++size) {
    ByteReader in{std::span(words).first(size)};
    const auto decoded = decode_enhanced_words(in);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error(), Error::kTruncated);
    EXPECT_EQ(in.remaining(), size);
  }
}

TEST(EnhancedWordsCodec, ARejectWithoutTheFourOctetsIsToldByTheWords) {
  const auto frame = decode(kReplyKey + hex("30 02 0000"), MpaKind::kReply);
  ASSERT_TRUE(frame);
  EXPECT_TRUE(frame->enhanced);
  ByteReader data(frame->private_data);
  EXPECT_EQ(decode_enhanced_words(data).error(), Error::kTruncated);
}

TEST(EnhancedWordsCodec, EveryBitMeansOneThingAndSurvivesTheRoundTrip) {
  for (unsigned bit = 0; bit < 32; ++bit) {
    Bytes bytes(4);
    store_be32(bytes.data(), 1U << bit);
    ByteReader in(bytes);
    const auto words = decode_enhanced_words(in);
    ASSERT_TRUE(words);
    EXPECT_EQ(words->peer_to_peer, bit == 31);
    EXPECT_EQ(words->rtr_send, bit == 30);
    EXPECT_EQ(words->rtr_write, bit == 15);
    EXPECT_EQ(words->rtr_read, bit == 14);
    EXPECT_EQ(words->ird, bit >= 16 && bit < 30 ? 1U << (bit - 16) : 0U);
    EXPECT_EQ(words->ord, bit < 14 ? 1U << bit : 0U);
    EXPECT_EQ(to_hex(encoded(*words, EnhancedWords::kSize)), to_hex(bytes));
  }
}

TEST(EnhancedWordsCodec, CarriesNotNegotiated) {
  const EnhancedWords words{.ird = kIrdOrdNotNegotiated, .ord = kIrdOrdNotNegotiated};
  EXPECT_EQ(to_hex(encoded(words, EnhancedWords::kSize)), "3fff3fff");
}

}  // namespace
}  // namespace weft
