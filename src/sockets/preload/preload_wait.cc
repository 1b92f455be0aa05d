// poll, select and epoll. The waiting is the kernel's; before it the sockets are made to tell the
// truth, and after it a blocking program is kept from reading where there is nothing.
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <ctime>

#include "os/clock.h"
#include "sockets/preload/preload.h"
#include "sockets/preload/preload_decide.h"
#include "sockets/preload/preload_epoll.h"
#include "sockets/preload/preload_hot.h"
#include "sockets/preload/preload_members.h"

namespace weft::sockets {
namespace {

// Before a wait. True: there are octets to read, and the pair may not show it.
bool prepare(int fd) {
  const Kind kind = resolve(fd, false);
  if (kind != Kind::kChannel) return false;
  const Use use(fd);
  if (use.channel() == nullptr) return false;
  use.channel()->settle();
  return use.channel()->unread() > 0;
}

// After a wait that found `fd` readable: whether a read has something to say. A connection that is
// decided only now may have nothing yet.
bool readable(int fd) {
  const Kind before = table::kind_of(fd);
  if (before != Kind::kChannel && before != Kind::kUndecided) return true;
  if (resolve(fd, false) == Kind::kUndecided) return false;
  const Use use(fd);
  return use.channel() == nullptr || use.channel()->really_readable();
}

// Turns the kernel's events for a pair whose other end has gone into those that TCP has.
short truth_of_end(const pollfd& one) {
  const Use use(one.fd);
  short bits = one.revents;
  if (use.channel() == nullptr) return bits;
  if (!use.channel()->broken()) bits = static_cast<short>(bits & ~POLLERR);
  if (use.channel()->has_error()) bits |= POLLERR;
  if (!use.channel()->hung_up()) bits = static_cast<short>(bits & ~POLLHUP);
  // A caller that asked for nothing else would wait for it without sleeping.
  return bits != 0 ? bits : POLLHUP;
}

bool interesting(int fd) {
  const Kind kind = table::kind_of(fd);
  return (kind == Kind::kUnknown ? classify(fd) : kind) > Kind::kListener;
}

bool any_direct(const pollfd* fds, nfds_t count) {
  return std::any_of(fds, fds + count, [](const pollfd& one) {
    return one.fd >= 0 && resolve(one.fd, false) == Kind::kDirect;
  });
}

constexpr short kIn = POLLIN | POLLRDNORM;

// poll(2) with a limit in nanoseconds, -1: none.
int wait_for(pollfd* fds, nfds_t count, std::int64_t limit_ns, const sigset_t* mask) {
  const bool not_kernels = epolls::any() || any_direct(fds, count);
  bool ours = false;
  bool ready = false;
  for (nfds_t i = 0; i < count; ++i) {
    if (fds[i].fd < 0 || !interesting(fds[i].fd)) continue;
    ours = true;
    if (prepare(fds[i].fd) && (fds[i].events & kIn) != 0) ready = true;
  }
  const std::int64_t end = limit_ns < 0 ? -1 : weft::os::monotonic_ns() + limit_ns;
  for (;;) {
    const std::int64_t left = ready     ? 0
                              : end < 0 ? -1
                                        : std::max<std::int64_t>(end - weft::os::monotonic_ns(), 0);
    const timespec limit = os::timespec_of(left);
    int found = not_kernels ? epolls::poll(fds, count, left, mask)
                            : real().ppoll(fds, count, left < 0 ? nullptr : &limit, mask);
    if (found < 0 || !ours) return found;
    bool spurious = false;
    for (nfds_t i = 0; i < count; ++i) {
      if (fds[i].fd < 0 || !interesting(fds[i].fd)) continue;
      const short before = fds[i].revents;
      if ((before & (POLLERR | POLLHUP)) != 0) {
        fds[i].revents = truth_of_end(fds[i]);
        continue;
      }
      if ((fds[i].events & kIn) != 0 && (before & kIn) == 0 && ready) {
        const Use use(fds[i].fd);
        if (use.channel() != nullptr && use.channel()->unread() > 0) {
          fds[i].revents = static_cast<short>(before | (fds[i].events & kIn));
        }
      } else if ((before & kIn) != 0 && (before & (POLLHUP | POLLERR)) == 0 &&
                 !readable(fds[i].fd)) {
        fds[i].revents = static_cast<short>(before & ~kIn);
        spurious = true;
      }
      found += (fds[i].revents != 0 ? 1 : 0) - (before != 0 ? 1 : 0);
    }
    if (found > 0 || !spurious) return found;
    if (end >= 0 && weft::os::monotonic_ns() >= end) return 0;
    ready = false;
  }
}

struct Sets {
  fd_set* read;
  fd_set* write;
  fd_set* except;
};

bool any_interesting(int count, const Sets& sets) {
  hot::settle_all();
  if (epolls::any()) return true;
  for (int fd = 0; fd < count && fd < FD_SETSIZE; ++fd) {
    const bool asked = (sets.read != nullptr && FD_ISSET(fd, sets.read)) ||
                       (sets.write != nullptr && FD_ISSET(fd, sets.write));
    if (asked && interesting(fd)) return true;
  }
  return false;
}

// select(2) by poll(2), for sets with a socket of ours.
int select_by_poll(int count, Sets sets, std::int64_t limit_ns, const sigset_t* mask) {
  pollfd fds[FD_SETSIZE];
  nfds_t used = 0;
  for (int fd = 0; fd < count && fd < FD_SETSIZE; ++fd) {
    short events = 0;
    if (sets.read != nullptr && FD_ISSET(fd, sets.read)) events |= POLLIN;
    if (sets.write != nullptr && FD_ISSET(fd, sets.write)) events |= POLLOUT;
    if (sets.except != nullptr && FD_ISSET(fd, sets.except)) events |= POLLPRI;
    if (events != 0) fds[used++] = {fd, events, 0};
  }
  const int found = wait_for(fds, used, limit_ns, mask);
  if (found < 0) return found;
  for (fd_set* set : {sets.read, sets.write, sets.except}) {
    if (set != nullptr) FD_ZERO(set);
  }
  int bits = 0;
  for (nfds_t i = 0; i < used; ++i) {
    const short got = fds[i].revents;
    if ((got & POLLNVAL) != 0) return fail_with(EBADF);
    if ((fds[i].events & POLLIN) != 0 && (got & (POLLIN | POLLHUP | POLLERR)) != 0) {
      FD_SET(fds[i].fd, sets.read);
      ++bits;
    }
    if ((fds[i].events & POLLOUT) != 0 && (got & (POLLOUT | POLLERR)) != 0) {
      FD_SET(fds[i].fd, sets.write);
      ++bits;
    }
    if ((fds[i].events & POLLPRI) != 0 && (got & POLLPRI) != 0) {
      FD_SET(fds[i].fd, sets.except);
      ++bits;
    }
  }
  return bits;
}

// A shorter limit leaves no time to look before the kernel is asked.
constexpr std::int64_t kWorthALook = 100'000;

// `kernels`: the call as the program made it.
template <class Kernels>
int wait_for_events(int epoll, epoll_event* events, int most, std::int64_t limit_ns,
                    const sigset_t* mask, Kernels kernels) {
  const bool as_the_kernel =
      mask != nullptr || events == nullptr || most <= 0 || epolls::any() || epolls::to_clean();
  if (hot::begin_wait(epoll, as_the_kernel)) {
    const bool may_look = limit_ns < 0 || limit_ns >= kWorthALook;
    if (const int found = hot::take(events, most, may_look); found > 0) return found;
  }
  if (!epolls::any()) {
    const std::int64_t begin = limit_ns > 0 ? weft::os::monotonic_ns() : 0;
    const int found = kernels();
    if (found <= 0 || !epolls::to_clean()) return found;
    const int count = epolls::clean(epoll, events, found);
    if (count > 0) return count;
    if (limit_ns > 0)
      limit_ns = std::max<std::int64_t>(limit_ns - (weft::os::monotonic_ns() - begin), 0);
  }
  return epolls::wait(epoll, events, most, limit_ns, mask);
}

// Keeps account of who watches a socket: it may be replaced, or become hot (preload_hot.h).
void note_watcher(int epoll, int operation, int fd, const epoll_event* event) {
  const table::Lock lock;
  Conn* conn = table::conn_of(fd);
  if (conn == nullptr) return;
  hot::note_instance(epoll);
  int at = 0;
  while (at < conn->watcher_count && conn->watchers[at].epoll != epoll) ++at;
  if (conn->direct && table::kind_of(fd) == Kind::kUndecided) epolls::g_early = true;
  if (operation == EPOLL_CTL_DEL) {
    if (at < conn->watcher_count) conn->watchers[at] = conn->watchers[--conn->watcher_count];
  } else if (at == Conn::kWatchers) {
    conn->watchers_lost = true;
  } else {
    if (at == conn->watcher_count) ++conn->watcher_count;
    conn->watchers[at] = {epoll, *event};
  }
  if (conn->channel != nullptr) hot::note_watchers(*conn);
}

}  // namespace
}  // namespace weft::sockets

