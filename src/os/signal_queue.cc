#include "os/signal_queue.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>
#include <weft/system_error.h>

#include <algorithm>
#include <cerrno>

#include "os/clock.h"
#include "os/event_fd.h"

namespace weft::os {

Result<SignalFd> SignalFd::create() {
  Fd fd = make_event(0, 0);
  if (!fd) return fail(system_error(errno));
  return SignalFd(std::move(fd));
}

void SignalFd::set() noexcept { raise_event(fd_.get()); }

void SignalFd::clear() noexcept {
  std::uint64_t count = 0;
  iovec v{&count, sizeof count};
  // RWF_NOWAIT: an application that reads the descriptor behind our back must not make us sleep
  // here.
  if (calls::preadv2(fd_.get(), &v, 1, -1, RWF_NOWAIT) >= 0 || errno != EOPNOTSUPP) return;
  const NoCancel guard;
  pollfd p{fd_.get(), POLLIN, 0};
  if (poll(&p, 1, 0) == 1) static_cast<void>(!read(fd_.get(), &count, sizeof count));
}

bool SignalFd::non_blocking() const noexcept {
  const int flags = fcntl(fd_.get(), F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

Waiter::Waiter(int fd, Timeout timeout)
    : fd_(fd), until_(timeout ? now() + *timeout : Instant::never()) {}

Status Waiter::wait() {
  pollfd p{fd_, POLLIN, 0};
  timespec limit{};
  timespec* limit_at = nullptr;
  if (!until_.is_never()) {
    limit = timespec_of(std::max<std::int64_t>((until_ - now()).count(), 0));
    limit_at = &limit;
  } else {
    const int flags = fcntl(fd_, F_GETFL);
    if (flags < 0) return fail(Error::kBadState);
    if ((flags & O_NONBLOCK) != 0) limit_at = &limit;
  }
  const int ready = ppoll(&p, 1, limit_at, nullptr);
  if (ready > 0) return {};
  if (ready == 0) return fail(Error::kTimedOut);
  return fail(errno == EINTR ? Error::kAborted : system_error(errno));
}

}  // namespace weft::os
