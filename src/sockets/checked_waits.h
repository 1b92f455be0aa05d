// Forms of poll and ppoll that know the length of the buffer: the C library's headers use them
// where they can. They are defined here, so each preload library includes this in the file that
// defines those.
#pragma once

#include <poll.h>

#include <cstdlib>

#include "sockets/real_calls.h"

WEFT_SEEN int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t room) {
  if (room / sizeof *fds < count) abort();
  return poll(fds, count, timeout);
}

WEFT_SEEN int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
                          size_t room) {
  if (room / sizeof *fds < count) abort();
  return ppoll(fds, count, timeout, mask);
}
