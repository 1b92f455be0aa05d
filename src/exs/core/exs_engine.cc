#include "exs/core/exs_engine.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <ctime>
#include <new>
#include <thread>

#include "os/cancel.h"
#include "os/clock.h"
#include "os/event_fd.h"
#include "os/lock.h"
#include "os/signals_blocked.h"
#include "os/thread_wakeup.h"

namespace weft::exs {
namespace {

constexpr int kReadyAtOnce = 64;
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kBlindSleep = std::chrono::milliseconds(1);
constexpr int kTickMs = 1;
constexpr int kTickOfCallersMs = 2;
// The progress thread takes over after this many ticks without a caller. A caller that has lost its
// CPU for a moment does not get it back sooner from a thread that does its work.
constexpr int kTicksUntilQuiet = 3;
// A look at TCP is a system call. With RDMA beside it, and nothing seen for so many polls, one poll
// in so many looks.
constexpr std::uint32_t kPollsUntilTcpIsQuiet = 256;
constexpr std::uint32_t kPollsPerQuietLook = 16;

std::atomic<Engine*> current{nullptr};
timespec time_left(Instant until) {
  const std::chrono::nanoseconds left = std::max(until - Clock::now(), Clock::duration::zero());
  return os::timespec_of(left.count());
}

}  // namespace

Engine& Engine::instance() {
  if (Engine* engine = current.load(std::memory_order_acquire)) return *engine;
  static const int once = ::pthread_atfork(
      nullptr, nullptr, [] { current.store(new Engine, std::memory_order_release); });
  static_cast<void>(once);
  static auto* first = new Engine;
  Engine* none = nullptr;
  current.compare_exchange_strong(none, first);
  return *current.load(std::memory_order_acquire);
}

SocketHost& SocketHost::instance() { return Engine::instance(); }

int Engine::start() {
  const os::MutexLock lock(start_mutex_);
  if (started()) return 0;
  wake_ = os::make_event();
  tcp_ = os::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!wake_ || !tcp_) return errno;
  if (cm.get() == nullptr) cm.open();  // without one, there is TCP
  std::thread thread = os::start_thread([this] { run(); });
  pthread_setname_np(thread.native_handle(), "exs");
  thread.detach();
  started_.store(true, std::memory_order_release);
  return 0;
}

bool Engine::has_rdma() {
  const os::MutexLock lock(start_mutex_);
  if (!probed_) {
    probed_ = true;
    int count = 0;
    ibv_device** list = cm.get() != nullptr ? ibv_get_device_list(&count) : nullptr;
    if (list != nullptr) ibv_free_device_list(list);
    if (count == 0) cm.forget();
  }
  return cm.get() != nullptr;
}

// ---- progress

bool Engine::drive() {
  drives_.fetch_add(1, std::memory_order_relaxed);
  if (!drive_mutex_.try_lock()) return false;
  bool busy = poll_devices();
  if (tcp_is_due()) busy = poll_tcp() || busy;
  drive_mutex_.unlock();
  run_polls();
  return busy;
}

bool Engine::poll_devices() {
  bool busy = false;
  devices.each_shard([&](CqShard& shard) { busy = poll_shard(shard) || busy; });
  return busy;
}

bool Engine::poll_shard(CqShard& shard) {
  std::array<ibv_wc, kCompletionsAtOnce> completions;
  const int got = ibv_poll_cq(shard.cq, kCompletionsAtOnce, completions.data());
  if (got <= 0) return false;
  const os::NoCancel guard;
  const auto all = std::span(completions).first(static_cast<std::size_t>(got));
  // Those of one socket that follow each other are handed over together.
  for (std::size_t first = 0; first < all.size();) {
    const auto number = static_cast<std::uint32_t>(all[first].wr_id >> 32U);
    std::size_t end = first + 1;
    while (end < all.size() && all[end].wr_id >> 32U == number) ++end;
    if (const auto socket = connections.find(number); socket != nullptr) {
      const os::MutexLock lock(socket->mutex);
      if (socket->provider != nullptr) {
        socket->guarded([&] { socket->provider->on_completions(all.subspan(first, end - first)); });
      }
    }
    first = end;
  }
  return true;
}

bool Engine::tcp_is_due() {
  if (tcp_sockets_.load(std::memory_order_relaxed) == 0) return false;
  if (devices.empty()) return true;
  return ++polls_without_tcp_ < kPollsUntilTcpIsQuiet ||
         polls_without_tcp_ % kPollsPerQuietLook == 0;
}

