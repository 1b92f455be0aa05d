// poll, select and epoll. The kernel's readiness, and that of the rings.
#include <poll.h>
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "os/clock.h"
#include "sockets/granted/granted.h"
#include "sockets/granted/watched.h"

namespace weft::sockets::granted {
namespace {

constexpr short kIn = POLLIN | POLLRDNORM;
// A busy thread asks the kernel for all other descriptors this often.
constexpr std::int64_t kAskKernelNs = 200'000;
thread_local SpinBudget t_look{};
thread_local std::int64_t t_asked = 0;  // when it asked last, of epoll_wait

// The lane of a number, if reads on it may find octets in a ring.
void add_number(Watched& watched, int fd, std::size_t tag) {
  Number* number = numbers::find(fd);
  if (number == nullptr || number->lane.load(std::memory_order_relaxed) == nullptr) return;
  const Use use(*number, &Lane::visiting);
  if (use.lane() != nullptr && use.lane()->counted_in.load()) watched.add(*use.lane(), tag);
}

struct Waited {
  int found = 0;       // what the kernel said last
  bool whole = false;  // it was asked to wait: nothing found means that the time is over
};

// Waits for a ring or the kernel: `kernel(true)` asks without waiting, `kernel(false)` waits.
// Octets in rings are left for the caller to find. They may be gone by then, as another thread's or
// taken back: then, unless `whole`, the caller waits again.
template <class Kernel>
Waited wait_for(Watched& watched, bool waits, Kernel kernel) {
  if (!waits) return {kernel(true), true};
  if (watched.any_news()) return {kernel(true), false};
  watched.open();
  if (spin(t_look, [&] { return watched.any_news(); })) return {kernel(true), false};
  watched.sleep();
  const bool news = watched.any_news();
  const int found = kernel(news);
  watched.wake();
  return {found, !news};
}

// Adds the readiness of rings to what the kernel said.
int add_rings(const Watched& watched, pollfd* fds, int found) {
  for (std::size_t i = 0; i < watched.size(); ++i) {
    pollfd& one = fds[watched.tag(i)];
    if ((one.revents & kIn) != 0) {
      watched.note_named(i);
    } else if (readable(watched.lane(i))) {
      watched.note_named(i);
      if (one.revents == 0) ++found;
      one.revents = static_cast<short>(one.revents | (one.events & kIn));
    }
  }
  return found;
}

int poll_rings(pollfd* fds, nfds_t count, const timespec* limit, const sigset_t* mask) {
  const bool waits = limit == nullptr || limit->tv_sec != 0 || limit->tv_nsec != 0;
  for (;;) {
    Watched watched;
    for (nfds_t i = 0; i < count; ++i) {
      if (fds[i].fd >= 0 && (fds[i].events & kIn) != 0) add_number(watched, fds[i].fd, i);
    }
    if (watched.empty()) return real().ppoll(fds, count, limit, mask);
    const Waited waited = wait_for(watched, waits, [&](bool now) {
      const timespec zero{};
      return real().ppoll(fds, count, now ? &zero : limit, mask);
    });
    if (waited.found < 0) return waited.found;
    const int found = add_rings(watched, fds, waited.found);
    if (found != 0 || waited.whole) return found;
  }
}

// Whether any number here has a lane: most programs have none.
bool may_have_lanes() { return lanes::first() != nullptr; }

struct Sets {
  fd_set* read;
  fd_set* write;
  fd_set* except;
};

// The question of a call of select(2): the kernel writes its answer over it. Sets may be as
// short as `count` wants them.
class Asked {
 public:
  Asked(int count, const Sets& sets) : bytes_(bytes_of(count)), sets_(sets) {
    each([this](void* set, void* kept) { std::memcpy(kept, set, bytes_); });
  }
  void restore() {
    each([this](void* set, const void* kept) { std::memcpy(set, kept, bytes_); });
  }

 private:
  static std::size_t bytes_of(int count) {
    constexpr std::size_t kBits = NFDBITS;
    return (static_cast<std::size_t>(std::max(count, 0)) + kBits - 1) / kBits * (kBits / 8);
  }
  template <class Visit>
  void each(Visit visit) {
    const std::array sets{sets_.read, sets_.write, sets_.except};
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (sets.at(i) != nullptr) visit(sets.at(i), &kept_.at(i));
    }
  }

