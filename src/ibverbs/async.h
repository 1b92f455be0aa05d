// Asynchronous events: from the engine to the context whose object they are about.
#pragma once

#include <weft/device.h>

#include <memory>
#include <vector>

#include "check/observer.h"
#include "ibverbs/objects.h"
#include "ibverbs/registry.h"

namespace weft::ibverbs {

// The engine's own object, also behind a shaken one (shaken.h).
inline const QueuePair* engine_behind(const Qp& qp) { return qp.engine.get(); }
inline const CompletionQueue* engine_behind(const Cq& cq) { return cq.delivers_to.get(); }
inline const SharedReceiveQueue* engine_behind(const Srq& srq) { return srq.takes_from.get(); }

// The adapter object of the engine object that an event is about, for the sink. Nothing when its
// handle is destroyed: the engine may keep its object longer, and another may live at that address
// by now.
//
// The engine holds locks, and its object is there. No share of it is taken: a program that lets go
// of its own meanwhile would leave us the last one, and the end of a queue pair waits for those
// locks.
template <class T, class Engine>
Pin<T> adapter_of(const std::weak_ptr<Engine>& weak, const void* object) {
  if (weak.expired()) return {};
  const auto* const engine = static_cast<const Engine*>(object);
  Pin<T> adapter = registry::find<T>(engine->context());
  return adapter && engine_behind(*adapter) == engine ? std::move(adapter) : Pin<T>{};
}

// The engine's sink. Runs on the engine's threads: routes and returns.
void deliver_async(const AsyncEvent& event);

// Queues an event (ibv_event_type) of this object, or of the device where it is null, that the
// engine knows nothing of (`weft run --faults`). Any thread.
void raise_async(int event, const void* handle);
// The last such event of the port said that it is down.
[[nodiscard]] bool port_is_down();

// Those that nobody has read. Not those that tell of what goes well.
[[nodiscard]] std::vector<check::Unread::Event> unread_async(Context& context);

// For the destroy calls, while the handle is still in the registry (it has to be, for the
// acknowledgments): from here on no event of the object is queued; those not yet fetched are
// dropped; waits until those that were are acknowledged.
void settle_async(Context& context, AsyncTarget& target, const void* handle);

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
