// Asynchronous events: from the engine to the context whose object they are about.
#pragma once

#include <weft/device.h>

#include "ibverbs/objects.h"

namespace weft::ibverbs {

// The engine's sink. Runs on the engine's threads: routes and returns.
void deliver_async(const AsyncEvent& event);

// For the destroy calls, while the handle is still in the registry (it has to be, for the
// acknowledgments): from here on no event of the object is queued; those not yet fetched are
// dropped; waits until those that were are acknowledged.
void settle_async(Context& context, AsyncTarget& target);

// Points `target` at the counter, mutex and condition of an object's public struct.
template <class Public>
void init_async(AsyncTarget& target, Public& pub, std::uint32_t& completed) {
  pthread_mutex_init(&pub.mutex, nullptr);
  pthread_cond_init(&pub.cond, nullptr);
  target.mutex = &pub.mutex;
  target.cond = &pub.cond;
  target.completed = &completed;
}

}  // namespace weft::ibverbs