  const std::size_t bytes_;
  const Sets sets_;
  std::array<fd_set, 3> kept_{};
};

int add_rings(const Watched& watched, fd_set* read, int found) {
  for (std::size_t i = 0; i < watched.size(); ++i) {
    const auto fd = static_cast<int>(watched.tag(i));
    const bool kernels = FD_ISSET(fd, read);
    if (!kernels && !readable(watched.lane(i))) continue;
    watched.note_named(i);
    if (kernels) continue;
    FD_SET(fd, read);
    ++found;
  }
  return found;
}

// As select(2), with `limit` counted down to what is left.
int select_rings(int count, Sets sets, timespec* limit, const sigset_t* mask) {
  const bool waits = limit == nullptr || limit->tv_sec != 0 || limit->tv_nsec != 0;
  const auto kernel = [&](bool now) {
    const timespec zero{};
    return real().pselect(count, sets.read, sets.write, sets.except, now ? &zero : limit, mask);
  };
  if (count > FD_SETSIZE) return kernel(false);
  for (Asked asked(count, sets);; asked.restore()) {
    Watched watched;
    for (int fd = 0; fd < count && sets.read != nullptr; ++fd) {
      if (FD_ISSET(fd, sets.read)) add_number(watched, fd, static_cast<std::size_t>(fd));
    }
    if (watched.empty()) return kernel(false);
    const Waited waited = wait_for(watched, waits, kernel);
    if (waited.found < 0) return waited.found;
    const int found = add_rings(watched, sets.read, waited.found);
    if (found != 0 || waited.whole) return found;
  }
}

// The lanes that one instance watches, as far as rings may be used with them.
void add_members(Watched& watched, int epoll) {
  for (Lane* lane = lanes::first(); lane != nullptr; lane = lane->next) {
    if (!lane->live.load(std::memory_order_relaxed) || !lane->counted_in.load()) continue;
    const os::SpinGuard guard(lane->number->watch_lock);
    const Watch watch = lane->number->watch;
    constexpr std::uint32_t kOdd = EPOLLONESHOT | EPOLLEXCLUSIVE;
    if (watch.epoll != epoll || watch.lost || (watch.events & EPOLLIN) == 0 ||
        (watch.events & kOdd) != 0) {
      continue;
    }
    watched.add(*lane, watch.data, (watch.events & EPOLLET) != 0);
  }
}

int add_events(const Watched& watched, epoll_event* events, int most, int found) {
  for (std::size_t i = 0; i < watched.size(); ++i) {
    const bool ring = watched.has_news(i);
    epoll_event* const end = events + found;
    epoll_event* const at = std::find_if(
        events, end, [&](const epoll_event& e) { return e.data.u64 == watched.tag(i); });
    if (at != end) {
      watched.note_kernels(i);
      if (ring) at->events |= EPOLLIN;
      if ((at->events & EPOLLIN) != 0) watched.note_named(i);
    } else if (ring && found < most) {
      watched.note_named(i);
      events[found].events = EPOLLIN;
      events[found++].data.u64 = watched.tag(i);
    }
  }
  return found;
}

// `kernel(true)`: without waiting.
template <class Kernel>
int wait_rings(int epoll, epoll_event* events, int most, bool waits, Kernel kernel) {
  if (!may_have_lanes() || events == nullptr || most <= 0) return kernel(false);
  for (;;) {
    Watched watched;
    add_members(watched, epoll);
    if (watched.empty()) return kernel(false);
    const Waited waited = wait_for(watched, waits, [&](bool now) {
      const std::int64_t at = now ? os::monotonic_ns() : 0;
      if (now && at - t_asked < kAskKernelNs && watched.any_news()) return 0;
      t_asked = at;
      return kernel(now);
    });
    if (waited.found < 0) return waited.found;
    const int found = add_events(watched, events, most, waited.found);
    if (found != 0 || waited.whole) return found;
  }
}

void note_registration(int epoll, int operation, int fd, const epoll_event* event) {
  Number* number = numbers::find(fd);
  if (number == nullptr || number->calls.load(std::memory_order_relaxed) == kKernels) return;
  const os::SpinGuard guard(number->watch_lock);
  Watch& watch = number->watch;
  constexpr std::uint32_t kUnlooked = EPOLLONESHOT | EPOLLEXCLUSIVE;
  if (operation == EPOLL_CTL_DEL) {
    if (watch.epoll == epoll) watch.epoll = -1;
  } else if (watch.epoll >= 0 && watch.epoll != epoll) {
    watch.lost = true;
    number->asks.store(true);
  } else {
    watch.epoll = epoll;
    watch.events = event->events;
    watch.data = event->data.u64;
    if ((event->events & kUnlooked) != 0) number->asks.store(true);
  }
}

}  // namespace
}  // namespace weft::sockets::granted

