// The fields that a completion does not define: the man page of ibv_poll_cq.
#pragma once

#include <weft/types.h>

#include "shake/held_completions.h"
#include "shake/shake_plan.h"

namespace weft::shake {

// Flags of a failed completion whose `op` is another one now, and what it was. No program sees
// them.
constexpr auto kHasOtherOp = static_cast<WcFlags>(1U << 7U);
constexpr auto kWasReceive = static_cast<WcFlags>(1U << 6U);

// Whether it is one of a receive, scrambled or not.
[[nodiscard]] constexpr bool was_receive(const WorkCompletion& one) {
  return has(one.flags, kHasOtherOp) ? has(one.flags, kWasReceive) : is_receive(one);
}

// Gives each undefined field of a completion another value. `datagram`: of a queue pair for
// datagrams, whose receives define more.
void scramble(WorkCompletion& one, bool datagram, Dice& dice);

}  // namespace weft::shake
