// Sockets that a thread has just read from and is going to ask epoll about. A server that is busy
// finds their next octets by looking into the rings: the writer sends no signal, and the kernel is
// not asked.
//
// Such a socket is *hot*. It is in the list of its thread, and its pair says "readable" although it
// may not be: the signal of the last octets is left in it. So nobody who waits in the kernel, by
// whatever call, sleeps over octets that come; at worst he looks for nothing, once. Before the
// thread itself waits in the kernel, all sockets of the list tell the truth again
// (Channel::settle) and leave it.
//
// That is for what busy servers do: one thread waits for the instance, which watches the socket
// level-triggered; and no other number, process or instance has it. All others are
// told by the kernel, for each message.
//
// Threads: each has its own list. What watches a socket is noted under the table's mutex, and read
// without.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "sockets/table.h"

namespace weft::sockets::hot {

// Before a read from `channel`: whether this thread looks after it, so that its pair need not tell
// the truth afterwards. Then, and if the read returned `got` octets, 0 or -1, note_read().
[[nodiscard]] bool looks_after(const Channel& channel);
void note_read(Channel& channel, ssize_t got);

// The calls of epoll.
// With the mutex: what watches the socket of `conn`, which has a channel, has changed.
void note_watchers(const Conn& conn);
// Whether a list may have it: otherwise its pair has to tell the truth from now on.
[[nodiscard]] bool may_be_hot(const Channel& channel);
// This thread is about to wait for `epoll`: false: as the kernel does it.
[[nodiscard]] bool begin_wait(int epoll);
// What is ready of the list, and now and then what the kernel has to say of others. 0: nothing is,
// and this thread may sleep in the kernel.
[[nodiscard]] int take(epoll_event* events, int most, bool may_look);

// This thread is about to wait in another way.
void settle_all();
// The number, perhaps an instance's, is about to be closed or to mean something else.
void forget(int fd);
// The only thread of a child of fork().
void in_child();

}  // namespace weft::sockets::hot
