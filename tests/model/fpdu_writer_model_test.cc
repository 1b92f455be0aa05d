// FPDUs as written against FPDUs built octet by octet. With the small profile too: there, payload
// is named among markers, and the rest of an FPDU that is cut off stays where it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "../sim/rng.h"
#include "../sim/seeds.h"
#include "../unit/wire_testing.h"
#include "proto/fpdu_reader.h"
#include "proto/fpdu_writer.h"
#include "random_bytes.h"

namespace weft::proto {
namespace {

using weft::testing::build_fpdu;
using weft::testing::Bytes;
using weft::testing::for_each_seed;
using weft::testing::random_bytes;
using weft::testing::Rng;
using weft::testing::operator+;

// On a board an FPDU is at most a segment.
std::uint32_t some_size(Rng& rng, std::uint32_t least) {
  if (profile::kSmall) {
    return rng.one_in(3) ? rng.u32(490, 530) : rng.u32(least, kCarryBytesMax - 40);
  }
  switch (rng.u32(0, 4)) {
    case 0: return least + rng.u32(0, 8);
    case 1: return rng.u32(490, 530);  // around a marker
    case 2: return rng.u32(8000, 8400);
    case 3: return rng.one_in(6) ? rng.u32(60000, kMaxUlpdu) : rng.u32(least, 2000);
    default: return rng.u32(least, 4000);
  }
}

struct Sent {
  Bytes stream;
  void take(TxBatch& batch, std::size_t n) {
    batch.sent += n;
    while (n != 0) {
      Slice& s = batch.slices[batch.slice_next];
      const std::size_t piece = std::min(n, s.size);
      stream.insert(stream.end(), s.data, s.data + piece);
      s.data += piece;
      s.size -= piece;
      n -= piece;
      if (s.size == 0) ++batch.slice_next;
    }
  }
};

class WriterModel {
 public:
  WriterModel(std::uint64_t seed, bool crc, bool markers)
      : rng_(seed),
        crc_(crc),
        markers_(markers),
        writer_(crc, markers),
        batch_(std::make_unique<TxBatch>()) {
    writer_.attach(batch_.get());
  }

  void run() {
    for (int round = 0; round < 20; ++round) {
      batch_->clear();
      kept_.clear();
      while (write_one()) {
        if (rng_.one_in(6)) break;
      }
      if (rng_.one_in(3)) {
        cut_somewhere();
      } else {
        sent_.take(*batch_, batch_->bytes);
      }
      ASSERT_EQ(sent_.stream.size(), writer_.offset());
      // What earlier rounds have compared cannot have changed.
      const auto from = static_cast<std::ptrdiff_t>(compared_);
      ASSERT_EQ(Bytes(sent_.stream.begin() + from, sent_.stream.end()),
                Bytes(expected_.begin() + from, expected_.end()));
      compared_ = expected_.size();
    }
  }

 private:
  bool write_one() {
    const std::uint32_t size = some_size(rng_, 18);
    kept_.push_back(random_bytes(rng_, size));
    const Bytes& ulpdu = kept_.back();
    const std::size_t payload = size - 18;
    const std::size_t pieces = rng_.size(1, 4);
    if (!writer_.room(18, payload, pieces)) {
      EXPECT_GT(batch_->fpdu_count, 0U) << "an empty batch has room for any FPDU";
      kept_.pop_back();
      return false;
    }
    writer_.begin(ulpdu.data(), 18, payload);
    std::size_t at = 18;
    for (std::size_t p = 1; p <= pieces; ++p) {
      const std::size_t piece = p == pieces ? size - at : rng_.size(0, size - at);
      const bool stable = rng_.one_in(2) || piece >= FpduWriter::kCopyBelow;
      writer_.payload(ulpdu.data() + at, piece, stable);
      at += piece;
    }
    writer_.end();
    Bytes fpdu = build_fpdu(ulpdu, markers_, expected_.size());
    if (!crc_) std::fill(fpdu.end() - 4, fpdu.end(), std::uint8_t{0});
    expected_.insert(expected_.end(), fpdu.begin(), fpdu.end());
    ends_.push_back(expected_.size());
    return true;
  }

  // Some of the batch goes out, the rest of it is taken back up to the FPDU border; where batches
  // copy, memory named by it may then change.
  void cut_somewhere() {
    const std::size_t begin = sent_.stream.size();
    sent_.take(*batch_, rng_.size(0, batch_->bytes));
    const std::size_t sent = sent_.stream.size();
    writer_.cut();
    if (kBatchCopies) {
      for (Bytes& ulpdu : kept_) std::fill(ulpdu.begin(), ulpdu.end(), std::uint8_t{0});
    }
    std::size_t border = begin;
    for (const std::size_t end : ends_) {
      if (end > begin && border < sent) border = end;
    }
    expected_.resize(border);
    std::erase_if(ends_, [&](std::size_t end) { return end > border; });
    ASSERT_EQ(batch_->bytes - batch_->sent, border - sent);
    if (rng_.one_in(2) && write_one()) {
      ASSERT_EQ(writer_.offset(), expected_.size());
    }
    sent_.take(*batch_, batch_->bytes - batch_->sent);
  }

  Rng rng_;
  bool crc_, markers_;
  FpduWriter writer_;
  std::unique_ptr<TxBatch> batch_;
  std::vector<Bytes> kept_;
  Sent sent_;
  Bytes expected_;
  std::vector<std::size_t> ends_;
  std::size_t compared_ = 0;
};

TEST(FpduWriter, WritesWhatTheNaiveBuilderBuilds) {
  for_each_seed(
      24, [&](std::uint64_t seed) { WriterModel(seed, (seed & 1U) != 0, (seed & 2U) != 0).run(); });
}

TEST(FpduWriter, SmallFpdusInOnePieceAreTheSame) {
  Rng rng(4);
  for (const bool crc : {false, true}) {
    auto batch = std::make_unique<TxBatch>();
    FpduWriter writer(crc, false);
    writer.attach(batch.get());
    Bytes expected;
    for (std::uint32_t size = 18; size < 18 + FpduWriter::kCopyBelow; size += 7) {
      if (!writer.room(18, size - 18, 1)) break;
      const Bytes ulpdu = random_bytes(rng, size);
      std::memcpy(writer.begin_small(size), ulpdu.data(), size);
      writer.end_small();
      Bytes fpdu = build_fpdu(ulpdu);
      if (!crc) std::fill(fpdu.end() - 4, fpdu.end(), std::uint8_t{0});
      expected = expected + fpdu;
    }
    EXPECT_EQ(writer.offset(), expected.size());
    Sent sent;
    sent.take(*batch, batch->bytes);
    EXPECT_EQ(sent.stream, expected);
  }
}

}  // namespace
}  // namespace weft::proto
