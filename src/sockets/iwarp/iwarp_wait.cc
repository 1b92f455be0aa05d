// poll, select and epoll. Where an rsocket is among what a program waits for, its library waits
// for all of it.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <algorithm>
#include <cassert>

#include "os/clock.h"
#include "sockets/checked_waits.h"
#include "sockets/iwarp/direct_library.h"
#include "sockets/iwarp/iwarp.h"
#include "sockets/iwarp/iwarp_decide.h"
#include "sockets/iwarp/iwarp_epoll.h"
#include "sockets/iwarp/iwarp_members.h"

namespace weft::sockets::iwarp {
namespace {

bool interesting(int fd) {
  const Kind kind = table::kind_of(fd);
  return kind != Kind::kOther && kind != Kind::kAsked && kind != Kind::kInternal;
}

// `fds` is not const: the C library says that poll(2) only writes there.
bool any_interesting(pollfd* fds, nfds_t count) {
  // Most programs have no number in the table at all.
  return table::in_use() && (epolls::any() || std::any_of(fds, fds + count, [](const pollfd& one) {
                               return one.fd >= 0 && interesting(one.fd);
                             }));
}

bool any_direct(const pollfd* fds, nfds_t count) {
  return std::any_of(fds, fds + count, [](const pollfd& one) {
    return one.fd >= 0 && resolve(one.fd, false) == Kind::kDirect;
  });
}

// After a wait that found `fd` readable: whether that may only be a question for Weft, which is
// answered now.
bool is_question(int fd) {
  return table::kind_of(fd) == Kind::kUndecided && resolve(fd, false) != Kind::kOther;
}

// poll(2) with a limit in nanoseconds, -1: none.
int wait_for(pollfd* fds, nfds_t count, std::int64_t limit_ns, const sigset_t* mask) {
  const std::int64_t end = limit_ns < 0 ? -1 : os::monotonic_ns() + limit_ns;
  for (;;) {
    const std::int64_t left = end < 0 ? -1 : std::max<std::int64_t>(end - os::monotonic_ns(), 0);
    const timespec limit = os::timespec_of(left);
    const bool by_library = epolls::any() || any_direct(fds, count);
    const int found = by_library ? epolls::poll(fds, count, left, mask)
                                 : real().ppoll(fds, count, left < 0 ? nullptr : &limit, mask);
    if (found <= 0) return found;
    int news = found;
    for (nfds_t i = 0; i < count; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0 || !is_question(fds[i].fd)) continue;
      fds[i].revents = 0;
      --news;
    }
    if (news > 0 || left == 0) return news;
  }
}

struct Sets {
  fd_set* read;
  fd_set* write;
  fd_set* except;
};

bool any_interesting(int count, const Sets& sets) {
  if (!table::in_use()) return false;
  if (epolls::any()) return true;
  for (int fd = 0; fd < count && fd < FD_SETSIZE; ++fd) {
    const bool asked = (sets.read != nullptr && FD_ISSET(fd, sets.read)) ||
                       (sets.write != nullptr && FD_ISSET(fd, sets.write));
    if (asked && interesting(fd)) return true;
  }
  return false;
}

// select(2) by poll(2), for sets with a number of ours.
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
    // An event was asked for only where there is a set to tell it in.
    assert((fds[i].events & POLLIN) == 0 || sets.read != nullptr);
    assert((fds[i].events & POLLOUT) == 0 || sets.write != nullptr);
    assert((fds[i].events & POLLPRI) == 0 || sets.except != nullptr);
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

// `kernels`: the call as the program made it.
template <class Kernels>
int wait_for_events(int epoll, epoll_event* events, int most, std::int64_t limit_ns,
                    const sigset_t* mask, Kernels kernels) {
  if (!epolls::any()) {
    const std::int64_t begin = limit_ns > 0 && epolls::to_clean() ? os::monotonic_ns() : 0;
    const int found = kernels();
    if (found <= 0 || !epolls::to_clean()) return found;
    const int count = epolls::clean(epoll, events, found);
    if (count > 0) return count;
    if (limit_ns > 0 && begin > 0) {
      limit_ns = std::max<std::int64_t>(limit_ns - (os::monotonic_ns() - begin), 0);
    }
  }
  return epolls::wait(epoll, events, most, limit_ns, mask);
}

// Keeps account of who watches a socket that may become an rsocket.
void note_watcher(int epoll, int operation, int fd, const epoll_event* event) {
  const table::Lock lock;
  Conn* conn = table::conn_of(fd);
  if (conn == nullptr) return;
  int at = 0;
  assert(conn->watcher_count >= 0 && conn->watcher_count <= Conn::kWatchers);
  while (at < conn->watcher_count && conn->watchers[at].epoll != epoll) ++at;
  if (table::kind_of(fd) == Kind::kUndecided) epolls::g_early = true;
  if (operation == EPOLL_CTL_DEL) {
    if (at < conn->watcher_count) conn->watchers[at] = conn->watchers[--conn->watcher_count];
  } else if (at == Conn::kWatchers) {
    conn->watchers_lost = true;
  } else {
    if (at == conn->watcher_count) ++conn->watcher_count;
    conn->watchers[at] = {epoll, *event};
  }
}

}  // namespace
}  // namespace weft::sockets::iwarp

using namespace weft::sockets;
using namespace weft::sockets::iwarp;

WEFT_SEEN int poll(pollfd* fds, nfds_t count, int timeout) {
  if (!any_interesting(fds, count)) return real().poll(fds, count, timeout);
  return wait_for(fds, count, timeout < 0 ? -1 : timeout * 1000000LL, nullptr);
}

WEFT_SEEN int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!any_interesting(fds, count)) return real().ppoll(fds, count, timeout, mask);
  return wait_for(fds, count, timeout == nullptr ? -1 : weft::os::ns_of(*timeout), mask);
}

WEFT_SEEN int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
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

WEFT_SEEN int pselect(int count, fd_set* read, fd_set* write, fd_set* except,
                      const timespec* timeout, const sigset_t* mask) {
  const Sets sets{read, write, except};
  if (!any_interesting(count, sets)) {
    return real().pselect(count, read, write, except, timeout, mask);
  }
  return select_by_poll(count, sets, timeout == nullptr ? -1 : weft::os::ns_of(*timeout), mask);
}

WEFT_SEEN int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  if (resolve(fd, false) == Kind::kDirect) return epolls::control(epoll, operation, fd, event);
  const int result = real().epoll_ctl(epoll, operation, fd, event);
  if (result == 0 && table::kind_of(fd) != Kind::kOther) note_watcher(epoll, operation, fd, event);
  return result;
}

WEFT_SEEN int epoll_pwait(int epoll, epoll_event* events, int most, int timeout,
                          const sigset_t* mask) {
  const std::int64_t limit = timeout < 0 ? -1 : timeout * 1000000LL;
  return wait_for_events(epoll, events, most, limit, mask,
                         [&] { return real().epoll_pwait(epoll, events, most, timeout, mask); });
}

WEFT_SEEN int epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  return epoll_pwait(epoll, events, most, timeout, nullptr);
}

WEFT_SEEN int epoll_pwait2(int epoll, epoll_event* events, int most, const timespec* timeout,
                           const sigset_t* mask) {
  const std::int64_t limit = timeout == nullptr ? -1 : weft::os::ns_of(*timeout);
  return wait_for_events(epoll, events, most, limit, mask,
                         [&] { return real().epoll_pwait2(epoll, events, most, timeout, mask); });
}
