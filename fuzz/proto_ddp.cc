// A DDP stream with work of its own against any octets.
//
// Octet 0: bit 0 CRC, 1 markers in what we receive, 2 no headers (MPA by itself), 3 responder,
// 4 repair, 5 the peer resets instead of closing, 6 we close in the middle, 7 memory of ours is
// read late. Octet 1: bits 0 to 5 how many octets come at once (0: all), 6 to 7 queues less one.
// The rest is what the peer sends.
//
// With "repair" the harness gives each FPDU a right CRC, and real STags where a small number
// stands.
//
// What must hold whatever comes: no octet outside of what was offered changes, every message posted
// is given back exactly once and in order, the stream ends once, everything borrowed is back.
#include <algorithm>
#include <vector>

#include "../tests/sim/ddp_side.h"
#include "base/crc32c.h"
#include "wire/fpdu.h"
#include "wire_fuzzing.h"

namespace weft::fuzzing {
namespace {

using proto::DdpParams;
using testing::DdpSide;
using testing::Octets;

class Harness {
 public:
  explicit Harness(std::span<const std::uint8_t> input)
      : options_(input[0]),
        piece_((input[1] & 0x3fU) == 0 ? 100000 : input[1] & 0x3fU),
        queues_(option(2) ? 1 : 1U + (input[1] >> 6U)),
        side_(params(), 512),
        input_(input.begin() + 2, input.end()) {}

  void run() {
    for (std::uint32_t q = 0; q < queues_; ++q) {
      for (const std::uint32_t size : {0U, 40U, 3000U}) side_.post_buffer(size, q);
    }
    for (std::uint8_t i = 0; i < kMessages; ++i) {
      const bool tagged = i % 2 == 1 && !option(2);
      const Octets message(std::size_t{1} + i * 300U, i);
      check((tagged ? side_.write(message, i) : side_.send(message, i % queues_)).has_value());
    }
    const Octets octets = option(4) ? repaired(input_) : input_;
    feed(octets);
    finish();
  }

 private:
  static constexpr std::uint8_t kMessages = 5;

  [[nodiscard]] bool option(unsigned bit) const { return (options_ >> bit & 1U) != 0; }

  [[nodiscard]] DdpParams params() const {
    DdpParams p;
    p.crc = option(0);
    p.rx_markers = option(1);
    p.tx_markers = option(1);
    p.bare = option(2);
    p.may_send = !option(3);
    p.queues = queues_;
    p.send_depth = kMessages;
    return p;
  }

  [[nodiscard]] Octets repaired(Octets octets) const {
    if (option(1)) return octets;
    for (std::size_t at = 0; at + kFpduLengthSize + 2 <= octets.size() && octets.size() < 100000;) {
      const std::uint32_t length = load_ulpdu_length(&octets[at]);
      const std::size_t size = fpdu_size(length);
      if (octets.size() - at < size) octets.resize(at + size, 0);
      std::uint8_t* const ulpdu = &octets[at + kFpduLengthSize];
      if (!option(2) && peek_tagged(ulpdu[0]) && length >= kDdpTaggedSize) {
        const std::uint32_t number = load_be32(ulpdu + 2);
        if (number < 4) store_be32(ulpdu + 2, DdpSide::kStag.value * number);
      }
      const std::size_t covered = size - kCrcSize;
      store_crc(&octets[at + covered], crc32c({&octets[at], covered}));
      at += size;
    }
    return octets;
  }

  void transmit() {
    (void)side_.take(piece_ * 7, option(7));
    (void)side_.stream().take_fin();
  }

  void feed(const Octets& octets) {
    transmit();
    for (std::size_t at = 0; at < octets.size() && !side_.ended; at += piece_) {
      const std::size_t n = std::min(piece_, octets.size() - at);
      const auto begin = octets.begin() + static_cast<std::ptrdiff_t>(at);
      Octets now(begin, begin + static_cast<std::ptrdiff_t>(n));
      side_.stream().feed(now);
      if (option(6) && at > octets.size() / 2) side_.stream().close();
      transmit();
    }
  }

  void finish() {
    proto::DdpStream& stream = side_.stream();
    if (option(5)) {
      stream.transport_lost();
    } else {
      stream.peer_closed();
    }
    transmit();
    if (!side_.ended) stream.abort();
    side_.release_held();
    stream.transport_closed();
    check(side_.ended.has_value());
    check(side_.released_whole + side_.released_unsent == kMessages);
    check(side_.intact());
    check(stream.gather() == nullptr && !stream.tx_pending());
  }

  std::uint8_t options_;
  std::size_t piece_;
  std::uint32_t queues_;
  DdpSide side_;
  Octets input_;
};

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size >= 2 && size < 20000) weft::fuzzing::Harness({data, size}).run();
  return 0;
}
