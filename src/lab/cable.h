// When a frame between hosts of `weft lab run` arrives. Pure: the caller brings the clock.
//
// Each host has a line of its own to a switch, of the link's rate in each direction. A frame leaves
// when the sender's line is free, is under way for the link's delay, and takes the receiver's line
// while it takes the sender's: one alone is delayed by its own length once. Senders wait for their
// line, as a network card makes them; a frame that finds too much waiting for the receiver's line
// is lost, as in a switch. Without a rate there are no lines to wait for: each frame is delayed,
// and all arrive.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "lab/link.h"

namespace weft::lab {

class Cable {
 public:
  using Time = std::chrono::nanoseconds;  // since any fixed moment; never goes back

  Cable(const Link& link, unsigned hosts);

  // From when on the next frame of a host may be taken: a few are taken ahead of its line.
  [[nodiscard]] Time next_from(unsigned host) const;
  // A frame is taken from a host: its line is busy with it, once for all receivers. `waited`: it
  // was there when the line became free, so it left then, though whoever takes it comes late. No
  // more than kMostLate is made up for.
  void take(unsigned from, std::uint64_t bytes, Time now, bool waited);
  static constexpr Time kMostLate = std::chrono::milliseconds(20);
  // The frame that was taken last from this host, to another one. Nothing: it is lost.
  [[nodiscard]] std::optional<Time> deliver(unsigned from, unsigned to, std::uint64_t bytes);

 private:
  [[nodiscard]] Time length_of(std::uint64_t bytes) const;

  const Link link_;
  const Time queue_;  // so long a frame may wait for the receiver's line
  struct Line {
    Time begins{0};    // of the frame that was sent last
    Time out_free{0};  // when the line from the host is free
    Time in_free{0};   // the same for the line to it
  };
  std::vector<Line> lines_;
};

}  // namespace weft::lab
