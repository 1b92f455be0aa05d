// MPA start-up frames, arriving whole and octet by octet, and the enhanced words inside.

#include "wire/mpa_startup.h"

#include <algorithm>

#include "wire_fuzzing.h"

namespace weft::fuzzing {
namespace {

bool same(const MpaFrame& a, const MpaFrame& b) {
  return a.is_reply == b.is_reply && a.markers == b.markers && a.crc == b.crc &&
         a.reject == b.reject && a.enhanced == b.enhanced && a.revision == b.revision &&
         std::equal(a.private_data.begin(), a.private_data.end(), b.private_data.begin(),
                    b.private_data.end());
}

// Follows mpa_frame_missing from nothing to a verdict, as a caller that reads just that much would.
// It must end, and agree with the decoder.
void arrive_piecemeal(std::span<const std::uint8_t> input, MpaKind kind) {
  std::size_t have = 0;
  for (int step = 0;; ++step) {
    check(step <= 3);
    const auto missing = mpa_frame_missing(input.first(have), kind);
    ByteReader in(input.first(have));
    const auto frame = decode_mpa_frame(in, kind);
    if (!missing) {
      check(!frame && frame.error() == missing.error());
      return;
    }
    if (*missing == 0) {
      check(frame.has_value() && in.empty());
      return;
    }
    check(!frame && frame.error() == Error::kTruncated);
    if (input.size() - have < *missing) return;
    have += *missing;
  }
}

void one_kind(std::span<const std::uint8_t> input, MpaKind kind) {
  arrive_piecemeal(input, kind);
  ByteReader in(input);
  const auto frame = decode_mpa_frame(in, kind);
  if (!frame) {
    check(in.remaining() == input.size());
    return;
  }
  check(frame->is_reply == (kind == MpaKind::kReply));
  check(input.size() - in.remaining() == frame->encoded_size());
  with_encoded(*frame, frame->encoded_size(), [&](std::span<const std::uint8_t> bytes) {
    ByteReader again(bytes);
    const auto second = decode_mpa_frame(again, kind);
    check(second.has_value() && again.empty() && same(*frame, *second));
  });
  round_trip(frame->private_data, EnhancedWords::kSize,
             [](ByteReader& words) { return decode_enhanced_words(words); });
}

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  weft::fuzzing::one_kind({data, size_bytes}, weft::MpaKind::kRequest);
  weft::fuzzing::one_kind({data, size_bytes}, weft::MpaKind::kReply);
  return 0;
}
