// Finds out what the first octets of a connection ask for that a listener in IWARP mode accepted.
//
// Threads: any.
#pragma once

#include "sockets/iwarp/iwarp_table.h"

namespace weft::sockets::iwarp {

// Looks at the first octets of a connection that is kUndecided, and its kind afterwards.
// `to_write`: the program is about to speak first, so that the peer must have asked by now.
Kind resolve(int fd, bool to_write);
// Waits until such a connection says something. False with errno.
bool await_opening(int fd, bool wait);

}  // namespace weft::sockets::iwarp