using namespace weft::sockets;

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_EXPORT int poll(pollfd* fds, nfds_t count, int timeout) {
  hot::settle_all();
  bool ours = epolls::any();
  for (nfds_t i = 0; i < count && !ours; ++i) ours = fds[i].fd >= 0 && interesting(fds[i].fd);
  if (!ours) return real().poll(fds, count, timeout);
  return wait_for(fds, count, timeout < 0 ? -1 : timeout * 1000000LL, nullptr);
}

WEFT_EXPORT int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  hot::settle_all();
  bool ours = epolls::any();
  for (nfds_t i = 0; i < count && !ours; ++i) ours = fds[i].fd >= 0 && interesting(fds[i].fd);
  if (!ours) return real().ppoll(fds, count, timeout, mask);
  return wait_for(fds, count, timeout == nullptr ? -1 : weft::os::ns_of(*timeout), mask);
}

WEFT_EXPORT int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t room) {
  if (room / sizeof *fds < count) abort();
  return poll(fds, count, timeout);
}

WEFT_EXPORT int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout,
                            const sigset_t* mask, size_t room) {
  if (room / sizeof *fds < count) abort();
  return ppoll(fds, count, timeout, mask);
}

WEFT_EXPORT int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  const Sets sets{read, write, except};
  if (!any_interesting(count, sets)) return real().select(count, read, write, except, timeout);
  if (timeout == nullptr) return select_by_poll(count, sets, -1, nullptr);
  const std::int64_t limit = timeout->tv_sec * 1000000000LL + timeout->tv_usec * 1000LL;
  const std::int64_t begin = weft::os::monotonic_ns();
  const int found = select_by_poll(count, sets, limit, nullptr);
  const int error = errno;
  const std::int64_t left = std::max<std::int64_t>(limit - (weft::os::monotonic_ns() - begin), 0);
  timeout->tv_sec = left / 1000000000;
  timeout->tv_usec = left % 1000000000 / 1000;
  errno = error;
  return found;
}

