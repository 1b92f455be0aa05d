// A link between hosts of `weft lab run`: rate, delay, queue. No operating system.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace weft::lab {

struct Link {
  std::uint64_t bits_per_s = 0;       // of each host, in each direction; 0: as fast as it goes
  std::chrono::nanoseconds delay{0};  // from host to host, one way
  std::uint64_t queue_bytes = 0;      // that may wait for a receiver's line; 0: see queue_of
  bool operator==(const Link&) const = default;
};

// "rate=1Gbit,delay=5ms,queue=1MB", in any order, each at most once; an empty text is the default.
// A rate is in bit, kbit, Mbit or Gbit a second, a queue in B, kB or MB. The error names the word
// and says what is legal.
[[nodiscard]] tl::expected<Link, std::string> parse_link(std::string_view text);

// The bytes that may wait for the line of a receiver: as given, or those of two round trips at this
// rate (four times rate and delay), from 256 KiB to 1000 MB.
[[nodiscard]] std::uint64_t queue_of(const Link& link);

}  // namespace weft::lab
