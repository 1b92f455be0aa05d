// Effect 6 of `weft run --shake`, completion queues.
#pragma once

#include "ibverbs/objects.h"

namespace weft::ibverbs {

// It has more than the program asked for: its queue pairs break, and it says so.
void shake_overflow(Cq& cq);

}  // namespace weft::ibverbs
