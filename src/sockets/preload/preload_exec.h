// exec, and children of vfork(), which have the memory of their parent.
//
// Threads: any.
#pragma once

#include "sockets/preload/socket_table.h"

namespace weft::sockets {

// This process is a child of vfork(): its memory is its parent's, whose table must not learn of
// what it does to its descriptors.
[[nodiscard]] bool borrowing();
// The memory is this process's own: it has just begun, or was made by fork().
void own_memory();
// In a child of vfork(): `fd` stands for `conn` from now on, or for nothing of ours (null).
void note_borrowed(int fd, const Conn* conn);
// The connection behind a number, as this process sees it: one that has a channel, or is not
// decided yet.
[[nodiscard]] const Conn* conn_now(int fd);

}  // namespace weft::sockets
