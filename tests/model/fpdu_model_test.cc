// FPDUs taken apart however they arrive.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../sim/rng.h"
#include "../sim/seeds.h"
#include "../unit/wire_testing.h"
#include "proto/fpdu_reader.h"
#include "random_bytes.h"

namespace weft::proto {
namespace {

using weft::testing::build_fpdu;
using weft::testing::Bytes;
using weft::testing::for_each_seed;
using weft::testing::random_bytes;
using weft::testing::Rng;
using weft::testing::operator+;

std::uint32_t some_size(Rng& rng, std::uint32_t least) {
  switch (rng.u32(0, 4)) {
    case 0: return least + rng.u32(0, 8);
    case 1: return rng.u32(490, 530);  // around a marker
    case 2: return rng.u32(8000, 8400);
    case 3: return rng.one_in(6) ? rng.u32(60000, kMaxUlpdu) : rng.u32(least, 2000);
    default: return rng.u32(least, 4000);
  }
}

// --- reader ---

class HeapCarry final : public CarryPool {
 public:
  ~HeapCarry() override { EXPECT_EQ(out_, 0); }
  std::uint8_t* acquire_carry(std::size_t size) override {
    EXPECT_LE(size, kCarryBytesMax);
    ++out_;
    ++acquired;
    return new std::uint8_t[size];
  }
  void release_carry(std::uint8_t* carry, std::size_t) override {
    --out_;
    delete[] carry;
  }

  int acquired = 0;

 private:
  int out_ = 0;
};

// Gives the reader a stream in random pieces; places what it offers to place directly.
class ReaderModel {
 public:
  ReaderModel(std::uint64_t seed, bool crc, bool markers)
      : rng_(seed), reader_(crc, markers, true, pool_), scratch_(kScratchBytesMin) {}

  // Stops at a violation, and says which.
  Violation run(const Bytes& stream, std::size_t chunk_max) {
    std::size_t at = 0;
    while (at < stream.size()) {
      Slice slices[3];
      const std::size_t count = plan(slices);
      std::size_t room = 0;
      for (std::size_t i = 0; i < count; ++i) room += slices[i].size;
      const std::size_t n = std::min({room, rng_.size(0, chunk_max), stream.size() - at});
      std::size_t left = n;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t piece = std::min(left, slices[i].size);
        if (piece != 0) std::memcpy(slices[i].data, stream.data() + at, piece);
        at += piece;
        left -= piece;
      }
      placed_ += reader_.filled(n);
      if (const Violation v = take_items(); v != Violation::kNone) return v;
      EXPECT_TRUE(reader_.park());
      std::memset(scratch_.data(), 0xdb, std::min(scratch_.size(), n + 4096));
    }
    EXPECT_TRUE(reader_.at_border());
    return Violation::kNone;
  }

  std::vector<Bytes> ulpdus;
  int direct = 0;
  [[nodiscard]] int carries() const { return pool_.acquired; }

 private:
  std::size_t plan(Slice* slices) {
    if (reader_.direct_remaining() == 0) {
      slices[0] = reader_.want(scratch_);
      return 1;
    }
    // Like an owner whose memory is in pieces: not always all of the payload at once.
    const std::size_t whole = reader_.direct_remaining();
    const std::size_t now = rng_.one_in(2) ? whole : rng_.size(1, whole);
    slices[0] = {target_.data() + placed_, now};
    if (now != whole) return 1;
    slices[1] = reader_.want_tail();
    return 2;
  }

  // In random pieces, as the entries of a list are filled.
  void take(MarkedOctets from, Bytes& to) {
    for (std::size_t at = 0; !from.empty();) {
      const std::size_t piece = rng_.one_in(3) ? rng_.size(1, from.size()) : from.size();
      from.move_to(to.data() + at, piece);
      at += piece;
    }
  }

  Violation take_items() {
    for (;;) {
      const Inbound in = reader_.next();
      switch (in.kind) {
        case Inbound::Kind::kNone: return Violation::kNone;
        case Inbound::Kind::kViolation: return in.violation;
        case Inbound::Kind::kUlpdu: {
          // A header can be read where it lies.
          const std::size_t head = std::min(in.ulpdu.size(), kMaxDdpHeaderSize);
          EXPECT_GE(in.ulpdu.front().size(), head);
          take(in.ulpdu, ulpdus.emplace_back(in.ulpdu.size()));
          break;
        }
        case Inbound::Kind::kDirect:
          EXPECT_GE(in.ulpdu.front().size(), kMaxDdpHeaderSize);
          if (rng_.one_in(3)) {
            reader_.keep();
            break;
          }
          target_.assign(in.ulpdu_len, 0);
          MarkedOctets(in.ulpdu).move_to(target_.data(), in.ulpdu.size());
          placed_ = in.ulpdu.size();
          reader_.place_directly();
          ++direct;
          break;
        case Inbound::Kind::kDirectEnd: ulpdus.push_back(target_); break;
      }
    }
  }

