// Descriptors noted by close_in_child() are closed in the child by the fork itself, so that a child
// that lives on does not keep connections of its parent open. Each library has a list of its own.
#pragma once

#include <pthread.h>

#include "os/descriptor_set.h"

namespace weft::os {

inline constexpr int kForkFdsMax = 1 << 20;

namespace detail {
inline DescriptorSet<kForkFdsMax> g_close_in_child;
inline const int kCloseError =
    pthread_atfork(nullptr, nullptr, [] { g_close_in_child.close_all(); });
}  // namespace detail

// From now on fork() closes `fd` in the child; until forget_in_child(fd), which must come before
// the descriptor is closed here. No lock, any thread. Descriptors above kForkFdsMax are left alone.
inline void close_in_child(int fd) noexcept {
  if (detail::kCloseError == 0) detail::g_close_in_child.add(fd);
}
inline void forget_in_child(int fd) noexcept { detail::g_close_in_child.remove(fd); }

}  // namespace weft::os
