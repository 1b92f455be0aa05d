#include "sockets/preload_hot.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "sockets/preload.h"
#include "sockets/spin.h"

namespace weft::sockets::hot {
namespace {

// Sockets of a list. Those that don't fit are told by the kernel.
constexpr std::size_t kMost = 128;
// Instances are known by number up to here.
constexpr int kInstances = 4096;
// The kernel is asked too, for other descriptors of the instance and for hang-ups, after so long.
constexpr std::int64_t kKernelEveryNs = 200'000;
// So often it may name a socket of the list that has nothing before that one leaves the list.
constexpr int kIdleTurns = 4;
// Reads of nothing, since the last octet, after which the kernel is asked whether the other process
// lives.
constexpr int kInVain = 3;

// Who waits for an instance: the number of the only thread that ever did, 0: nobody yet.
constexpr pid_t kSeveral = -1;
std::atomic<pid_t> g_waiters[kInstances];

constexpr std::uint32_t kReading = EPOLLIN | EPOLLRDNORM;
constexpr std::uint32_t kWriting = EPOLLOUT | EPOLLWRNORM;
constexpr std::uint32_t kLookedAt = kReading | kWriting;
constexpr std::uint32_t kEnds = EPOLLHUP | EPOLLRDHUP | EPOLLERR;

struct Entry {
  int fd;
  Channel* channel;    // of that number, if Use says so
  int idle;            // turns of the kernel since its last octet
  std::uint64_t data;  // of its events, when the kernel was last asked
};

struct List {
  int epoll = -1;
  pid_t thread = 0;
  std::size_t count = 0;
  std::size_t first = 0;  // who is asked first: a small `most` must not starve the others
  bool busy = false;      // a signal handler's calls leave it alone
  std::int64_t kernel_asked_ns = 0;
  SpinBudget budget{};
  std::array<Entry, kMost> entries{};
};
thread_local List t_list;

bool is_mine(const Channel& channel) {
  return channel.watched.epoll.load(std::memory_order_relaxed) == t_list.epoll;
}

class Busy {
 public:
  Busy() { t_list.busy = true; }
  ~Busy() { t_list.busy = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
};

// Takes entry `i` out. The last one takes its place.
void drop(std::size_t i) {
  const Entry one = t_list.entries[i];
  t_list.entries[i] = t_list.entries[--t_list.count];
  const Use use(one.fd);
  if (use.channel() != one.channel || one.channel == nullptr) return;
  one.channel->watched.hot = false;
  one.channel->settle();
}

void empty() {
  while (t_list.count > 0) drop(t_list.count - 1);
}

// What the program asked for and can have.
std::uint32_t ready(const Channel& channel) {
  const std::uint32_t asked = channel.watched.events.load(std::memory_order_relaxed);
  std::uint32_t out = 0;
  if ((asked & kReading) != 0 && channel.unread() > 0) out |= asked & kReading;
  if ((asked & kWriting) != 0 && channel.room() > 0) out |= asked & kWriting;
  return out;
}

// Whether entry `i` has something; if it is not to be looked after any more, it is gone.
enum class Look { kNothing, kReady, kGone };
Look look(std::size_t i, epoll_event& event) {
  const Entry& one = t_list.entries[i];
  const Use use(one.fd);
  Channel* channel = use.channel();
  if (channel == nullptr || channel != one.channel || !is_mine(*channel) ||
      channel->reading_ended()) {
    drop(i);
    return Look::kGone;
  }
  event.events = ready(*channel);
  event.data.u64 = channel->watched.data.load(std::memory_order_relaxed);
  return event.events != 0 ? Look::kReady : Look::kNothing;
}

int take_ready(epoll_event* events, int most) {
  int found = 0;
  for (std::size_t looked = 0; looked < t_list.count && found < most;) {
    const std::size_t i = (t_list.first + looked) % t_list.count;
    const Look seen = look(i, events[found]);
    if (seen == Look::kReady) ++found;
    if (seen != Look::kGone) ++looked;
  }
  if (t_list.count > 0)
    t_list.first = (t_list.first + static_cast<std::size_t>(found)) % t_list.count;
  return found;
}

bool any_ready() {
  for (std::size_t i = 0; i < t_list.count; ++i) {
    const Use use(t_list.entries[i].fd);
    const Channel* channel = use.channel();
    if (channel == t_list.entries[i].channel && channel != nullptr && ready(*channel) != 0) {
      return true;
    }
  }
  return false;
}

// Whether the kernel's event is of entry `i`, which is looked at anyway. One that has had nothing
// for long, or of which the kernel has more to say, leaves the list: `stays` is false.
bool is_of(Entry& one, epoll_event& event, bool& stays) {
  const Use use(one.fd);
  const Channel* channel = use.channel();
  if (channel == nullptr || channel != one.channel) return false;
  const bool more = (event.events & ~kLookedAt) != 0;
  one.idle = channel->unread() == 0 ? one.idle + 1 : 0;
  stays = !more && one.idle < kIdleTurns;
  // Readable by the signal that was left in the pair only.
  if ((event.events & kEnds) == 0 && channel->unread() == 0) event.events &= ~kReading;
  return !more || event.events == 0;
}

bool is_of_list(epoll_event& event) {
  bool found = false;
  for (std::size_t i = 0; i < t_list.count;) {
    bool stays = true;
    Entry& one = t_list.entries[i];
    if (one.data == event.data.u64) found = is_of(one, event, stays) || found;
    if (stays) {
      ++i;
    } else {
      drop(i);
    }
  }
  return found;
}

// What the kernel has to say of descriptors that are not in the list.
int ask_kernel(epoll_event* events, int most) {
  const int count = real().epoll_pwait(t_list.epoll, events, most, 0, nullptr);
  for (std::size_t i = 0; count > 0 && i < t_list.count; ++i) {
    Entry& one = t_list.entries[i];
    const Use use(one.fd);
    if (use.channel() != one.channel || one.channel == nullptr) continue;
    one.data = one.channel->watched.data.load(std::memory_order_relaxed);
  }
  return static_cast<int>(std::remove_if(events, events + std::max(count, 0), is_of_list) - events);
}

}  // namespace

bool looks_after(const Channel& channel) {
  if (t_list.epoll < 0 || t_list.busy || !is_mine(channel)) return false;
  if (channel.end().holders.load(std::memory_order_relaxed) != 1) return false;
  if (channel.unread() > 0) return channel.watched.hot || t_list.count < kMost;
  return channel.watched.hot && channel.watched.in_vain < kInVain;
}

void note_read(Channel& channel, ssize_t got) {
  channel.watched.in_vain = got > 0 ? 0 : channel.watched.in_vain + 1;
  if (got <= 0 || channel.watched.hot) return;
  const Busy busy;
  channel.watched.hot = true;
  const int fd = channel.socket();
  for (std::size_t i = 0; i < t_list.count; ++i) {
    if (t_list.entries[i].fd != fd) continue;
    t_list.entries[i] = {fd, &channel, 0,
                         0};  // not that of the socket which had this number before
    return;
  }
  t_list.entries[t_list.count++] = {fd, &channel, 0, 0};
}

void note_watchers(const Conn& conn) {
  Channel::Watched& watched = conn.channel->watched;
  constexpr std::uint32_t kMay = kLookedAt | EPOLLRDHUP | EPOLLPRI | EPOLLERR | EPOLLHUP;
  const epoll_event& event = conn.watchers[0].event;
  const bool fits = conn.watcher_count == 1 && !conn.watchers_lost && !conn.asynchronous &&
                    conn.refs == 1 && (event.events & ~kMay) == 0;
  watched.events = event.events & kLookedAt;
  watched.data = event.data.u64;
  watched.epoll = fits ? conn.watchers[0].epoll : -1;
}

bool may_be_hot(const Channel& channel) {
  return channel.watched.epoll.load(std::memory_order_relaxed) >= 0;
}

bool begin_wait(int epoll) {
  if (t_list.epoll != epoll) {
    settle_all();
    t_list.epoll = -1;
  }
  if (epoll < 0 || epoll >= kInstances) return false;
  if (t_list.thread == 0) t_list.thread = gettid();
  pid_t nobody = 0;
  if (!g_waiters[epoll].compare_exchange_strong(nobody, t_list.thread) && nobody != t_list.thread) {
    g_waiters[epoll] = kSeveral;
    settle_all();
    t_list.epoll = -1;
    return false;
  }
  t_list.epoll = epoll;
  return t_list.count > 0;
}

int take(epoll_event* events, int most, bool may_look) {
  const Busy busy;
  int found = 0;
  if (const std::int64_t now = now_ns(); now - t_list.kernel_asked_ns >= kKernelEveryNs) {
    t_list.kernel_asked_ns = now;
    found = ask_kernel(events, most);
  }
  found += take_ready(events + found, most - found);
  if (found == 0 && may_look && spin(t_list.budget, any_ready)) found = take_ready(events, most);
  if (found == 0) empty();
  return found;
}

void settle_all() {
  if (t_list.count == 0 || t_list.busy) return;
  const Busy busy;
  empty();
}

void forget(int fd) {
  if (fd < 0 || fd >= kInstances || g_waiters[fd].load(std::memory_order_relaxed) == 0) return;
  g_waiters[fd] = 0;
  if (t_list.epoll == fd) {
    settle_all();
    t_list.epoll = -1;
  }
  const std::lock_guard lock(table::mutex());
  for (int i = 0; i < table::highest(); ++i) {
    Conn* conn = table::conn_of(i);
    if (conn == nullptr) continue;
    const auto end = conn->watchers + conn->watcher_count;
    const auto kept =
        std::remove_if(conn->watchers, end, [fd](const Watcher& w) { return w.epoll == fd; });
    if (kept == end) continue;
    conn->watcher_count = static_cast<int>(kept - conn->watchers);
    if (conn->channel != nullptr) note_watchers(*conn);
  }
}

void in_child() {
  // The sockets are the parent's too: what it leaves in their pairs is its own business.
  t_list.count = 0;
  t_list.epoll = -1;
  t_list.thread = 0;
}

}  // namespace weft::sockets::hot
