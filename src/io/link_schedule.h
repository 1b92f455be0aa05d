// When the octets of a bad link leave it, and what happens to them: <weft/link.h>. No clock: the
// caller brings the time.
//
// One thread at a time. The same stream has the same stalls, cuts and flips at octets.
#pragma once

#include <weft/link.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace weft::io {

class LinkSchedule {
 public:
  LinkSchedule(LinkTrouble trouble, Instant begin);

  // The next octets, as the link treats them.
  struct Piece {
    std::size_t size = 0;  // so many of them leave together
    Instant due;           // at this time
    bool flipped = false;  // a bit of the first one changes
    bool cut = false;      // the link ends behind them
  };
  // REQUIRES: available is not 0, and no piece was cut.
  [[nodiscard]] Piece next(std::size_t available, Instant now);

  struct Struck {
    std::size_t rule = 0;
    std::uint64_t octet = 0;
  };
  // Rules that have had their effect since the last call. Those by time are named once.
  [[nodiscard]] std::vector<Struck> take_struck();
  [[nodiscard]] bool has_struck() const noexcept { return !struck_.empty(); }
  // As many octets as are under way at once, and some.
  [[nodiscard]] std::size_t room() const noexcept;

 private:
  struct Live {
    std::uint64_t next = 0;  // octet; ~0: never again
    bool named = false;
  };
  [[nodiscard]] Duration random_jitter();
  // Behind the stalls by time that the link is in at `t`.
  [[nodiscard]] Instant behind_stalls(Instant t);
  void strike(std::size_t i);
  void behind(Piece& piece);

  const LinkTrouble trouble_;
  const Instant begin_;
  std::vector<Live> live_;
  std::vector<Struck> struck_;
  std::uint64_t dice_;
  std::uint64_t taken_ = 0;
  Instant line_free_;  // the octets before have left the sender's line
  Instant last_due_;
};

}  // namespace weft::io
