// How a busy connection gets a ring: its ends find each other, count what TCP has carried, and set
// the options that a ring needs.
//
// Threads: any.
#pragma once

#include "sockets/granted/ring_lane.h"

namespace weft::sockets::granted::join {

// The connection of this number is busy: a lane for it, and an entry in the registry. Where that
// can't be, the number is left as it is.
void begin(int fd, Number& number);
// Goes on with a lane that is not settled, at the start of a call on it that is counted as `call`.
void go_on(Lane& lane, int fd, const Number& number, Call call);

}  // namespace weft::sockets::granted::join
