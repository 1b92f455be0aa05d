// A transport on a bad link: it wraps another, and what it sends leaves later, slower, changed, or
// not at all (<weft/link.h>). For tests.
//
// As Transport: one thread at a time. A thread of its own, for all of them, sends what is due; it
// lives to the end of the process, which waits for what is under way.
#pragma once

#include <weft/link.h>

#include <memory>

#include "io/transport.h"

namespace weft::io {

// How a stream uses its transport. One that is movable may have been told to stay on TCP.
struct LinkUse {
  bool crc = false;
  bool stays_on_tcp = false;
};
// Leaves the transport as it is where the link is good, or the rules can have no effect: it may
// leave TCP. Throws std::bad_alloc, and has changed nothing then.
void put_on_bad_link(std::unique_ptr<Transport>& transport, LinkTrouble trouble, LinkUse use);

}  // namespace weft::io
