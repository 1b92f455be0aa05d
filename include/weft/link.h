// A link that is worse than the one there is, for tests: what one side of a connection sends comes
// late, slowly, stops for a while, changes, or ends.
//
// It acts on the stream of TCP below a connection, at the side that sends. Octets are counted from
// 0, behind the exchange that sets the connection up. Not where a connection goes by shared memory
// (Config::path). With kUd it acts on the datagrams of a queue pair, and octets are those of all
// that it has sent, headers included: delay, rate, stalls and loss. What finds a full queue is
// lost there.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#pragma GCC visibility push(default)
namespace weft {

struct LinkRule {
  enum class What : std::uint8_t {
    kStall,  // behind octet `at` nothing moves for `length`
    kCut,    // behind octet `at` the connection is gone, for both sides
    kFlip    // the lowest bit of octet `at` changes, which only a CRC can find
  };
  What what{};
  std::uint64_t at = 0;  // from 1
  bool repeats = false;  // at each multiple of it, too
  // kStall: not at an octet, but whenever the link is so old, twice, three times as old.
  std::chrono::nanoseconds period{0};
  std::chrono::nanoseconds length{0};
  int name = 0;  // its owner's
};

struct LinkTrouble {
  std::chrono::nanoseconds delay{0};
  std::chrono::nanoseconds jitter{0};  // at most so much is added to the delay
  std::uint64_t bits_per_second = 0;   // 0: as fast as it goes
  double loss_percent = 0;             // kUd: each datagram is lost with this chance
  std::vector<LinkRule> rules;
  std::uint64_t seed = 0;  // of the jitter and the loss
  // A rule has its effect at this octet. `possible` is false if it can't: there is no CRC, or no
  // TCP. Called by a thread of its own, without locks. May be null.
  std::function<void(const LinkRule& rule, std::uint64_t octet, bool possible)> on_rule;

  [[nodiscard]] bool is_any() const {
    return delay.count() != 0 || jitter.count() != 0 || bits_per_second != 0 || loss_percent > 0 ||
           !rules.empty();
  }
};

}  // namespace weft
#pragma GCC visibility pop
