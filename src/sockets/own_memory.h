// Whose memory this is: a child of vfork() shares it with its parent, but not the descriptor
// numbers.
//
// Threads: any.
#pragma once

namespace weft::sockets {

// In such a child: tables must not learn of what it does.
[[nodiscard]] bool borrowing();
// The process whose memory this is.
[[nodiscard]] int owner_of_memory();
// This process has memory of its own: at its start, and after fork().
void own_memory();

}  // namespace weft::sockets
