// Which liberties a shaken device takes (`weft run --shake`), and its dice.
//
// Values. The same seed and the same stream number give the same numbers on each machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::shake {

// The numbers that users write behind the seed: docs/shake.md.
enum class Effect : std::uint8_t {
  kArm = 1,        // a completion lands between the empty poll and the call that arms
  kLate = 2,       // sources are read, and completions of requests shown, late
  kPlacement = 3,  // the last octets of a Write are there before the others
  kUndefined = 4,  // what has no defined contents is not zero
  kErrno = 5,      // calls that return their error leave another one in errno
  kSizes = 6,      // nothing is larger than it was asked for
  kOrder = 7,      // queues complete in any order among each other; numbers and keys are reused
};

struct Plan {
  std::uint64_t seed = 0;
  std::uint32_t effects = 0;  // bit n: number n

  [[nodiscard]] bool has(Effect effect) const {
    return (effects >> static_cast<unsigned>(effect) & 1U) != 0;
  }
};

// "7", or "7:1,4" for these effects alone. Nothing, and `why`, if it is neither.
[[nodiscard]] std::optional<Plan> parse_plan(std::string_view text, std::string& why);

// A decision about one of many.
enum class Decision : std::uint8_t { kShown = 1, kTaken, kRung, kUndefined, kTail };

class Dice {
 public:
  // `stream`: whose dice, for example the third queue pair's.
  Dice(std::uint64_t seed, std::uint64_t stream);
  // For one decision about the thing with this number in a queue: the same whatever was decided
  // before, and when.
  Dice(std::uint64_t seed, std::uint64_t stream, Decision about, std::uint64_t queue,
       std::uint64_t number);

  [[nodiscard]] std::uint64_t next();
  // 0 to limit - 1. REQUIRES: limit > 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t limit) { return next() % limit; }
  [[nodiscard]] bool percent(std::uint64_t chance) { return below(100) < chance; }

 private:
  std::uint64_t state_;
};

}  // namespace weft::shake
