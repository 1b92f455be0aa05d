// rpoll and rselect: rsockets and other descriptors, waited for together.
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>
#include <span>
#include <vector>

#include "ibverbs/errors.h"
#include "os/clock.h"
#include "os/lock.h"
#include "os/thread_wakeup.h"
#include "rdmacm/forward.h"
#include "rsockets/rs_seen.h"
#include "rsockets/rs_thrown.h"
#include "rsockets/rsocket.h"

namespace weft::rsockets {

using ibverbs::fail_minus;

short ready_events(Rsocket& socket, short wanted) {
  advance_connect(socket);
  short events = 0;
  switch (socket.state) {
    case RsState::kListening: events = socket.ready.empty() ? 0 : POLLIN; break;
    case RsState::kConnecting: break;
    case RsState::kOpen: events = POLLOUT | POLLHUP; break;  // as an unconnected TCP socket
    case RsState::kFailed:
      events = POLLIN | POLLOUT | POLLHUP;
      if (socket.so_error != 0) events |= POLLERR;
      break;
    case RsState::kConnected: {
      progress(socket);
      const RsStream& stream = socket.link->stream();
      const bool over = input_over(socket);
      const bool finished = stream.peer_finished() || socket.read_shut || over;
      if (stream.unread() > 0 || finished) events |= POLLIN;
      if (finished) events |= POLLRDHUP;
      const bool room = stream.can_send() && !socket.sending;
      if (room || socket.write_shut || stream.peer_left() || over) events |= POLLOUT;
      // As TCP: a peer that closes ends our reading. It hangs up only when our half is shut, too,
      // or when the connection broke.
      const bool broken = over && !stream.peer_left() && socket.link->error().has_value();
      if (broken || (finished && socket.write_shut)) events |= POLLHUP;
      if (broken && !socket.reset_told) events |= POLLERR;
    }
  }
  // POLLRDNORM and POLLWRNORM are what POLLIN and POLLOUT are, by other names.
  if ((events & POLLIN) != 0) events |= POLLRDNORM;
  if ((events & POLLOUT) != 0) events |= POLLWRNORM;
  return static_cast<short>(events & (wanted | POLLHUP | POLLERR));
}

void arm(Rsocket& socket) {
  // A driver has armed it, and waits for the event.
  if (socket.state == RsState::kConnected && !socket.driving) socket.link->stream().arm();
}

namespace {

// Where no descriptor is left for a bell: how often a sleeper looks by itself.
constexpr int kWithoutBellMs = 500;

// One entry of the caller's list. An rsocket is watched by two descriptors.
struct Watched {
  pollfd* asked;
  RsocketPtr socket;              // null: an ordinary descriptor
  RsocketPtr datagram = nullptr;  // as an ordinary descriptor; rclose() sees that it is in use
  RsSeen* seen = nullptr;
  RsSeen now = {};  // with `seen`: what it will be when this has been told
};

// For a watcher of edges: nothing of what is ready, if it has been told all of that.
void drop_told(Watched& one) {
  RsSeen& seen = *one.seen;
  one.now = seen;
  one.now.bits = static_cast<std::uint16_t>(one.asked->revents);
  one.now.refused = one.socket->refused;
  if (one.socket->state == RsState::kConnected) {
    one.now.arrived = one.socket->link->stream().arrived();
  }
  seen.bits &= one.now.bits;
  const bool news = one.now.bits != seen.bits ||
                    ((one.now.bits & POLLIN) != 0 && one.now.arrived != seen.arrived) ||
                    ((one.now.bits & POLLOUT) != 0 && one.now.refused != seen.refused);
  if (!news) one.asked->revents = 0;
}

// Fills revents of the rsockets.   How many are ready.
int check(std::vector<Watched>& all, bool arming) {
  int ready = 0;
  for (Watched& one : all) {
    if (one.socket == nullptr) continue;
    const RsLock lock(one.socket->mutex);
    if (arming) arm(*one.socket);
    one.asked->revents = ready_events(*one.socket, one.asked->events);
    if (one.seen != nullptr && one.seen->edges) drop_told(one);
    if (one.asked->revents != 0) ++ready;
  }
  return ready;
}

// A thread in raccept() has been woken by the eventfd, and may not have looked yet: without it, it
// would go on sleeping.
bool accept_may_end(const Rsocket& socket) {
  return !socket.ready.empty() || (socket.listens && socket.state == RsState::kFailed);
}

void watch(std::vector<Watched>& all, std::vector<pollfd>& out) {
  out.clear();
  for (Watched& one : all) {
    if (one.socket == nullptr) {
      out.push_back({one.asked->fd, one.asked->events, 0});
      continue;
    }
    const RsLock lock(one.socket->mutex);
    // One that is not lowered would wake this thread again and again for what it does not want.
    const bool accepts = (one.asked->events & (POLLIN | POLLRDNORM)) != 0;
    const bool wakes = accepts || one.socket->ready.empty();
    out.push_back({wakes ? one.socket->wake.get() : -1, POLLIN, 0});
    const bool connected = one.socket->state == RsState::kConnected;
    out.push_back({connected ? one.socket->link->stream().channel().fd() : -1, POLLIN, 0});
  }
}

// Copies what poll(2) says about ordinary descriptors.   How many are ready.
int collect(std::vector<Watched>& all, const std::vector<pollfd>& polled) {
  int ready = 0;
  std::size_t at = 0;
  for (Watched& one : all) {
    if (one.socket != nullptr) {
      at += 2;
      continue;
    }
    one.asked->revents = polled[at++].revents;
    if (one.asked->revents != 0) ++ready;
  }
  return ready;
}

// Empties the eventfds that were raised. Others may sleep on them.
void lower(std::vector<Watched>& all) {
  for (Watched& one : all) {
    if (one.socket == nullptr) continue;
    const RsLock lock(one.socket->mutex);
    if (accept_may_end(*one.socket)) continue;
    if (os::lower_event(one.socket->wake.get())) tell_others(*one.socket);
  }
}

// This thread's bell, at every rsocket of the list, while it lives.
class Enrolled {
 public:
  Enrolled(std::vector<Watched>& all, int bell) : all_(all), bell_(bell) {
    try {
      for (Watched& one : all_) {
        if (one.socket != nullptr) {
          const RsLock lock(one.socket->mutex);
          one.socket->bells.push_back(bell_);
        }
        ++count_;
      }
    } catch (const std::bad_alloc&) {
      leave();
      throw;
    }
  }
  ~Enrolled() { leave(); }
  Enrolled(const Enrolled&) = delete;
  Enrolled& operator=(const Enrolled&) = delete;

