// Process-wide state in a child of fork().
#pragma once

namespace weft::ibverbs {

// Runs `forget` in a child after fork, before fork() returns there. For process-wide state that
// holds objects of the parent, or a lock that another thread of it may hold. Any thread, any number
// of times.
void on_fork_child(void (*forget)());

}  // namespace weft::ibverbs