using namespace weft::sockets;
using namespace weft::sockets::granted;

WEFT_SEEN int poll(pollfd* fds, nfds_t count, int timeout) {
  if (!may_have_lanes()) return real().poll(fds, count, timeout);
  const timespec limit = weft::os::timespec_of(std::int64_t{timeout} * 1'000'000);
  return poll_rings(fds, count, timeout < 0 ? nullptr : &limit, nullptr);
}

WEFT_SEEN int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!may_have_lanes()) return real().ppoll(fds, count, timeout, mask);
  return poll_rings(fds, count, timeout, mask);
}

WEFT_SEEN int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t room) {
  if (room / sizeof *fds < count) abort();
  return poll(fds, count, timeout);
}

WEFT_SEEN int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
                          size_t room) {
  if (room / sizeof *fds < count) abort();
  return ppoll(fds, count, timeout, mask);
}

WEFT_SEEN int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  if (!may_have_lanes()) return real().select(count, read, write, except, timeout);
  if (timeout == nullptr) return select_rings(count, {read, write, except}, nullptr, nullptr);
  if (timeout->tv_sec < 0 || timeout->tv_usec < 0) {
    return real().select(count, read, write, except, timeout);
  }
  const std::int64_t ns = timeout->tv_sec * weft::os::kNsPerSecond + timeout->tv_usec * 1000;
  const std::int64_t begin = weft::os::monotonic_ns();
  timespec limit = weft::os::timespec_of(ns);
  const int found = select_rings(count, {read, write, except}, &limit, nullptr);
  const std::int64_t left = std::max<std::int64_t>(ns - (weft::os::monotonic_ns() - begin), 0);
  timeout->tv_sec = left / weft::os::kNsPerSecond;
  timeout->tv_usec = left % weft::os::kNsPerSecond / 1000;
  return found;
}

WEFT_SEEN int pselect(int count, fd_set* read, fd_set* write, fd_set* except,
                      const timespec* timeout, const sigset_t* mask) {
  if (!may_have_lanes()) return real().pselect(count, read, write, except, timeout, mask);
  timespec limit = timeout == nullptr ? timespec{} : *timeout;
  return select_rings(count, {read, write, except}, timeout == nullptr ? nullptr : &limit, mask);
}

WEFT_SEEN int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  const int result = real().epoll_ctl(epoll, operation, fd, event);
  if (result == 0) note_registration(epoll, operation, fd, event);
  return result;
}

WEFT_SEEN int epoll_pwait(int epoll, epoll_event* events, int most, int timeout,
                          const sigset_t* mask) {
  return wait_rings(epoll, events, most, timeout != 0, [&](bool now) {
    return real().epoll_pwait(epoll, events, most, now ? 0 : timeout, mask);
  });
}

WEFT_SEEN int epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  return epoll_pwait(epoll, events, most, timeout, nullptr);
}

WEFT_SEEN int epoll_pwait2(int epoll, epoll_event* events, int most, const timespec* timeout,
                           const sigset_t* mask) {
  const bool waits = timeout == nullptr || timeout->tv_sec != 0 || timeout->tv_nsec != 0;
  return wait_rings(epoll, events, most, waits, [&](bool now) {
    const timespec zero{};
    return real().epoll_pwait2(epoll, events, most, now ? &zero : timeout, mask);
  });
}
