#include "os/epoll.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "os/clock.h"

namespace weft::os {

namespace {
std::atomic<bool> g_old_kernel{false};
}  // namespace

void epoll_pretend_old_kernel(bool old) noexcept { g_old_kernel.store(old); }

int epoll_sleep(int epoll, std::span<epoll_event> events, Duration limit) {
  const int room = static_cast<int>(events.size());
  if (limit.count() <= 0) return epoll_wait(epoll, events.data(), room, limit.count() < 0 ? -1 : 0);
  if (!g_old_kernel.load(std::memory_order_relaxed)) {
    const timespec t = timespec_of(limit.count());
    const int count = epoll_pwait2(epoll, events.data(), room, &t, nullptr);
    // EPERM: a sandbox that does not know the call.
    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return count;
    g_old_kernel.store(true, std::memory_order_relaxed);
  }
  constexpr std::int64_t kNsPerMs = 1'000'000;
  constexpr std::int64_t kHourMs = 3'600'000;
  const std::int64_t ms = std::min((limit.count() + kNsPerMs - 1) / kNsPerMs, kHourMs);
  return epoll_wait(epoll, events.data(), room, static_cast<int>(ms));
}

int poll_sleep(std::span<pollfd> descriptors, Duration limit) {
  const timespec t = timespec_of(limit.count());
  return ppoll(descriptors.data(), descriptors.size(), limit.count() < 0 ? nullptr : &t, nullptr);
}

}  // namespace weft::os
