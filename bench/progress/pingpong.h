// Round trips, one at a time. All of it for the thread that owns the queue.
#pragma once

#include <functional>

#include "node.h"
#include "run.h"

namespace progress {

// The next message of the connection, the only one of its queue; with kLast if it bears it.
std::uint64_t await_message(Queue& queue, Link& link);

// Calls round(false) for so long, and counts and times it.
void ping(Histogram& histogram, double seconds, Tally& tally,
          const std::function<void(bool last)>& round);

// The same with a warm-up before and round(true) behind it. Reports half round trips.
void measure_ping(const Run& run, const std::function<void(bool last)>& round);

// One round trip, and the other side of them, until one is the last.
void ping_by_send(const Run& run, unsigned thread, Queue& queue, Link& link, bool last);
void answer_sends(const Run& run, unsigned thread, Queue& queue, Link& link);

}  // namespace progress