 private:
  void leave() {
    for (Watched& one : std::span(all_).first(count_)) {
      if (one.socket == nullptr) continue;
      const RsLock lock(one.socket->mutex);
      auto& bells = one.socket->bells;
      const auto mine = std::find(bells.begin(), bells.end(), bell_);
      assert(mine != bells.end());
      bells.erase(mine);
    }
  }

  std::vector<Watched>& all_;
  const int bell_;
  std::size_t count_ = 0;  // of them know the bell
};

// How long to sleep; nothing: without a limit.
std::optional<timespec> time_left(Deadline deadline, int bell) {
  if (bell < 0) {
    const Deadline slice = Clock::now() + std::chrono::milliseconds(kWithoutBellMs);
    deadline = deadline ? std::min(deadline, slice) : slice;
  }
  if (!deadline) return std::nullopt;
  return os::timespec_of(std::max<std::chrono::nanoseconds>(*deadline - Clock::now(), {}).count());
}

// `mask` as of ppoll(2).
int poll_all(std::vector<Watched>& all, Deadline deadline, const sigset_t* mask) {
  const int bell = os::ThreadWakeup::get();
  std::vector<pollfd> polled;
  const Enrolled enrolled(all, bell);
  for (;;) {
    os::lower_event(bell);
    int ready = check(all, false);
    if (ready == 0) {
      lower(all);
      ready = check(all, true);
    }
    watch(all, polled);
    polled.push_back({bell, POLLIN, 0});
    const std::optional<timespec> limit = ready > 0 ? timespec{} : time_left(deadline, bell);
    const int done = ppoll(polled.data(), polled.size(), limit ? &*limit : nullptr, mask);
    if (done < 0) return -1;
    ready = check(all, false) + collect(all, polled);
    if (ready > 0 || (deadline && Clock::now() >= *deadline)) return ready;
  }
}

// One of them is an rsocket whose call this signal handler has interrupted. Takes no memory, which
// that call may have been about to take.
bool interrupts_one_of(std::span<const pollfd> fds) {
  if (!interrupts_rsockets()) return false;
  return std::ranges::any_of(fds, [](const pollfd& one) {
    return one.fd >= 0 && find_rsocket(one.fd) == nullptr && errno == EDEADLK;
  });
}

}  // namespace

int own_bell() { return os::ThreadWakeup::known(); }

}  // namespace weft::rsockets

