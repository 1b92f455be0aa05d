// Messages, Hellos and Rejects of the EXS protocol: whatever is accepted is within the limits, and
// says the same when it is encoded again.

#include "exs/core/exs_messages.h"
#include "wire_fuzzing.h"

namespace {

using namespace weft;
using fuzzing::check;

void look_at_hello(std::span<const std::uint8_t> input) {
  const auto hello = exs::decode_hello(input);
  if (!hello || hello->version != exs::kProtocolVersion) return;
  check(hello->slots >= exs::kSlotsMin && hello->slots <= exs::kSlotsMax);
  check(hello->immediate_bytes <= exs::kImmediateMax);
  check(hello->ring_bytes >= exs::kRingMin && hello->ring_bytes <= exs::kRingMax);
  std::array<std::uint8_t, exs::Hello::kSize> bytes;
  encode(*hello, bytes);
  check(exs::decode_hello(bytes) == hello);
}

void look_at_reject(std::span<const std::uint8_t> input) {
  const auto reject = exs::decode_reject(input);
  if (!reject) return;
  std::array<std::uint8_t, exs::Reject::kSize> bytes;
  encode(*reject, bytes);
  const auto again = exs::decode_reject(bytes);
  check(again && again->version == reject->version && again->reason == reject->reason);
}

void look_at_message(std::span<const std::uint8_t> input) {
  exs::Message message;
  if (exs::decode(input, message) != nullptr) return;
  const exs::Header& h = message.header;
  check(h.segments <= exs::kSegmentsMax);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < h.segments; ++i) total += message.segments[i].length;
  if (h.segments != 0) check(total == h.length && total <= exs::kTransferMax);
  if (!message.payload.empty()) {
    check(message.payload.size() == h.length);
    check(message.payload.data() == input.data() + exs::Header::kSize);
  }
  std::array<std::uint8_t, exs::Header::kSize> bytes;
  encode(h, bytes);
  for (std::size_t i = 0; i < 36; ++i) check(bytes[i] == input[i]);  // the rest is ignored
  for (std::size_t i = 0; i < h.segments; ++i) {
    std::array<std::uint8_t, exs::Segment::kSize> segment;
    encode(message.segments[i], segment);
    for (std::size_t j = 0; j < segment.size(); ++j) {
      check(segment[j] == input[exs::Header::kSize + i * segment.size() + j]);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const std::span input(data, size_bytes);
  look_at_hello(input);
  look_at_reject(input);
  look_at_message(input);
  return 0;
}
