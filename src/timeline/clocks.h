// How the clocks of machines differ, from the messages between them: no message arrives before it
// was sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "timeline/story.h"

namespace weft::timeline {

// A message: by the clock of the one machine, and by that of the other.
struct Delay {
  std::uint64_t sent = 0;      // by the clock of the sender
  std::uint64_t received = 0;  // by that of the receiver
};

// The other clock says  offset + drift * (time - since)  more than the one at `time`. All times are
// by the one.
struct Difference {
  double offset_ns = 0;
  double drift = 0;
  double bound_ns = 0;  // it is at most so far from that
  std::uint64_t since = 0;
  std::size_t messages = 0;
};

// `there`: messages of the one to the other; `back`: the other way. REQUIRES: neither is empty.
[[nodiscard]] Difference compare_clocks(std::span<const Delay> there, std::span<const Delay> back);

// The clock of a machine beside that of the first process.
struct Clock {
  std::string boot_id;
  std::string host;
  Difference difference;
  bool known = true;  // false: by its time of day, since no messages went both ways
};

class Clocks {
 public:
  explicit Clocks(const Story& story);

  // The time of a process by the clock of the first one. kNever stays.
  [[nodiscard]] std::uint64_t common(std::size_t process, std::uint64_t time) const;
  // Those of machines; the first one's own is the first.
  [[nodiscard]] const std::vector<Clock>& machines() const { return clocks_; }

 private:
  [[nodiscard]] std::size_t clock_of(const std::string& boot_id) const;

  std::vector<Clock> clocks_;
  std::vector<std::size_t> of_process_;
};

}  // namespace weft::timeline
