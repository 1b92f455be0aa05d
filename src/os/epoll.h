// Sleeping in epoll with a limit in nanoseconds, on kernels old and new.
#pragma once

#include <poll.h>
#include <sys/epoll.h>

#include <span>

#include "base/time.h"

namespace weft::os {

// epoll_wait() until `limit` has passed; negative: without a limit. Where the kernel lacks
// epoll_pwait2 (before 5.11, or filtered), milliseconds, rounded up.
// A cancellation point.
//   the number of events, or -1 with errno
[[nodiscard]] int epoll_sleep(int epoll, std::span<epoll_event> events, Duration limit);

// ppoll() until `limit` has passed; negative: without a limit. A cancellation point.
//   the number of descriptors with events, or -1 with errno
[[nodiscard]] int poll_sleep(std::span<pollfd> descriptors, Duration limit);

// As if the kernel lacked epoll_pwait2. For tests.
void epoll_pretend_old_kernel(bool old) noexcept;

}  // namespace weft::os
