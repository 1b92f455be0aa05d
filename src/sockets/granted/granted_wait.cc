// poll, select and epoll. The kernel's readiness, and that of the rings.
#include <poll.h>
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <climits>
#include <cstring>

#include "os/clock.h"
#include "sockets/checked_waits.h"
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
  with_lane(fd, [&](Lane& lane) {
    if (lane.in.counted()) watched.add(lane, tag);
  });
}

// A limit of time, of which a wait that begins again has the rest.
class Limit {
 public:
  // -1: none.
  explicit Limit(std::int64_t ns) : ns_(ns), end_(ns > 0 ? os::monotonic_ns() + ns : 0) {
    assert(ns >= -1);
  }
  static Limit of(const timespec* limit) { return Limit(limit == nullptr ? -1 : ns_of(*limit)); }

  [[nodiscard]] bool waits() const { return ns_ != 0; }
  // After a turn that found nothing. False: the time is over.
  bool go_on() {
    if (ns_ > 0) ns_ = std::max<std::int64_t>(end_ - os::monotonic_ns(), 0);
    return ns_ != 0;
  }
  // For the kernel: null without a limit. The view lives as long as this.
  const timespec* kernels() {
    spec_ = os::timespec_of(std::max<std::int64_t>(ns_, 0));
    return ns_ < 0 ? nullptr : &spec_;
  }
  // As poll(2) has it, never less.
  [[nodiscard]] int milliseconds() const {
    if (ns_ < 0) return -1;
    return static_cast<int>(std::min<std::int64_t>((ns_ + kNsPerMs - 1) / kNsPerMs, INT_MAX));
  }
  [[nodiscard]] std::int64_t left() const { return ns_; }

 private:
  static constexpr std::int64_t kNsPerMs = 1'000'000;
  // Beyond what a century has: as good as none, and no sum of it with a clock is too large.
  static std::int64_t ns_of(const timespec& limit) {
    constexpr time_t kCentury = 3'155'760'000;
    return limit.tv_sec >= kCentury ? -1 : os::ns_of(limit);
  }
  std::int64_t ns_;
  std::int64_t end_;
  timespec spec_{};
};