  Rng rng_;
  HeapCarry pool_;
  FpduReader reader_;
  Bytes scratch_;
  Bytes target_;
  std::size_t placed_ = 0;
};

struct Traffic {
  std::vector<Bytes> ulpdus;
  Bytes stream;
};

Traffic make_traffic(Rng& rng, std::size_t count, bool crc, bool markers) {
  Traffic t;
  for (std::size_t i = 0; i < count; ++i) {
    t.ulpdus.push_back(random_bytes(rng, some_size(rng, 0)));
    Bytes fpdu = build_fpdu(t.ulpdus.back(), markers, t.stream.size());
    // Without CRC the field holds anything.
    if (!crc) fpdu.back() = rng.octet();
    t.stream.insert(t.stream.end(), fpdu.begin(), fpdu.end());
  }
  return t;
}

TEST(FpduReader, GivesEveryUlpduHoweverTheStreamIsCut) {
  int direct = 0;
  for_each_seed(60, [&](std::uint64_t seed) {
    Rng rng(seed);
    const bool crc = rng.one_in(2);
    const bool markers = rng.one_in(2);
    constexpr std::size_t kChunks[] = {3, 100, 1460, 9000, 70000, 300000};
    const std::size_t chunk = kChunks[rng.size(0, 5)];
    const Traffic t = make_traffic(rng, chunk < 100 ? 4 : 20, crc, markers);
    ReaderModel reader(seed, crc, markers);
    ASSERT_EQ(reader.run(t.stream, chunk), Violation::kNone);
    ASSERT_EQ(reader.ulpdus, t.ulpdus);
    direct += reader.direct;
  });
  EXPECT_GT(direct, 0);
}

// Everything in an FPDU is under the CRC, markers too: one bit makes it, or the length, wrong.
TEST(FpduReader, AnyFlippedBitUnderCrcIsFoundBeforeAnythingOfItsFpduIsGiven) {
  for_each_seed(200, [&](std::uint64_t seed) {
    Rng rng(seed);
    const bool markers = rng.one_in(2);
    std::vector<std::size_t> ends;
    Bytes stream;
    std::vector<Bytes> ulpdus;
    for (int i = 0; i < 6; ++i) {
      ulpdus.push_back(random_bytes(rng, rng.size(14, 1500)));
      stream = stream + build_fpdu(ulpdus.back(), markers, stream.size());
      ends.push_back(stream.size());
    }
    // A longer length makes the reader wait: enough octets for any.
    stream.resize(stream.size() + 70000, 0);
    const std::size_t bit = rng.size(0, ends.back() * 8 - 1);
    stream[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    const auto hit = static_cast<std::size_t>(
        std::find_if(ends.begin(), ends.end(), [&](std::size_t end) { return bit / 8 < end; }) -
        ends.begin());
    ReaderModel reader(seed, true, markers);
    ASSERT_EQ(reader.run(stream, 4000), Violation::kCrc);
    ulpdus.resize(hit);
    ASSERT_EQ(reader.ulpdus, ulpdus);
  });
}

// Setting a large FPDU aside and fetching it again at every octet would be quadratic work.
TEST(FpduReader, AnFpduInTinyPiecesIsPutTogetherInPlace) {
  for (const bool markers : {false, true}) {
    const Bytes ulpdu(50000, 0x42);
    ReaderModel reader(1, true, markers);
    EXPECT_EQ(reader.run(build_fpdu(ulpdu, markers, 0), 1), Violation::kNone);
    ASSERT_EQ(reader.ulpdus.size(), 1U);
    EXPECT_EQ(reader.ulpdus[0], ulpdu);
    EXPECT_LT(reader.carries(), 3000);
  }
}

TEST(FpduReader, AMarkerThatDisagreesUnderAGoodCrcIsFound) {
  Bytes fpdu = build_fpdu(Bytes(1200, 7), true, 0);
  constexpr std::size_t kSecond = 512 + 2;  // FPDUPTR of the marker at 512
  store_be16(fpdu.data() + kSecond, static_cast<std::uint16_t>(load_be16(&fpdu[kSecond]) + 4));
  store_crc(fpdu.data() + fpdu.size() - 4, crc32c({fpdu.data(), fpdu.size() - 4}));
  ReaderModel reader(1, true, true);
  EXPECT_EQ(reader.run(fpdu, 5000), Violation::kMarker);
  EXPECT_TRUE(reader.ulpdus.empty());
}

TEST(FpduReader, IgnoresReservedOctetsAndLowBitsOfMarkers) {
  const Bytes ulpdu(1200, 7);
  Bytes fpdu = build_fpdu(ulpdu, true, 0);
  fpdu[0] = 0x12;
  fpdu[3] = 0x03;
  fpdu[512] = 0xff;
  fpdu[515] |= 0x03;
  store_crc(fpdu.data() + fpdu.size() - 4, crc32c({fpdu.data(), fpdu.size() - 4}));
  ReaderModel reader(1, true, true);
  EXPECT_EQ(reader.run(fpdu, 5000), Violation::kNone);
  ASSERT_EQ(reader.ulpdus.size(), 1U);
  EXPECT_EQ(reader.ulpdus[0], ulpdu);
}

TEST(FpduReader, LargestUlpduThatTheFieldCanSayIsTaken) {
  for (const bool markers : {false, true}) {
    // With markers a larger one cannot be described: FPDUPTR has 16 bits.
    const Bytes ulpdu(markers ? kMaxUlpdu : kMaxUlpduAccepted, 0x42);
    ReaderModel reader(1, true, markers);
    EXPECT_EQ(reader.run(build_fpdu(ulpdu, markers, 0), 9000), Violation::kNone);
    ASSERT_EQ(reader.ulpdus.size(), 1U);
    EXPECT_EQ(reader.ulpdus[0], ulpdu);
  }
}

}  // namespace
}  // namespace weft::proto
