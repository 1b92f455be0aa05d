// IWARP mode: sockets of kind kDirect, which Weft's librdmacm.so.1 serves inside the program.
//
// Threads: any. None of these may be called with the table's mutex held, but for accept(): the
// engine's own threads make socket calls, too, and those take it.
#pragma once

#include <poll.h>

#include "rsockets/rs_seen.h"
#include "sockets/preload/socket_table.h"
#include "sockets/real_calls.h"

namespace weft::sockets::direct {

// WEFT_MODE of setsockopt() and getsockopt(), with their errnos.
[[nodiscard]] int set_mode(int fd, const void* value, socklen_t length);
[[nodiscard]] int get_mode(int fd, void* value, socklen_t* length);

// connect(2) of a fresh socket with the mode set: it is kDirect afterwards, whatever comes of it.
[[nodiscard]] int connect(int fd, const sockaddr* address, socklen_t length);
// An accepted connection that began with an MPA Request, at a listener with the mode set: kDirect
// afterwards, or ended. Lets go of `lock`, the table's.
void accept(int fd, table::Lock& lock);

// --- for sockets of kind kDirect ---

// The data calls, options and names.
[[nodiscard]] const RealCalls& calls();
int close(int fd);
[[nodiscard]] int fcntl(int fd, int command, long value);
// `to`, which the kernel made a copy of `from`, is the same socket. False with errno.
[[nodiscard]] bool copy(int from, int to);
// ppoll(2) with such sockets among others; `seen` as of weft_rsocket_poll().
[[nodiscard]] int poll(pollfd* fds, rsockets::RsSeen* seen, nfds_t count, const timespec* limit,
                       const sigset_t* mask);

}  // namespace weft::sockets::direct