// The kernel says what is wrong with it.
bool bad(const timespec* limit) {
  return limit != nullptr &&
         (limit->tv_sec < 0 || limit->tv_nsec < 0 || limit->tv_nsec >= os::kNsPerSecond);
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
  if (watched.open() && spin(t_look, [&] { return watched.any_news(); })) {
    return {kernel(true), false};
  }
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

// More than a process can have: the kernel says so, or that the list is at a bad address.
constexpr nfds_t kTooMany = 1 << 20;

int poll_rings(pollfd* fds, nfds_t count, const timespec* asked, const sigset_t* mask) {
  if (fds == nullptr || count > kTooMany || bad(asked))
    return real().ppoll(fds, count, asked, mask);
  Limit limit = Limit::of(asked);
  for (;;) {
    Watched watched;
    for (nfds_t i = 0; i < count; ++i) {
      if (fds[i].fd >= 0 && (fds[i].events & kIn) != 0) add_number(watched, fds[i].fd, i);
    }
    if (watched.empty()) return real().ppoll(fds, count, limit.kernels(), mask);
    const Waited waited = wait_for(watched, limit.waits(), [&](bool now) {
      const timespec zero{};
      return real().ppoll(fds, count, now ? &zero : limit.kernels(), mask);
    });
    if (waited.found < 0) return waited.found;
    const int found = add_rings(watched, fds, waited.found);
    if (found != 0 || waited.whole || !limit.go_on()) return found;
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
  // REQUIRES: at most FD_SETSIZE.
  Asked(int count, const Sets& sets) : bytes_(bytes_of(count)), sets_(sets) {
    assert(bytes_ <= sizeof(fd_set));
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

int select_rings(int count, Sets sets, const timespec* spec, const sigset_t* mask) {
  if (bad(spec)) return real().pselect(count, sets.read, sets.write, sets.except, spec, mask);
  Limit limit = Limit::of(spec);
  const auto kernel = [&](bool now) {
    const timespec zero{};
    return real().pselect(count, sets.read, sets.write, sets.except, now ? &zero : limit.kernels(),
                          mask);
  };
  if (count > FD_SETSIZE) return kernel(false);
  for (Asked asked(count, sets);; asked.restore()) {
    Watched watched;
    for (int fd = 0; fd < count && sets.read != nullptr; ++fd) {
      if (FD_ISSET(fd, sets.read)) add_number(watched, fd, static_cast<std::size_t>(fd));
    }
    if (watched.empty()) return kernel(false);
    const Waited waited = wait_for(watched, limit.waits(), kernel);
    if (waited.found < 0) return waited.found;
    const int found = add_rings(watched, sets.read, waited.found);
    if (found != 0 || waited.whole || !limit.go_on()) return found;
  }
}

constexpr std::uint32_t kInEvents = EPOLLIN | EPOLLRDNORM;

// Those of kInEvents that this instance is to tell of the lane, if rings may be used with it.
// `data` as it was registered.
std::uint32_t watched_events(const Lane& lane, int epoll, std::uint64_t& data, bool& edge) {
  constexpr std::uint32_t kOdd = EPOLLONESHOT | EPOLLEXCLUSIVE;
  const os::SpinGuard guard(lane.number->watch_lock);
  const Watch watch = lane.number->watch;
  if (watch.epoll != epoll || watch.lost || (watch.events & kOdd) != 0) return 0;
  data = watch.data;
  edge = (watch.events & EPOLLET) != 0;
  return watch.events & kInEvents;
}

// The `wanted` ones of the lanes that one instance watches, as far as rings may be used with them.
template <class Wanted>
void add_members(Watched& watched, int epoll, Wanted wanted) {
  std::uint64_t data = 0;
  bool edge = false;
  for (Lane* lane = lanes::first(); lane != nullptr; lane = lane->next) {
    if (!lane->live.load() || !lane->in.counted() || !wanted(*lane)) continue;
    if (watched_events(*lane, epoll, data, edge) != 0) watched.add(*lane, data, edge);
  }
}

int add_events(const Watched& watched, int epoll, epoll_event* events, int most, int found) {
  for (std::size_t i = 0; i < watched.size(); ++i) {
    std::uint64_t data = 0;
    bool edge = false;
    const bool news = watched.has_news(i);
    // Behind that: another thread may have taken it out, or changed it, before the octets came.
    const std::uint32_t in = watched_events(watched.lane(i), epoll, data, edge);
    assert(found <= most);
    const bool ring = news && in != 0 && data == watched.tag(i);
    epoll_event* const end = events + found;
    epoll_event* const at = std::find_if(
        events, end, [&](const epoll_event& e) { return e.data.u64 == watched.tag(i); });
    if (at != end) {
      watched.note_kernels(i);
      if (ring) at->events |= in;
      if ((at->events & kInEvents) != 0) watched.note_named(i);
    } else if (ring && found < most) {
      watched.note_named(i);
      events[found].events = in;
      events[found++].data.u64 = watched.tag(i);
    }
  }
  return found;
}

// Tells of what lies in rings already, without a look at all other members, where it is not time to
// ask the kernel. 0: nothing does.
int tell_of_rings(int epoll, epoll_event* events, int most) {
  if (os::monotonic_ns() - t_asked >= kAskKernelNs) return 0;
  Watched watched;
  {
    const lanes::Scan scan;
    add_members(watched, epoll, [&watched](const Lane& lane) {
      return watched.size() < Watched::kMost && lane.rings.attached() && readable(lane);
    });
  }
  return watched.empty() ? 0 : add_events(watched, epoll, events, most, 0);
}

// `kernel(limit)` asks for as long as that.
template <class Kernel>
int wait_rings(int epoll, epoll_event* events, int most, Limit limit, Kernel kernel) {
  Limit none(0);
  if (events == nullptr || most <= 0) return kernel(limit);
  if (limit.waits()) {
    if (const int found = tell_of_rings(epoll, events, most); found != 0) return found;
  }
  for (;;) {
    Watched watched;
    add_members(watched, epoll, [](const Lane&) { return true; });
    if (watched.empty()) return kernel(limit);
    const Waited waited = wait_for(watched, limit.waits(), [&](bool now) {
      const std::int64_t at = now ? os::monotonic_ns() : 0;
      if (now && at - t_asked < kAskKernelNs && watched.any_news()) return 0;
      t_asked = at;
      return kernel(now ? none : limit);
    });
    if (waited.found < 0) return waited.found;
    const int found = add_events(watched, epoll, events, most, waited.found);
    if (found != 0 || waited.whole || !limit.go_on()) return found;
  }
}

void note_registration(int epoll, int operation, int fd, const epoll_event* event) {
  Number* number = numbers::find(fd);
  if (number == nullptr || number->calls.load(std::memory_order_relaxed) == kKernels) return;
  const os::SpinGuard guard(number->watch_lock);
  Watch& watch = number->watch;
  constexpr std::uint32_t kUnlooked = EPOLLONESHOT | EPOLLEXCLUSIVE;
  if (operation == EPOLL_CTL_DEL) {
    // By another number of the instance, perhaps: then its rings are looked into no more.
    if (watch.epoll == epoll) {
      watch.epoll = -1;
    } else if (watch.epoll >= 0) {
      watch.lost = true;
      number->asks.store(true);
    }
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

WEFT_SEEN int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  constexpr suseconds_t kMicroseconds = 1'000'000;
  // The kernel judges what is not normal.
  if (!may_have_lanes() || (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_usec < 0 ||
                                                   timeout->tv_usec >= kMicroseconds))) {
    return real().select(count, read, write, except, timeout);
  }
  if (timeout == nullptr) return select_rings(count, {read, write, except}, nullptr, nullptr);
  const timespec spec{timeout->tv_sec, timeout->tv_usec * 1000};
  Limit limit = Limit::of(&spec);
  const int found = select_rings(count, {read, write, except}, &spec, nullptr);
  const int error = errno;
  if (limit.left() > 0) {
    static_cast<void>(limit.go_on());
    timeout->tv_sec = limit.left() / weft::os::kNsPerSecond;
    timeout->tv_usec = limit.left() % weft::os::kNsPerSecond / 1000;
  }
  errno = error;
  return found;
}

WEFT_SEEN int pselect(int count, fd_set* read, fd_set* write, fd_set* except,
                      const timespec* timeout, const sigset_t* mask) {
  if (!may_have_lanes()) return real().pselect(count, read, write, except, timeout, mask);
  return select_rings(count, {read, write, except}, timeout, mask);
}

WEFT_SEEN int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  const int result = real().epoll_ctl(epoll, operation, fd, event);
  if (result == 0) note_registration(epoll, operation, fd, event);
  return result;
}

WEFT_SEEN int epoll_pwait(int epoll, epoll_event* events, int most, int timeout,
                          const sigset_t* mask) {
  if (!may_have_lanes()) return real().epoll_pwait(epoll, events, most, timeout, mask);
  const Limit limit(timeout < 0 ? -1 : timeout * std::int64_t{1'000'000});
  return wait_rings(epoll, events, most, limit, [&](const Limit& now) {
    return real().epoll_pwait(epoll, events, most, now.milliseconds(), mask);
  });
}

WEFT_SEEN int epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  return epoll_pwait(epoll, events, most, timeout, nullptr);
}

WEFT_SEEN int epoll_pwait2(int epoll, epoll_event* events, int most, const timespec* timeout,
                           const sigset_t* mask) {
  if (!may_have_lanes() || bad(timeout))
    return real().epoll_pwait2(epoll, events, most, timeout, mask);
  return wait_rings(epoll, events, most, Limit::of(timeout), [&](Limit now) {
    return real().epoll_pwait2(epoll, events, most, now.kernels(), mask);
  });
}
