#include "sockets/granted/spiller.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cerrno>
#include <climits>
#include <ctime>

#include "os/clock.h"
#include "os/signals_blocked.h"
#include "sockets/real_calls.h"

namespace weft::sockets::granted::spiller {
namespace {

constexpr std::int64_t kTickNs = 10'000'000;
constexpr int kIdleTicks = 50;
constexpr std::size_t kStack = 64 * 1024;

std::atomic<std::uint32_t> g_idle{1};  // a futex: 1 while the thread sleeps, or there is none
std::atomic<bool> g_started{false};
std::atomic<bool> g_stopped{false};
std::atomic<Spill> g_spill{nullptr};
pthread_t g_thread;

// TCP had no room for all that a ring held: the rest is not in the ring any more.
bool owes(const Lane& lane, const GrantMemory& m) {
  return m.load(GrantWord::kOwedFrom) != m.load(GrantWord::kOwedTo) && !lane.writing.is_over();
}

// Whether a ring holds octets, or did. One whose reader has not moved since the last tick is
// spilled.
bool tick() {
  bool any = false;
  for (Lane* lane = lanes::first(); lane != nullptr; lane = lane->next) {
    if (!lane->live.load(std::memory_order_relaxed)) continue;
    const Use use(*lane, Call::kVisits);
    if (!lane->live.load() || !lane->rings.attached()) continue;
    const GrantMemory m = lane->rings.out();
    if (owes(*lane, m)) {
      any = true;
      g_spill.load()(*lane, os::monotonic_ns());
      continue;
    }
    if (m.load(GrantWord::kRing) == 0) continue;
    const std::uint64_t take = m.load(GrantWord::kTake);
    const bool holds = (take & kTaken) == 0 && m.load(GrantWord::kPosition) != take >> 1U;
    any = any || holds;
    if (lane->writing.rests(take, holds)) g_spill.load()(*lane, os::monotonic_ns());
  }
  return any;
}

void* run(void* /*unused*/) {
  while (!g_stopped.load()) {
    for (int idle = 0; idle < kIdleTicks && !g_stopped.load(); idle = tick() ? 0 : idle + 1) {
      os::nap(kTickNs);
    }
    g_idle.store(1);
    // Octets that came before the word was set: their writer has not seen it.
    if (tick()) {
      g_idle.store(0);
      continue;
    }
    while (g_idle.load() == 1 && !g_stopped.load()) {
      real().syscall(SYS_futex, &g_idle, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }
  return nullptr;
}

// The thread-local variables of a program may need more than kStack.
bool create(pthread_t& thread) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, kStack);
  const int error = pthread_create(&thread, &attributes, run, nullptr);
  pthread_attr_destroy(&attributes);
  return error == 0 || (error == EINVAL && pthread_create(&thread, nullptr, run, nullptr) == 0);
}

void start() {
  if (g_stopped.load() || g_started.exchange(true)) return;
  const os::SignalsBlocked blocked;
  pthread_t thread;
  if (create(thread)) {
    g_thread = thread;
  } else {
    g_started = false;
    g_idle = 1;  // another thread may have taken it for awake
  }
}

}  // namespace

bool wake(Spill spill) {
  if (g_idle.load() == 0) return true;
  assert(spill != nullptr);
  g_spill = spill;
  if (!g_started.load()) start();
  if (!g_started.load()) return false;
  if (g_idle.exchange(0) == 1) {
    real().syscall(SYS_futex, &g_idle, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
  return true;
}

void stop() {
  if (g_stopped.exchange(true) || !g_started.load()) return;
  real().syscall(SYS_futex, &g_idle, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  assert(pthread_equal(g_thread, pthread_self()) == 0);
  pthread_join(g_thread, nullptr);
}

void in_child() {
  g_started = false;
  g_idle = 1;
}

}  // namespace weft::sockets::granted::spiller
