// Sockets noted by close_in_child() are closed in the child by the fork itself, so that a child
// that lives on does not keep connections of its parent open.
#pragma once

#include "os/fork.h"

namespace weft::io {

// From now on fork() closes `fd` in the child; until forget_in_child(fd), which must come before
// the descriptor is closed here. No lock, any thread. Descriptors above kForkFdsMax are left alone.
inline constexpr int kForkFdsMax = 1 << 20;
void close_in_child(int fd) noexcept;
void forget_in_child(int fd) noexcept;

}  // namespace weft::io
