#include "sockets/preload/preload_hot.h"
#include "sockets/real_calls.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <utility>

#include "os/clock.h"
#include "sockets/spin.h"

namespace weft::sockets::hot {
namespace {

// Sockets of a list. Those that don't fit are told by the kernel.
constexpr std::size_t kMost = 128;
// Sockets that are polled before the clock is read again.
constexpr std::size_t kLookedAtOnce = 8;
// The kernel is asked too, for other descriptors of the instance and for hang-ups, after so long.
constexpr std::int64_t kKernelEveryNs = 200'000;
// So often it may name a socket of the list that has nothing before that one leaves the list.
constexpr int kIdleTurns = 4;
// Reads of nothing, since the last octet, after which the kernel is asked whether the other process
// lives.
constexpr int kInVain = 3;

// State of an epoll instance, for descriptors below kInstances.
constexpr int kInstances = 4096;
constexpr pid_t kSeveral = -1;
struct Instance {
  std::atomic<pid_t> waiter{0};         // the only thread that ever waited for it; 0: none yet
  std::atomic<bool> watched{false};     // by another instance, perhaps for edges
  std::atomic<bool> has_socket{false};  // watches one of ours, or did
};
Instance g_instances[kInstances];

Instance* instance_of(int epoll) {
  return epoll < 0 || epoll >= kInstances ? nullptr : &g_instances[epoll];
}

constexpr std::uint32_t kReading = EPOLLIN | EPOLLRDNORM;
constexpr std::uint32_t kWriting = EPOLLOUT | EPOLLWRNORM;
constexpr std::uint32_t kLookedAt = kReading | kWriting;
constexpr std::uint32_t kEnds = EPOLLHUP | EPOLLRDHUP | EPOLLERR;

struct Entry {
  int fd = -1;
  Channel* channel = nullptr;  // of that number, if Use says so
  int idle = 0;                // turns of the kernel since its last octet
  bool claimed = false;        // the kernel's event was taken for it, and it has not been told yet
  std::uint64_t data = 0;      // of its events, when the kernel was last asked
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

class Busy {
 public:
  Busy() : before_(std::exchange(t_list.busy, true)) {}
  ~Busy() { t_list.busy = before_; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  const bool before_;
};

bool is_mine(const Channel& channel) {
  return t_list.epoll >= 0 && channel.watched.epoll.load(std::memory_order_relaxed) == t_list.epoll;
}

bool is_hot(const Channel& channel) {
  const std::uint32_t at = channel.watched.at.load(std::memory_order_relaxed);
  return at < t_list.count && t_list.entries[at].channel == &channel &&
         t_list.entries[at].fd == channel.socket();
}

void put(std::size_t i, const Entry& entry) {
  t_list.entries[i] = entry;
  const Use use(entry.fd);
  if (use.channel() != entry.channel || entry.channel == nullptr) return;
  entry.channel->watched.at.store(static_cast<std::uint32_t>(i), std::memory_order_relaxed);
}

// Takes entry `i` out. The last one takes its place.
void drop(std::size_t i) {
  const Entry one = t_list.entries[i];
  if (i != --t_list.count) put(i, t_list.entries[t_list.count]);
  const Use use(one.fd);
  if (use.channel() == one.channel && one.channel != nullptr) one.channel->settle();
}

void empty() {
  while (t_list.count > 0) drop(t_list.count - 1);
}

// The events that the program asks for: a consistent copy.
epoll_event asked_of(const Channel& channel) {
  const Channel::Watched& watched = channel.watched;
  for (;;) {
    const std::uint32_t version = watched.version.load(std::memory_order_acquire);
    epoll_event out{};
    out.events = watched.events.load(std::memory_order_relaxed);
    out.data.u64 = watched.data.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version % 2 == 0 && watched.version.load(std::memory_order_relaxed) == version) return out;
  }
}

// The events that the program asks for and that are ready. A ring has room, as the pair has, when a
// quarter of it is free.
epoll_event ready(const Channel& channel) {
  epoll_event out = asked_of(channel);
  if ((out.events & kReading) != 0 && channel.unread() == 0) out.events &= ~kReading;
  if ((out.events & kWriting) != 0 && !channel.has_room()) out.events &= ~kWriting;
  return out;
}

// Whether an entry has something, and whether it is to leave the list.
enum class Look { kNothing, kReady, kLast, kGone };
Look look(Entry& one, epoll_event& event) {
  const Use use(one.fd);
  const Channel* channel = use.channel();
  if (channel == nullptr || channel != one.channel) return Look::kGone;
  const bool claimed = std::exchange(one.claimed, false);
  event = ready(*channel);
  if (is_mine(*channel) && !channel->reading_ended() && channel->watched.in_vain < kInVain) {
    return event.events != 0 ? Look::kReady : Look::kNothing;
  }
  // Another thread has made it one for edges, and that of these octets has been taken.
  return claimed && event.events != 0 ? Look::kLast : Look::kGone;
}

int take_ready(epoll_event* events, int most) {
  const std::size_t count = t_list.count;
  std::bitset<kMost> leaving;
  int found = 0;
  std::size_t looked = 0;
  for (; looked < count && found < most; ++looked) {
    const std::size_t i = (t_list.first + looked) % count;
    const Look seen = look(t_list.entries[i], events[found]);
    if (seen == Look::kReady || seen == Look::kLast) ++found;
    leaving[i] = seen == Look::kLast || seen == Look::kGone;
  }
  if (count > 0) t_list.first = (t_list.first + looked) % count;
  for (std::size_t i = count; i-- > 0;) {
    if (leaving[i]) drop(i);
  }
  return found;
}

// Whether one of some sockets of the list is ready. Each call takes the next ones.
bool any_ready() {
  const std::size_t count = t_list.count;
  for (std::size_t k = 0; k < std::min(count, kLookedAtOnce); ++k) {
    const Entry& one = t_list.entries[t_list.first++ % count];
    const Use use(one.fd);
    if (use.channel() == one.channel && one.channel != nullptr && ready(*one.channel).events != 0) {
      return true;
    }
  }
  return false;
}

// The kernel's event may be of entry `one`, which is looked at anyway: takes away what is told of
// that one, or is not so. An entry of which the kernel has more to say, or nothing for long, leaves
// the list: false.
bool compare(Entry& one, epoll_event& event) {
  const Use use(one.fd);
  const Channel* channel = use.channel();
  if (channel == nullptr || channel != one.channel) return true;
  const std::uint32_t told = ready(*channel).events;
  // Readable by the signal that was left in the pair only: that is no news, unless it is an end.
  const bool ends = (event.events & kEnds) != 0;
  const std::uint32_t known = told | (ends ? 0 : kReading);
  const std::uint32_t news = event.events & ~known;
  one.idle = (told & kReading) == 0 ? one.idle + 1 : 0;
  if (news == 0) {
    one.claimed = (event.events & told) != 0;
    event.events = 0;
    return one.idle < kIdleTurns || one.claimed;
  }
  event.events = news | told;
  return false;
}

bool is_of_list(epoll_event& event) {
  for (std::size_t i = t_list.count; i-- > 0 && event.events != 0;) {
    if (t_list.entries[i].data == event.data.u64 && !compare(t_list.entries[i], event)) drop(i);
  }
  return event.events == 0;
}

// Asks the kernel about descriptors that are not in the list. Its answer may have those of the list
// first, and `most` may be few.
int ask_kernel(epoll_event* events, int most) {
  for (std::size_t i = 0; i < t_list.count; ++i) {
    Entry& one = t_list.entries[i];
    const Use use(one.fd);
    if (use.channel() != one.channel || one.channel == nullptr) continue;
    one.data = asked_of(*one.channel).data.u64;
  }
  for (std::size_t turns = t_list.count / static_cast<std::size_t>(most) + 1; turns > 0; --turns) {
    const int count = real().epoll_pwait(t_list.epoll, events, most, 0, nullptr);
    if (count <= 0) return 0;
    const auto left = std::remove_if(events, events + count, is_of_list) - events;
    if (left > 0 || count < most) return static_cast<int>(left);
  }
  return 0;
}

}  // namespace

bool looks_after(const Channel& channel, bool wait) {
  // A call that waits for octets would do so where another thread is told of the old signal.
  if (wait || t_list.busy || !is_mine(channel)) return false;
  const Instance* instance = instance_of(t_list.epoll);
  if (instance == nullptr || instance->watched.load(std::memory_order_relaxed)) return false;
  if (channel.end().holders.load(std::memory_order_relaxed) != 1) return false;
  if (channel.unread() > 0) return is_hot(channel) || t_list.count < kMost;
  return is_hot(channel) && channel.watched.in_vain < kInVain;
}

void note_read(Channel& channel, ssize_t got) {
  channel.watched.in_vain = got > 0 ? 0 : channel.watched.in_vain + 1;
  if (got <= 0 || is_hot(channel)) return;
  const Busy busy;
  const int fd = channel.socket();
  // There may be one of the socket which had this number before.
  std::size_t i = 0;
  while (i < t_list.count && t_list.entries[i].fd != fd) ++i;
  if (i == kMost) {
    channel.settle();  // a signal handler has filled the list meanwhile
    return;
  }
  if (i == t_list.count) ++t_list.count;
  put(i, {fd, &channel});
}

void note_watchers(const Conn& conn) {
  Channel::Watched& watched = conn.channel->watched;
  constexpr std::uint32_t kMay = kLookedAt | EPOLLRDHUP | EPOLLPRI | EPOLLERR | EPOLLHUP;
  const epoll_event& event = conn.watchers[0].event;
  const bool fits = conn.watcher_count == 1 && !conn.watchers_lost && !conn.asynchronous &&
                    conn.refs == 1 && (event.events & ~kMay) == 0;
  watched.version.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  watched.events.store(event.events & kLookedAt, std::memory_order_relaxed);
  watched.data.store(event.data.u64, std::memory_order_relaxed);
  watched.epoll.store(fits ? conn.watchers[0].epoll : -1, std::memory_order_relaxed);
  watched.version.fetch_add(1, std::memory_order_release);
  // Programs take a socket out and put it back at each message: that changes nothing in between.
  if (!fits && (conn.watcher_count > 0 || conn.asynchronous)) conn.channel->settle();
}

void note_instance(int epoll) {
  if (Instance* instance = instance_of(epoll)) instance->has_socket = true;
}

void note_watched(int fd) {
  Instance* instance = instance_of(fd);
  if (instance == nullptr || instance->watched.exchange(true)) return;
  if (t_list.epoll == fd) settle_all();
}

bool begin_wait(int epoll, bool as_the_kernel) {
  if (t_list.busy) return false;
  if (t_list.epoll != epoll || as_the_kernel) {
    settle_all();
    t_list.epoll = -1;
  }
  Instance* instance = instance_of(epoll);
  if (instance == nullptr) return false;
  if (t_list.thread == 0) t_list.thread = gettid();
  pid_t waiter = instance->waiter.load(std::memory_order_relaxed);
  if (waiter == 0 && instance->waiter.compare_exchange_strong(waiter, t_list.thread)) {
    waiter = t_list.thread;
  }
  if (waiter != t_list.thread) instance->waiter = kSeveral;
  if (as_the_kernel) return false;
  if (waiter != t_list.thread || instance->watched.load(std::memory_order_relaxed)) {
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
  if (const std::int64_t now = os::monotonic_ns(); now - t_list.kernel_asked_ns >= kKernelEveryNs) {
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
  Instance* instance = instance_of(fd);
  if (instance == nullptr) return;
  instance->watched.store(false, std::memory_order_relaxed);
  if (instance->waiter.load(std::memory_order_relaxed) == 0 && !instance->has_socket) return;
  instance->waiter = 0;
  if (t_list.epoll == fd && !t_list.busy) {
    settle_all();
    t_list.epoll = -1;
  }
  if (!instance->has_socket.exchange(false)) return;
  const table::Lock lock;
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
