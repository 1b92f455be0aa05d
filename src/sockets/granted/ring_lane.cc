#include "sockets/granted/ring_lane.h"

#include <sched.h>
#include <sys/mman.h>

#include <new>

#include "os/signals_blocked.h"

namespace weft::sockets::granted {
namespace {

os::SpinLock g_lock;  // of the list of free lanes, with signals blocked
Lane* g_free WEFT_GUARDED_BY(g_lock) = nullptr;
std::atomic<Lane*> g_first{nullptr};

bool unused(const Lane& lane) {
  return lane.receiving.load() == 0 && lane.sending.load() == 0 && lane.visiting.load() == 0;
}

// The number is gone. The last call that still knows the lane takes it apart.
void clean(Lane& lane) {
  const os::SignalsBlocked blocked;
  const os::SpinGuard guard(g_lock);
  if (lane.live.load() || lane.own == nullptr || !unused(lane)) return;
  if (Segment* segment = lane.segment.exchange(nullptr); segment != nullptr) {
    segments::detach(segment);
  }
  munmap(lane.own, sizeof(Own));
  lane.own = nullptr;
  lane.next_free = g_free;
  g_free = &lane;
}

void begin_again(Lane& lane, int fd) {
  lane.fd = fd;
  lane.settled = true;
  lane.counted_in = lane.counted_out = lane.joined_in = lane.joined_out = false;
  lane.nonblocking = lane.set_nodelay = false;
  lane.nodelay = Nodelay::kUnknown;
  lane.ticket = {};
  lane.named_by = lane.streak = 0;
  lane.reported = 0;
  lane.told.kernel_named = false;
  lane.told.late_error = 0;
  lane.told.blocked = lane.told.ended = false;
  // Looking is tried first, and given up where it is not worth it.
  for (SpinBudget* budget : {&lane.look, &lane.room, &lane.drain}) {
    budget->ns = static_cast<std::int32_t>(kSpinMaxNs);
    budget->sleeps = 1;
  }
  lane.vain.reads = lane.vain.drains = lane.vain.left_out = 0;
  lane.ban_until = 0;
  lane.pen = 0;
  lane.take_seen = 0;
  lane.live = true;
}

}  // namespace

bool on_one_core(const Lane& lane) {
  auto& cores = lane.segment.load(std::memory_order_relaxed)->cores;
  const auto here = static_cast<std::uint32_t>(sched_getcpu() + 1);
  std::atomic<std::uint32_t>& ours = cores.at(lane.end);
  if (ours.load(std::memory_order_relaxed) != here) ours.store(here, std::memory_order_relaxed);
  return here != 0 && cores.at(1 - lane.end).load(std::memory_order_relaxed) == here;
}

Use::Use(Number& number, Counter counter) noexcept : number_(&number), counter_(counter) {
  for (;;) {
    Lane* lane = number.lane.load();
    if (lane == nullptr) {
      number.running.fetch_add(1);
      // One that makes a lane meanwhile sees this call, or this call sees the lane.
      if (number.lane.load() == nullptr) return;
      number.running.fetch_sub(1);
      continue;
    }
    (lane->*counter).fetch_add(1);
    lane_ = lane;
    if (number.lane.load() == lane) return;
    (lane->*counter).fetch_sub(1);
    lane_ = nullptr;
    if (!lane->live.load() && unused(*lane)) clean(*lane);
  }
}

Use::Use(Lane& lane, Counter counter) noexcept : lane_(&lane), counter_(counter) {
  (lane.*counter).fetch_add(1);
}

Use::~Use() {
  if (lane_ == nullptr) {
    number_->running.fetch_sub(1);
    return;
  }
  (lane_->*counter_).fetch_sub(1);
  if (!lane_->live.load() && unused(*lane_)) clean(*lane_);
}

namespace lanes {

Lane* make(int fd, Number& number) {
  const os::SignalsBlocked blocked;
  void* own = mmap(nullptr, sizeof(Own), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return nullptr;
  const os::SpinGuard guard(g_lock);
  Lane* lane = g_free;
  if (lane != nullptr) {
    g_free = lane->next_free;
  } else if (lane = new (std::nothrow) Lane(); lane != nullptr) {
    lane->next = g_first.load();
    g_first.store(lane);
  }
  if (lane == nullptr) {
    munmap(own, sizeof(Own));
    return nullptr;
  }
  lane->own = new (own) Own{};
  begin_again(*lane, fd);
  lane->number = &number;
  Lane* before = nullptr;
  if (number.lane.compare_exchange_strong(before, lane)) return lane;
  lane->live = false;
  munmap(own, sizeof(Own));
  lane->own = nullptr;
  lane->next_free = g_free;
  g_free = lane;
  return nullptr;
}

Lane* first() { return g_first.load(); }

// One call locks, the other unlocks.
void before_fork() WEFT_NOT_ANALYZED { g_lock.lock(); }
void after_fork() WEFT_NOT_ANALYZED { g_lock.unlock(); }
void in_child() { new (&g_lock) os::SpinLock(); }

}  // namespace lanes
}  // namespace weft::sockets::granted
