// Which wired queue pair connects, which may, and how long one waits: the decisions that need no
// socket. Pure functions, any thread.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "roce/hello.h"

namespace weft::roce {

// If both ends know each other, this one connects at once; the other one waits for it, and
// connects only after kTurnOfOther.
[[nodiscard]] constexpr bool goes_first(const End& mine, const End& peer) noexcept {
  return mine < peer;
}
// In case the network lets connections through in one direction only.
inline constexpr Duration kTurnOfOther{250'000'000};

// The state of a queue pair when somebody says hello to it.
struct Standing {
  bool wired = false;      // in RTR or RTS
  bool linked = false;     // has a connection
  bool committed = false;  // goes first, and has said hello itself: only that one counts
  End mine, peer;          // as the application named them
  QpType type = QpType::kRc;
};

// The answer to `hello`, which came from the address `source`. As in InfiniBand three things have
// to agree: this queue pair expects exactly that one, that one means this one, and it calls from
// where it claims to be.
[[nodiscard]] Verdict judge(const Hello& hello, const Gid& source, const Standing& own) noexcept;

// The pause before the next attempt to connect, `attempt` from 0: 20 ms, doubling to 500 ms.
[[nodiscard]] Duration pause_before(std::uint32_t attempt) noexcept;

// How long TCP's handshake may take until another call is tried beside it, `calls` such calls from
// 0: 100 ms, doubling to 6.4 s. The kernel repeats a SYN that was dropped only after a second, by
// when the retries may be used up.
[[nodiscard]] Duration handshake_limit(std::uint32_t calls) noexcept;

// How long work may wait for a peer before it ends with "transport retry counter exceeded":
// (retry_cnt + 1) times 4.096 us * 2^timeout. Timeout 0 is for ever. Not below a floor, since a
// busy machine may need a moment where an adapter does not.
inline constexpr Duration kRetryFloor{200'000'000};
[[nodiscard]] Duration retry_budget(std::uint8_t timeout, std::uint8_t retry_cnt) noexcept;

// From the hello to the answer. Long beside what a busy process needs: an end that gives up while
// the other accepts would cost that one its connection.
inline constexpr Duration kAnswerLimit{10'000'000'000};

// The time that min_rnr_timer stands for: 10 us to 655 ms.
[[nodiscard]] Duration rnr_pause(std::uint8_t min_rnr_timer) noexcept;

}  // namespace weft::roce
