// Finds out what a descriptor is, and what an accepted connection's first octets ask for.
//
// Threads: any.
#pragma once

#include "sockets/preload/preload_setup.h"
#include "sockets/preload/socket_table.h"

namespace weft::sockets {

// A number that is not known yet: looks what it is.
Kind classify(int fd);
// From now on such a number is the kernel's, without a look.
void stop_classifying();
// A socket whose connection has come to be meanwhile goes to RDMA, if it shall.
void advance_connecting(int fd);
// An accepted connection that is about to be inherited by a program which may not be under Weft:
// decides it as decide(fd, true) does, without touching `fd` or the table. No channel: it is TCP.
[[nodiscard]] Opened open_undecided(int fd);

enum class Verdict { kDecided, kNotYet };
// Looks at the first octets of an accepted connection. `to_write`: the program is about to speak
// first, so that the peer must have asked by now.
Verdict decide(int fd, bool to_write);
// Kind after what can be decided now has been decided. `to_write` as above.
Kind resolve(int fd, bool to_write);
// Waits until an undecided connection says something. False with errno.
bool await_opening(int fd, bool wait);
void begin_listening(int fd);
void note_fresh(int fd);

}  // namespace weft::sockets
