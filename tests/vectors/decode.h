// Captured streams taken apart with the product's own decoders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture.h"
#include "proto/fpdu_reader.h"
#include "wire/mpa_startup.h"

namespace weft::testing {

struct Fpdu {
  std::vector<std::uint8_t> ulpdu;
  std::vector<std::uint8_t> wire;  // as captured, with length, pad and CRC
};

struct Direction {
  std::vector<std::uint8_t> frame;  // the start-up frame
  std::vector<Fpdu> fpdus;
  bool at_border = true;  // nothing was left behind the last FPDU
};

struct Decoded {
  Direction from[2];
  bool crc = false;
};

// Cuts both directions with FpduReader, given `chunk` octets at a time.
[[nodiscard]] Decoded decode(const CapturedConnection& connection, std::size_t chunk);

// The text of one direction as the decodes have it, with "> " or "< " in front.
[[nodiscard]] std::vector<std::string> describe_direction(const CapturedConnection& connection,
                                                          const Decoded& decoded, int side);

}  // namespace weft::testing
