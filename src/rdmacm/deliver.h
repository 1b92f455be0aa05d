// From the engine's event to what programs read.
#pragma once

#include "rdmacm/cm.h"

namespace weft::rdmacm {

[[nodiscard]] inline bool is_request(const Event& event) {
  return event.is_raw && event.raw.type == ConnectionEvent::Type::kConnectRequest;
}

// First half, without the mutex: asks the engine what it has to be asked. A request gets its new id
// here. False: no descriptor or memory for that; the event is to be dropped.
[[nodiscard]] bool prepare(Event& event);

// `weft run --faults` has another event than this one, which says success, come about. The id is as
// after such an event, and its peer sees the connection break.
void inject(Event& event);

// Second half, for an event whose owner is alive: fills in event.pub.
void finish(Event& event) WEFT_REQUIRES(state().mutex);

}  // namespace weft::rdmacm
