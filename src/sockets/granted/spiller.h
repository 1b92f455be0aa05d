// A thread that takes back octets which have lain in a ring unread for some milliseconds: their
// reader is busy, has stopped, or reads by calls that are not seen.
//
// It starts when this process first puts octets into a ring, blocks all signals, has no descriptor,
// and sleeps while no ring holds octets.
#pragma once

#include <cstdint>

#include "sockets/granted/ring_lane.h"

namespace weft::sockets::granted::spiller {

using Spill = void (*)(Lane& lane, std::int64_t now);
// Octets were put into a ring: see that the thread runs. It calls `spill` for those that stay, and
// for those that TCP had no room for. False: there can't be a thread.
[[nodiscard]] bool wake(Spill spill);
// Ends the thread, and waits until it has ended. It is not started again.
void stop();
// After fork(), in the child: it has no such thread.
void in_child();

}  // namespace weft::sockets::granted::spiller
