// Where the ends of a connection find each other: a table in memory that the processes of one user
// share, /dev/shm/weft-sockets-UID-3 (3: of its layout).
//
// An end posts the addresses and ports of its connection, with the cookie of its network namespace.
// The second end to come makes the segment, and leaves its id for the first. Nobody waits: an end
// whose peer does not come stays with TCP. A process of the same user can write nonsense here; it
// gains no more than that a connection stays TCP or ends up with a segment of that process's, which
// the counts of both ends have to agree with before it is used.
//
// Threads: any.
#pragma once

#include "sockets/granted/rendezvous_post.h"

namespace weft::sockets::granted::rendezvous {

// The caller blocks signals, after kPeer until give().
[[nodiscard]] Found post(const Post& post, Ticket& ticket);
// After kPeer, always. No lock.
void give(const Ticket& ticket, const Made& made);
// Tells what has become of a posted entry. No lock, no system call.
[[nodiscard]] Answer look(const Ticket& ticket, Made& made);
// Removes it, at once.
void withdraw(const Ticket& ticket);

}  // namespace weft::sockets::granted::rendezvous
