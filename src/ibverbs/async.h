// Asynchronous events: from the engine to the context whose object they are about.
#pragma once

#include <weft/device.h>

#include "ibverbs/objects.h"

namespace weft::ibverbs {

// The engine's sink. Runs on the engine's threads: routes and returns.
void deliver_async(const AsyncEvent& event);

// For the destroy calls, while the handle is still in the registry: drops the events not yet
// fetched and waits until those that were are acknowledged.
void settle_async(Cq& cq);
void settle_async(Qp& qp);
void settle_async(Srq& srq);

}  // namespace weft::ibverbs
