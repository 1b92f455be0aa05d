// Weft's librdmacm.so.1 inside the program: its r* functions serve the sockets of kind kDirect
// (IWARP mode) under their own numbers, and call the C library through this one.
//
// Threads: any. None of these may be called with the table's mutex held: the engine's own threads
// make socket calls, too, and those take it.
#pragma once

#include <poll.h>

#include "rsockets/rs_seen.h"
#include "sockets/real_calls.h"

namespace weft::sockets::iwarp::direct {

// The functions of the library. Those of `inner` are for a thread that is Inside already.
struct Library {
  RealCalls inner;  // the r* functions
  RealCalls calls;  // the same, entered
  int (*adopt)(int);
  int (*alias)(int, int);
  int (*answer)(int);
  int (*close)(int);
  int (*poll)(pollfd*, rsockets::RsSeen*, nfds_t, const timespec*, const sigset_t*);
  int (*fcntl)(int, int, ...);
  bool whole = true;
};

// Loads it at the first call.
[[nodiscard]] const Library& library();

// --- for sockets of kind kDirect ---

// The data calls, options and names.
[[nodiscard]] const RealCalls& calls();
[[nodiscard]] int fcntl(int fd, int command, long value);
// `to`, which the kernel made a copy of `from`, is the same socket. False with errno.
[[nodiscard]] bool copy(int from, int to);
// ppoll(2) with such sockets among others; `seen` as of weft_rsocket_poll().
[[nodiscard]] int poll(pollfd* fds, rsockets::RsSeen* seen, nfds_t count, const timespec* limit,
                       const sigset_t* mask);

}  // namespace weft::sockets::iwarp::direct