using namespace weft::rsockets;

extern "C" {

// For libweft-sockets-iwarp.so, as ppoll(2). `seen` is null, or has an entry for each of `fds`. Not
// part of rdma-core's interface.
int weft_rsocket_poll(pollfd* fds, weft::rsockets::RsSeen* seen, nfds_t count,
                      const timespec* timeout, const sigset_t* mask) try {
  const int before = errno;
  if (interrupts_one_of({fds, count})) return -1;
  errno = before;
  std::vector<Watched> all;
  bool any = false;
  for (nfds_t i = 0; i < count; ++i) {
    const int error = errno;
    all.push_back({&fds[i], fds[i].fd < 0 ? nullptr : find_rsocket(fds[i].fd)});
    errno = error;
    if (all.back().socket != nullptr && all.back().socket->type == SOCK_DGRAM) {
      all.back().datagram = std::move(all.back().socket);
    }
    if (seen != nullptr) all.back().seen = &seen[i];
    any = any || all.back().socket != nullptr;
  }
  if (!any) return ppoll(fds, count, timeout, mask);
  Deadline deadline;
  if (timeout != nullptr) {
    const auto seconds = std::min<std::int64_t>(timeout->tv_sec, 1 << 30);
    deadline =
        Clock::now() + std::chrono::seconds(seconds) + std::chrono::nanoseconds(timeout->tv_nsec);
  }
  const int ready = poll_all(all, deadline, mask);
  for (Watched& one : all) {
    if (one.socket == nullptr || one.seen == nullptr || one.asked->revents == 0) continue;
    if (one.seen->edges) *one.seen = one.now;
  }
  return ready;
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

int rpoll(pollfd* fds, nfds_t count, int timeout) {
  WEFT_CM_FORWARD(rpoll, fds, count, timeout)
  const timespec limit{timeout / 1000, timeout % 1000 * 1000000L};
  return weft_rsocket_poll(fds, nullptr, count, timeout < 0 ? nullptr : &limit, nullptr);
}

int rselect(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) try {
  WEFT_CM_FORWARD(rselect, count, read, write, except, timeout)
  if (count < 0 || count > FD_SETSIZE) return weft::ibverbs::fail_minus(EINVAL);
  const auto asked = [&](fd_set* set, int fd) { return set != nullptr && FD_ISSET(fd, set); };
  std::vector<pollfd> fds;
  for (int fd = 0; fd < count; ++fd) {
    short events = 0;
    if (asked(read, fd)) events |= POLLIN;
    if (asked(write, fd)) events |= POLLOUT;
    if (asked(except, fd)) events |= POLLPRI;
    if (events != 0) fds.push_back({fd, events, 0});
  }
  const auto begin = Clock::now();
  int limit = -1;
  if (timeout != nullptr) {
    if (timeout->tv_sec < 0 || timeout->tv_usec < 0) return weft::ibverbs::fail_minus(EINVAL);
    limit = static_cast<int>(std::min<std::int64_t>(
        timeout->tv_sec * 1000LL + (timeout->tv_usec + 999) / 1000, 1 << 30));
  }
  if (rpoll(fds.data(), fds.size(), limit) < 0) return -1;
  for (const pollfd& one : fds) {
    if ((one.revents & POLLNVAL) != 0) return weft::ibverbs::fail_minus(EBADF);
  }
  int ready = 0;
  const auto put = [&](fd_set* set, short wanted, short bits) {
    if (set == nullptr) return;
    FD_ZERO(set);
    for (const pollfd& one : fds) {
      if ((one.events & wanted) == 0 || (one.revents & bits) == 0) continue;
      FD_SET(one.fd, set);
      ++ready;
    }
  };
  put(read, POLLIN, POLLIN | POLLHUP | POLLERR);
  put(write, POLLOUT, POLLOUT | POLLERR);
  put(except, POLLPRI, POLLPRI);
  if (timeout != nullptr) {  // as Linux: what is left of it
    const auto spent = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    const std::int64_t left =
        std::max<std::int64_t>(timeout->tv_sec * 1000000LL + timeout->tv_usec - spent.count(), 0);
    timeout->tv_sec = left / 1000000;
    timeout->tv_usec = left % 1000000;
  }
  return ready;
} catch (const std::exception& thrown) {
  return fail_thrown(thrown);
}

}  // extern "C"
