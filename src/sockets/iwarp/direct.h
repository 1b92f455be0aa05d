// IWARP mode (<weft/sockets.h>): how a socket becomes one of kind kDirect, and ends.
//
// Threads: any. None of these may be called with the table's mutex held, but for accept(): the
// engine's own threads make socket calls, too, and those take it.
#pragma once

#include <sys/socket.h>

#include "sockets/iwarp/iwarp_table.h"

namespace weft::sockets::iwarp::direct {

// connect(2) of a fresh socket with the mode set: it is kDirect afterwards, whatever comes of it.
[[nodiscard]] int connect(int fd, const sockaddr* address, socklen_t length);
// An accepted connection that began with an MPA Request, at a listener with the mode set: kDirect
// afterwards, or ended. Lets go of `lock`, the table's.
void accept(int fd, table::Lock& lock);

int close(int fd);

}  // namespace weft::sockets::iwarp::direct
