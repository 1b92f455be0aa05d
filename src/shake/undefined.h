// The fields that a completion does not define: the man page of ibv_poll_cq.
#pragma once

#include <weft/types.h>

#include "shake/shake_plan.h"

namespace weft::shake {

// Gives each undefined field of a completion another value. `datagram`: of a queue pair for
// datagrams, whose receives define more.
void scramble(WorkCompletion& one, bool datagram, Dice& dice);

}  // namespace weft::shake
