// The end of access to memory, for threads that have to wait for it. Any thread.
//
// A thread that is copying into or out of a region holds a pin, and may be preempted there for as
// long as the scheduler likes. So nobody spins for it, or waits for it with the table's mutex held:
// other threads go on registering, binding and deregistering meanwhile.
#pragma once

#include <weft/result.h>

#include "os/lock.h"
#include "verbs/memory_of_device.h"
#include "wire/ddp.h"

namespace weft::verbs {

// Ends all access under `stag`; its slot stays. The mutex is let go of while the thread waits,
// and held again when this returns: what the caller looked up before may be gone.
// A lane may wait in its turn, as long as neither the thread nor the lane's transport has a pin on
// this memory: nobody else would let go of that.
//   kNotFound   no such slot, or the key is not the current one; or its owner has removed it
//               meanwhile
//   kBusy       windows are bound to it: nothing changed
[[nodiscard]] Status end_access(MemoryOfDevice& memory, Stag stag) WEFT_REQUIRES(memory.mutex);

// The same for a region that goes, and for all windows that are bound to it. Gives back its slot.
void end_region(MemoryOfDevice& memory, Stag region) WEFT_REQUIRES(memory.mutex);

}  // namespace weft::verbs
