// Short turns on a core for a thread that has little to do each time, but soon.
#pragma once

namespace weft::os {

// Asks the scheduler to let the calling thread run in turns of 0.1 ms. A thread that asks for short
// turns need not wait until that of another is over when it wakes: Linux gives the core to the turn
// that ends first (EEVDF, since 6.12; sched_setattr(2), sched_runtime). It gets no larger share of
// the core by that. Nothing changes where the kernel is older, or the thread has a real-time or
// deadline policy.
void ask_for_short_turns();

}  // namespace weft::os
