// `weft run --shake`: stands between the handles of a program and the engine's queues, and lets
// them do what the specifications allow and Weft normally does not do. The decisions are made in
// src/shake. Off, a handle leads to the engine's object itself, and nothing of this runs.
//
// Any thread.
#pragma once

#include <weft/queue_pair.h>

#include <cstdint>
#include <memory>

#include "ibverbs/objects.h"
#include "shake/shake_plan.h"

namespace weft::ibverbs {

// The value of WEFT_SHAKE; null: off. Set when the library is loaded.
extern constinit const shake::Plan* shaking;
[[nodiscard]] inline bool shakes(shake::Effect effect) {
  return shaking != nullptr && shaking->has(effect);
}

// Puts what shakes it into a new object, whose engine is there.
void shake(Cq& cq, std::uint32_t depth);
void shake(Srq& srq, std::uint32_t depth);
// `asked`: as the program asked for it. Changes `granted`, which the program gets to see.
void shake(Qp& qp, const ibv_qp_cap& asked, ibv_qp_cap& granted);
// How the engine places what a new queue pair receives.
void shake(QpOptions& options);

// The queue pair is being destroyed: its completions are gone, and nothing here holds the engine's.
void shake_destroyed(Qp& qp);
// The queue pair was moved to RESET: its requests and their completions are gone.
void shake_emptied(Qp& qp);
// The program took an event of the completion queue: it has what that is about.
void shake_event(Cq& cq);
// The program took an asynchronous event. Those of a queue pair tell that its completions are there
// (IBV_EVENT_QP_LAST_WQE_REACHED).
void shake_async_event();
// From now on the key opens this memory; and it is dead.
void shake_key(const Mr& mr);
void shake_dead_key(std::uint32_t lkey);

}  // namespace weft::ibverbs
