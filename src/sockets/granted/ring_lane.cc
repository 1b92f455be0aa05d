#include "sockets/granted/ring_lane.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <cassert>
#include <cstddef>
#include <new>

#include "os/signals_blocked.h"

namespace weft::sockets::granted {
namespace {

os::SpinLock g_lock;  // of the list of free lanes, with signals blocked
Lane* g_free WEFT_GUARDED_BY(g_lock) = nullptr;
std::byte* g_unused WEFT_GUARDED_BY(g_lock) = nullptr;  // memory for further lanes
std::size_t g_unused_at WEFT_GUARDED_BY(g_lock) = 0;
std::atomic<Lane*> g_first{nullptr};
sigset_t g_before_fork WEFT_GUARDED_BY(g_lock);  // what the thread that forks blocked
std::atomic<std::uint32_t> g_scans{0};
std::atomic<bool> g_left_to_scans{false};  // lanes that could not be taken apart beside them
thread_local constinit std::uint32_t t_scans = 0;

// No number means it, and no call knows it.
void set_free(Lane& lane) WEFT_REQUIRES(g_lock) {
  lane.rings.unmap();
  lane.next_free = g_free;
  g_free = &lane;
}

// The number is gone. The last call that still knows the lane takes it apart. Not inlined: every
// call that ends would pay for it.
[[gnu::noinline]] void clean(Lane& lane) {
  if (!lane.calls.none()) return;
  const os::SignalsBlocked blocked;
  const os::SpinGuard guard(g_lock);
  if (lane.live.load() || !lane.rings.has_own() || !lane.calls.none()) return;
  if (g_scans.load() != 0) {
    g_left_to_scans.store(true);
    if (g_scans.load() != 0) return;  // the last one sees that
  }
  // A scan that begins behind this sees that the lane is not live.
  set_free(lane);
}

void leave(Lane& lane, Call call) {
  lane.calls.leave(call);
  if (!lane.live.load()) clean(lane);
}

void begin_again(Lane& lane, int fd, Number& number) {
  assert(!lane.live.load());
  lane.fd = fd;
  lane.nonblocking = false;
  lane.number = &number;
  lane.meeting.settled = true;
  lane.meeting.ticket = {};
  lane.in.begin_again();
  lane.out.begin_again();
  lane.reading.begin_again();
  lane.writing.begin_again();
  lane.news.begin_again();
  lane.nodelay.begin_again();
  lane.live = true;
}

void clean_all() {
  for (Lane* lane = g_first.load(); lane != nullptr; lane = lane->next) {
    if (!lane->live.load()) clean(*lane);
  }
}

// Not by malloc: a signal handler that has interrupted it may be what sends. Null: no memory.
Lane* make_one() WEFT_REQUIRES(g_lock) {
  constexpr std::size_t kBytes = 64UL * 1024;
  static_assert(sizeof(Lane) <= kBytes);
  if (g_unused == nullptr || kBytes - g_unused_at < sizeof(Lane)) {
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    g_unused = static_cast<std::byte*>(at);
    g_unused_at = 0;
  }
  auto* lane = new (g_unused + g_unused_at) Lane();
  g_unused_at += sizeof(Lane);
  lane->next = g_first.load();
  g_first.store(lane);
  return lane;
}

// Without memory of its own. Null: there is none.
Lane* take_free() WEFT_REQUIRES(g_lock) {
  Lane* lane = g_free;
  if (lane == nullptr) return make_one();
  g_free = lane->next_free;
  return lane;
}

}  // namespace

Use::Use(Number& number, Call call) noexcept : number_(&number), call_(call) {
  for (;;) {
    Lane* lane = number.lane.load();
    if (lane == nullptr) {
      number.running.fetch_add(1);
      // One that makes a lane meanwhile sees this call, or this call sees the lane.
      if (number.lane.load() == nullptr) return;
      number.running.fetch_sub(1);
      continue;
    }
    lane->calls.enter(call);
    lane_ = lane;
    if (number.lane.load() == lane) return;
    lane_ = nullptr;
    leave(*lane, call);
  }
}

Use::Use(Lane& lane, Call call) noexcept : lane_(&lane), call_(call) { lane.calls.enter(call); }

Use::~Use() {
  if (lane_ != nullptr) {
    leave(*lane_, call_);
    return;
  }
  [[maybe_unused]] const std::uint32_t before = number_->running.fetch_sub(1);
  assert(before != 0);
}

namespace lanes {

NewLane make(int fd, Number& number) {
  const os::SignalsBlocked blocked;
  const os::SpinGuard guard(g_lock);
  Lane* lane = take_free();
  if (lane == nullptr) return {};
  if (!lane->rings.map_own()) {
    lane->next_free = g_free;
    g_free = lane;
    return {};
  }
  begin_again(*lane, fd, number);
  lane->calls.enter(Call::kVisits);
  Lane* before = nullptr;
  if (number.lane.compare_exchange_strong(before, lane)) return {lane};
  lane->live = false;
  lane->calls.leave(Call::kVisits);
  set_free(*lane);
  return {};
}

Lane* first() { return g_first.load(); }

Scan::Scan() noexcept {
  ++t_scans;
  g_scans.fetch_add(1);
}

Scan::~Scan() {
  --t_scans;
  if (g_scans.fetch_sub(1) == 1 && g_left_to_scans.load() && g_left_to_scans.exchange(false)) {
    clean_all();
  }
}

// One call locks, the other unlocks.
void before_fork() WEFT_NOT_ANALYZED {
  const sigset_t before = os::block_signals();
  g_lock.lock();
  g_before_fork = before;
}

void after_fork() WEFT_NOT_ANALYZED {
  const sigset_t before = g_before_fork;
  g_lock.unlock();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void in_child() WEFT_NOT_ANALYZED {
  new (&g_lock) os::SpinLock();
  g_scans.store(t_scans);
  pthread_sigmask(SIG_SETMASK, &g_before_fork, nullptr);
}

}  // namespace lanes
}  // namespace weft::sockets::granted
