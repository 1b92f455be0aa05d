// Sockets that a thread has just read from and is going to ask epoll about. A server that is busy
// finds their next octets by looking into the rings: the writer sends no signal, and the kernel is
// not asked.
//
// Such a socket is *hot*. It is in the list of its thread, and its pair says "readable" although it
// may not be: the signal of the last octets is left in it. So nobody who waits in the kernel for a
// level sleeps over octets that come; at worst he looks for nothing, once. Who waits for an edge
// would, so a socket that anybody watches so is not hot, nor one whose instance is watched by
// another. (io_uring's polls of many shots are edges that we can't see: docs/sockets.md.) Before
// the thread itself waits in the kernel, all sockets of the list tell the truth again
// (Channel::settle) and leave it.
//
// That is for what busy servers do: one thread waits for the instance, which watches the socket
// level-triggered; and no other number, process or instance has it. All others are told by the
// kernel, for each message.
//
// Threads: each has its own list. What watches a socket is noted under the table's mutex, and read
// without.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "sockets/preload/socket_table.h"

namespace weft::sockets::hot {

// Before a read from `channel`, which may `wait` for octets: whether this thread looks after it, so
// that its pair need not tell the truth afterwards. Then, and if the read returned `got` octets, 0
// or -1, note_read().
[[nodiscard]] bool looks_after(const Channel& channel, bool wait);
void note_read(Channel& channel, ssize_t got);

// The calls of epoll.
// With the mutex: what watches the socket of `conn`, which has a channel, has changed.
void note_watchers(const Conn& conn);
// The instance watches a socket of ours, or one that may become so.
void note_instance(int epoll);
// An instance watches `fd`, which is none of our sockets: perhaps another instance.
void note_watched(int fd);
// This thread is about to wait for `epoll`. False: as the kernel does it, which is also what the
// caller may ask for.
[[nodiscard]] bool begin_wait(int epoll, bool as_the_kernel);
// Stores the events of the list's sockets, and now and then the kernel's events of others. 0: there
// are none, and this thread may sleep in the kernel. REQUIRES: begin_wait() was true; `most` > 0.
[[nodiscard]] int take(epoll_event* events, int most, bool may_look);

// This thread is about to wait in another way.
void settle_all();
// The number, perhaps an instance's, is about to be closed or to mean something else.
void forget(int fd);
// The only thread of a child of fork().
void in_child();

}  // namespace weft::sockets::hot