bool Engine::poll_tcp() {
  const os::NoCancel guard;
  std::array<epoll_event, kReadyAtOnce> ready;
  const int got = ::epoll_wait(tcp_.get(), ready.data(), kReadyAtOnce, 0);
  for (int i = 0; i < got; ++i) {
    const epoll_event& one = ready[static_cast<std::size_t>(i)];
    const auto socket = connections.find(static_cast<std::uint32_t>(one.data.u64));
    if (socket == nullptr) continue;
    const os::MutexLock lock(socket->mutex);
    if (socket->provider == nullptr) continue;
    socket->guarded([&] { socket->provider->on_ready(one.events); });
  }
  if (got > 0) polls_without_tcp_ = 0;
  return got > 0;
}

void Engine::wake_up() const { os::raise_event(wake_.get()); }

void Engine::hand_over() {
  hand_over_.store(true);
  if (!asleep_.load()) wake_up();
}

int Engine::spin(EventQueue& queue, std::size_t need, Instant until, Instant spin_until) {
  bool busy = false;
  bool enough = false;
  const Inside inside(*this);
  for (unsigned round = 1; !enough && queue.waiting() < need; ++round) {
    busy = drive() || busy;
    // Reading the clock costs more than an idle poll.
    if (round % 16 != 0) continue;
    const Instant now = Clock::now();
    // While anything moves, its own events may be next.
    if (std::exchange(busy, false)) spin_until = std::max(spin_until, now + kSpin);
    enough = now >= std::min(until, spin_until) || queue.retired();
  }
  return enough ? ETIMEDOUT : 0;
}

int Engine::wait(EventQueue& queue, std::size_t need, Instant until, int strategy) {
  assert(need != 0);
  if (queue.waiting() >= need) return 0;
  drive();
  if (queue.waiting() >= need || until == Instant::min()) return 0;
  const Instant spin_until = strategy == EXS_WAIT_BUSY_POLL ? Instant::max()
                             : strategy == EXS_WAIT_NOTIFY  ? Instant::min()
                                                            : Clock::now() + kSpin;
  if (strategy != EXS_WAIT_NOTIFY && spin(queue, need, until, spin_until) == 0) return 0;
  while (queue.waiting() < need && Clock::now() < until) {
    if (queue.retired()) return EINVAL;
    pollfd one{os::ThreadWakeup::get(), POLLIN, 0};
    const EventQueue::Sleep sleep(queue, {one.fd, need});
    if (!sleep.entered()) continue;
    hand_over();
    // Without a descriptor nobody can wake it.
    const Instant end = one.fd >= 0 ? until : std::min(until, Clock::now() + kBlindSleep);
    const timespec left = time_left(end);
    if (::ppoll(&one, 1, end == Instant::max() ? nullptr : &left, nullptr) < 0) return errno;
  }
  return 0;
}

// ---- the progress thread

void Engine::run() {
  Rounds rounds;
  for (;;) {
    try {
      run_once(rounds);
    } catch (const std::bad_alloc&) {
      // The work waits until there is memory.
      asleep_.store(false);
      rounds.cm_events = true;
      const timespec left = os::timespec_of(std::chrono::nanoseconds(kBlindSleep).count());
      ::ppoll(nullptr, 0, &left, nullptr);
    }
  }
}

void Engine::run_once(Rounds& rounds) {
  if (rounds.cm_events) run_cm();
  run_timers(Clock::now());
  reap();
  run_polls();
  const std::uint64_t now = drives_.load(std::memory_order_relaxed);
  const bool asked = hand_over_.exchange(false);
  const bool driven = now != rounds.seen || callers_inside_.load(std::memory_order_relaxed) != 0;
  rounds.quiet_ticks = driven ? 0 : rounds.quiet_ticks + 1;
  if (rounds.quiet_ticks < kTicksUntilQuiet && !asked) {
    rounds.seen = now;
    rounds.cm_events = sleep(false);
    return;
  }
  rounds.quiet_ticks = kTicksUntilQuiet;  // it goes on until a caller is seen
  asleep_.store(true);
  arm();
  bool busy = false;
  {
    // Not tried: a caller may have polled a queue just before it was armed.
    const os::MutexLock lock(drive_mutex_);
    busy = poll_devices();
    if (tcp_sockets_.load() != 0) busy = poll_tcp() || busy;
  }
  run_polls();
  rounds.cm_events = busy || sleep(true);
  asleep_.store(false);
  rounds.seen = drives_.load(std::memory_order_relaxed);
  drain_channels();
}

