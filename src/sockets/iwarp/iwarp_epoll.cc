#include "sockets/iwarp/iwarp_epoll.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <ctime>
#include <utility>
#include <vector>

#include "os/clock.h"
#include "sockets/iwarp/direct_library.h"
#include "sockets/iwarp/iwarp.h"
#include "sockets/iwarp/iwarp_decide.h"
#include "sockets/iwarp/iwarp_members.h"

namespace weft::sockets::iwarp::epolls {
namespace {

// Descriptors that one call polls. Entries beyond those of the caller are members.
struct Polled {
  std::vector<pollfd> fds;
  std::vector<rsockets::RsSeen> seen;
  std::vector<std::uint64_t> versions;

  // Those that may be told. With the mutex.
  void add(const Instance& instance) {
    for (const Member& one : instance.members) {
      if (one.off) continue;
      fds.push_back({one.fd, static_cast<short>(one.event.events & 0x7fff), 0});
      seen.push_back(one.seen);
      versions.push_back(one.version);
    }
  }
  int run(const timespec* limit, const sigset_t* mask) {
    assert(fds.size() == seen.size() && fds.size() == versions.size());
    return direct::poll(fds.data(), seen.data(), fds.size(), limit, mask);
  }
};

// Accepted connections that this instance watches and nobody has touched, of listeners in IWARP
// mode: their number, and what the program has it say.
std::vector<std::pair<int, std::uint64_t>> undecided_at(int epoll) {
  std::vector<std::pair<int, std::uint64_t>> out;
  const table::Lock lock;
  for (int fd = 0; fd < table::highest(); ++fd) {
    if (table::kind_of(fd) != Kind::kUndecided) continue;
    const Conn* conn = table::conn_of(fd);
    if (conn == nullptr) continue;
    assert(conn->watcher_count >= 0 && conn->watcher_count <= Conn::kWatchers);
    for (int i = 0; i < conn->watcher_count; ++i) {
      if (conn->watchers[i].epoll == epoll) {
        out.emplace_back(fd, conn->watchers[i].event.data.u64);
      }
    }
  }
  return out;
}

// How many events of members were put into `events`. A member that another thread has told of
// meanwhile is left out. With the mutex.
int tell(Instance& instance, const Polled& polled, epoll_event* events, int most)
    WEFT_REQUIRES(table::mutex()) {
  int told = 0;
  for (std::size_t i = 0; i < polled.fds.size() && told < most; ++i) {
    Member* one = instance.find(polled.fds[i].fd);
    if (one == nullptr || one->off || one->version != polled.versions[i]) continue;
    const auto ready = static_cast<std::uint16_t>(polled.fds[i].revents & ~POLLNVAL);
    if (one->seen.edges || (ready != 0 && (one->event.events & EPOLLONESHOT) != 0)) {
      one->seen = polled.seen[i];
      one->version = next_version();
    }
    if (ready == 0) continue;
    one->off = (one->event.events & EPOLLONESHOT) != 0;
    events[told].events = ready;
    events[told++].data = one->event.data;
  }
  assert(told <= most);
  // Those behind the last one come first the next time.
  if (told == most && instance.members.size() > 1) {
    std::rotate(instance.members.begin(), instance.members.begin() + 1, instance.members.end());
  }
  return told;
}

// Stores the events of members that are ready now. Result as epoll_wait(2).
int take_members(Instance& instance, epoll_event* events, int most) {
  Polled polled;
  {
    const table::Lock lock;
    polled.add(instance);
  }
  if (polled.fds.empty() || most <= 0) return 0;
  const timespec none{};
  if (polled.run(&none, nullptr) <= 0) return 0;
  const table::Lock lock;
  return tell(instance, polled, events, most);
}

int take_kernels(int epoll, Instance& instance, epoll_event* events, int most) {
  if (most <= 0) return 0;
  const int found = real().epoll_pwait(epoll, events, most, 0, nullptr);
  const int count = clean(epoll, events, found);
  if (count < found) {
    const table::Lock lock;
    instance.lower();
  }
  return count;
}

int take(int epoll, Instance& instance, epoll_event* events, int most) {
  bool kernel_first = false;
  {
    const table::Lock lock;
    kernel_first = instance.kernel_first = !instance.kernel_first;
  }
  const int count = kernel_first ? take_kernels(epoll, instance, events, most)
                                 : take_members(instance, events, most);
  if (count < 0) return count;
  const int more = kernel_first ? take_members(instance, events + count, most - count)
                                : take_kernels(epoll, instance, events + count, most - count);
  return count > 0 && more < 0 ? count : count + more;
}

// One poll(2) of the instances among `fds`, with their members.
class Turn {
 public:
  Turn(pollfd* fds, nfds_t count) : asked_(fds), count_(count) {
    all_.fds.assign(fds, fds + count);
    all_.seen.resize(count);
    all_.versions.resize(count);
    const table::Lock lock;
    for (nfds_t i = 0; i < count; ++i) {
      const InstancePtr instance = fds[i].fd < 0 ? nullptr : find(fds[i].fd);
      if (instance == nullptr) continue;
      ++instance->sleeping;
      const std::size_t first = all_.fds.size();
      all_.add(*instance);
      parts_.push_back({instance, i, first, all_.fds.size(), instance->changes});
    }
  }
  ~Turn() {
    if (!back_) come_back();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // False: only a wakeup fd was raised, and there are new lists to wait with.
  bool run(const timespec* limit, const sigset_t* mask, int& found) {
    found = all_.run(limit, mask);
    const int error = errno;
    const bool changed = come_back();
    int ready = 0;
    for (nfds_t i = 0; i < count_; ++i) asked_[i].revents = all_.fds[i].revents;
    for (const Part& one : parts_) {
      assert(one.at < count_ && one.first <= one.last && one.last <= all_.fds.size());
      for (std::size_t i = one.first; i < one.last; ++i) {
        if ((all_.fds[i].revents & ~POLLNVAL) == 0) continue;
        asked_[one.at].revents |= asked_[one.at].events & (POLLIN | POLLRDNORM);
      }
    }
    for (nfds_t i = 0; i < count_; ++i) ready += asked_[i].revents != 0 ? 1 : 0;
    errno = error;
    if (found < 0 || changed) return found < 0;
    found = ready;
    return true;
  }

 private:
  struct Part {
    InstancePtr instance;
    nfds_t at;
    std::size_t first, last;
    std::uint64_t changes;
  };

  // Also of a thread that is cancelled asleep. Whether there are new lists.
  bool come_back() {
    back_ = true;
    bool changed = false;
    const table::Lock lock;
    for (const Part& one : parts_) {
      changed = changed || one.instance->raised;
      one.instance->came_back(one.changes);
    }
    return changed;
  }

  bool back_ = false;
  pollfd* const asked_;
  const nfds_t count_;
  Polled all_;
  std::vector<Part> parts_;
};

}  // namespace

int clean(int epoll, epoll_event* events, int count) {
  if (count <= 0) return count;
  const auto drop = [&](std::uint64_t data) {
    const auto is_it = [data](const epoll_event& one) { return one.data.u64 == data; };
    count = static_cast<int>(std::remove_if(events, events + count, is_it) - events);
  };
  drop(kWakeupData);
  if (!g_early.load(std::memory_order_relaxed)) return count;
  for (const auto& [fd, data] : undecided_at(epoll)) {
    if (resolve(fd, false) == Kind::kDirect) drop(data);
  }
  return count;
}

int wait(int epoll, epoll_event* events, int most, std::int64_t limit_ns, const sigset_t* mask) {
  const std::int64_t end = limit_ns < 0 ? -1 : os::monotonic_ns() + limit_ns;
  for (;;) {
    InstancePtr instance;
    {
      const table::Lock lock;
      instance = find(epoll);
    }
    const std::int64_t left = end < 0 ? -1 : std::max<std::int64_t>(end - os::monotonic_ns(), 0);
    const timespec limit = os::timespec_of(left);
    if (instance == nullptr || most <= 0 || events == nullptr) {
      const int found = real().epoll_pwait2(epoll, events, most, left < 0 ? nullptr : &limit, mask);
      // It may have become one meanwhile, and its wakeup fd may be what ended the wait.
      const int count = clean(epoll, events, found);
      if (count == found || count > 0) return count;
      continue;
    }
    if (const int count = take(epoll, *instance, events, most); count != 0) return count;
    if (left == 0) return 0;
    pollfd one{epoll, POLLIN, 0};
    if (poll(&one, 1, left, mask) < 0) return -1;
  }
}

int poll(pollfd* fds, nfds_t count, std::int64_t limit_ns, const sigset_t* mask) {
  const std::int64_t end = limit_ns < 0 ? -1 : os::monotonic_ns() + limit_ns;
  for (;;) {
    const std::int64_t left = end < 0 ? -1 : std::max<std::int64_t>(end - os::monotonic_ns(), 0);
    const timespec limit = os::timespec_of(left);
    int found = 0;
    if (Turn(fds, count).run(left < 0 ? nullptr : &limit, mask, found)) return found;
  }
}

}  // namespace weft::sockets::iwarp::epolls
