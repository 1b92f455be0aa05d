// Which connections go over RDMA, and how a socket becomes the end of a channel.
//
// Threads: any.
#pragma once

#include "sockets/preload/socket_table.h"

namespace weft::sockets {

// The TOS octet of a SYN whose sender will ask for RDMA: a server that speaks first waits for it.
inline constexpr int kSynMark = 0x2c;

// A number that is not known yet: looks what it is.
Kind classify(int fd);
// From now on such a number is the kernel's, without a look.
void stop_classifying();
// A socket whose connection has come to be meanwhile goes to RDMA, if it shall.
void advance_connecting(int fd);
// A channel that is not in the place of any number yet.
struct Opened {
  Channel* channel = nullptr;
  int socket = -1;  // our end of the pair
  int flags = 0;    // of the TCP socket, before the relay made it its own: F_GETFL
  int error = 0;    // without a channel: why there is none, an errno
};
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

// Puts the channel in the place of the TCP socket `fd`: same number, flags and watchers. False: all
// stays as it was, and the channel is the caller's still.
bool replace_by_channel(int fd, const Opened& opened, Conn* conn) WEFT_REQUIRES(table::mutex());

}  // namespace weft::sockets