WEFT_EXPORT int pselect(int count, fd_set* read, fd_set* write, fd_set* except,
                        const timespec* timeout, const sigset_t* mask) {
  const Sets sets{read, write, except};
  if (!any_interesting(count, sets)) {
    return real().pselect(count, read, write, except, timeout, mask);
  }
  return select_by_poll(count, sets, timeout == nullptr ? -1 : weft::os::ns_of(*timeout), mask);
}

WEFT_EXPORT int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  Kind kind = table::kind_of(fd);
  if (kind == Kind::kUnknown) kind = classify(fd);
  if (kind == Kind::kConnecting || kind == Kind::kUndecided) kind = resolve(fd, false);
  if (kind == Kind::kDirect) return epolls::control(epoll, operation, fd, event);
  // Before: the outer instance may be asked at once.
  if (kind == Kind::kPlain && operation != EPOLL_CTL_DEL) hot::note_watched(fd);
  const int result = real().epoll_ctl(epoll, operation, fd, event);
  if (result != 0 || kind < Kind::kFresh || kind == Kind::kInternal) return result;
  if (kind != Kind::kListener) note_watcher(epoll, operation, fd, event);
  if (kind == Kind::kChannel && operation != EPOLL_CTL_DEL) {
    const Use use(fd);
    if (use.channel() == nullptr) return result;
    use.channel()->mirror();
  }
  return result;
}

WEFT_EXPORT int epoll_pwait(int epoll, epoll_event* events, int most, int timeout,
                            const sigset_t* mask) {
  const std::int64_t limit = timeout < 0 ? -1 : timeout * 1000000LL;
  return wait_for_events(epoll, events, most, limit, mask,
                         [&] { return real().epoll_pwait(epoll, events, most, timeout, mask); });
}

WEFT_EXPORT int epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  return epoll_pwait(epoll, events, most, timeout, nullptr);
}

WEFT_EXPORT int epoll_pwait2(int epoll, epoll_event* events, int most, const timespec* timeout,
                             const sigset_t* mask) {
  const std::int64_t limit = timeout == nullptr ? -1 : weft::os::ns_of(*timeout);
  return wait_for_events(epoll, events, most, limit, mask,
                         [&] { return real().epoll_pwait2(epoll, events, most, timeout, mask); });
}
