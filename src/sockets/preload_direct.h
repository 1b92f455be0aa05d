// IWARP mode: sockets of kind kDirect, which Weft's librdmacm.so.1 serves inside the program.
//
// Threads: any. None of these may be called with the table's mutex held: the engine's own threads
// make socket calls, too, and those take it.
#pragma once

#include <poll.h>
#include <sys/select.h>

#include "sockets/real_calls.h"

namespace weft::sockets::direct {

// WEFT_MODE of setsockopt() and getsockopt(), with their errnos.
[[nodiscard]] int set_mode(int fd, const void* value, socklen_t length);
[[nodiscard]] int get_mode(int fd, void* value, socklen_t* length);

// connect(2) of a fresh socket with the mode set: it is kDirect afterwards, whatever comes of it.
[[nodiscard]] int connect(int fd, const sockaddr* address, socklen_t length);
// An accepted connection that began with an MPA Request, at a listener with the mode set: kDirect
// afterwards, or ended.
void accept(int fd, const sockaddr* peer);

// --- for sockets of kind kDirect ---

// The data calls, options and names.
[[nodiscard]] const RealCalls& calls();
int close(int fd);
[[nodiscard]] int fcntl(int fd, int command, long value);
// With such sockets among others.
[[nodiscard]] int poll(pollfd* fds, nfds_t count, int timeout);
[[nodiscard]] int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout);

}  // namespace weft::sockets::direct