void Engine::arm() {
  for (const auto& device : devices.all()) {
    device->each_shard([](CqShard& shard) {
      if (!shard.armed.exchange(true)) ibv_req_notify_cq(shard.cq, 0);
    });
  }
}

void Engine::drain_channels() {
  for (const auto& device : devices.all()) {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(device->channel(), &cq, &context) == 0) {
      auto* shard = static_cast<CqShard*>(context);
      shard->armed.store(false);
      ibv_ack_cq_events(cq, 1);
    }
  }
}

bool Engine::sleep(bool armed) {
  std::vector<pollfd> fds;
  fds.push_back({wake_.get(), POLLIN, 0});
  const rdma_event_channel* channel = cm.get();
  if (channel != nullptr) fds.push_back({channel->fd, POLLIN, 0});
  if (armed) {
    fds.push_back({tcp_.get(), POLLIN, 0});
    for (const auto& device : devices.all()) fds.push_back({device->channel()->fd, POLLIN, 0});
  }
  const bool callers = callers_inside_.load(std::memory_order_relaxed) != 0;
  const int tick = callers ? kTickOfCallersMs : kTickMs;
  Instant until = armed ? Instant::max() : Clock::now() + std::chrono::milliseconds(tick);
  {
    const os::MutexLock lock(later_mutex_);
    if (!timers_.empty()) until = std::min(until, timers_.begin()->first);
    if (!dead_ids_.empty() || polls_.any() || !abandoned_.empty()) return true;
  }
  const timespec left = time_left(until);
  ::ppoll(fds.data(), fds.size(), until == Instant::max() ? nullptr : &left, nullptr);
  if (fds[0].revents != 0) (void)os::lower_event(wake_.get());
  return channel != nullptr && fds[1].revents != 0;
}

void Engine::run_timers(Instant now) {
  std::multimap<Instant, std::weak_ptr<Socket>> due;
  {
    const os::MutexLock lock(later_mutex_);
    while (!timers_.empty() && timers_.begin()->first <= now) {
      due.insert(timers_.extract(timers_.begin()));
    }
  }
  for (const auto& [when, timed] : due) {
    const auto socket = timed.lock();
    if (socket == nullptr) continue;
    const os::MutexLock lock(socket->mutex);
    socket->guarded([&] {
      socket->check_limits();
      if (socket->provider != nullptr) socket->provider->on_time();
    });
  }
}

void Engine::reap() {
  std::vector<rdma_cm_id*> dead;
  std::vector<std::shared_ptr<Socket>> abandoned;
  std::vector<std::deque<Arrival>> arrivals;
  {
    const os::MutexLock lock(later_mutex_);
    dead.swap(dead_ids_);
    abandoned.swap(abandoned_);
  }
  for (const auto& socket : abandoned) {
    const os::MutexLock lock(socket->mutex);
    socket->descriptor_lost = true;
    socket->end.close();
    socket->end.abort();
    if (socket->provider != nullptr) socket->provider->close();
    socket->closed(0);
    arrivals.push_back(socket->backlog.take_all());
  }
  for (auto& some : arrivals) close_arrivals(std::move(some));
  for (rdma_cm_id* id : dead) rdma_destroy_id(id);
}

void Engine::schedule(const std::shared_ptr<Socket>& socket, Instant when) {
  bool first = false;
  {
    const os::MutexLock lock(later_mutex_);
    // Two statements: begin() has to be evaluated after the insertion.
    const auto added = timers_.emplace(when, socket);
    first = added == timers_.begin();
  }
  if (first) wake_up();
}

void Engine::reschedule(const std::shared_ptr<Socket>& socket, Instant former, Instant when) {
  {
    const os::MutexLock lock(later_mutex_);
    const auto [first, last] = timers_.equal_range(former);
    const auto is_its = [&](const auto& one) {
      return !one.second.owner_before(socket) && !socket.owner_before(one.second);
    };
    const auto it = std::find_if(first, last, is_its);
    if (it != last) timers_.erase(it);
  }
  schedule(socket, when);
}

std::size_t Engine::timers() {
  const os::MutexLock lock(later_mutex_);
  return timers_.size();
}

void Engine::destroy_later(rdma_cm_id* id) {
  assert(id != nullptr && id->qp == nullptr);
  {
    const os::MutexLock lock(later_mutex_);
    dead_ids_.push_back(id);
  }
  wake_up();
}

void Engine::abandon_later(const std::shared_ptr<Socket>& socket) {
  {
    const os::MutexLock lock(later_mutex_);
    abandoned_.push_back(socket);
  }
  wake_up();
}

}  // namespace weft::exs
