// Looking a little before sleeping.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdint>

#include "base/cpu_pause.h"
#include "os/clock.h"

namespace weft::sockets {

// How long a caller that is about to sleep looks before it does: longer where that was worth it.
struct SpinBudget {
  std::atomic<std::int32_t> ns;
  std::atomic<std::uint32_t> sleeps;
};

inline constexpr std::int64_t kSpinMaxNs = 50'000;
inline constexpr std::int64_t kSpinMinNs = 1'000;
// Where looking was never worth it, one in so many sleeps tries a long one.
inline constexpr std::uint32_t kSleepsPerTrial = 64;
// A thread that did not run for this long shares its core: perhaps with the other end, which can't
// run while this thread polls. Or the machine had something else to do, once: so the budget is no
// more than halved.
inline constexpr std::int64_t kNotRunningNs = 20'000;

// Looking is tried first, and given up where it is not worth it.
inline void begin_spin(SpinBudget& budget) {
  budget.ns = static_cast<std::int32_t>(kSpinMaxNs);
  budget.sleeps = 1;
}

// Whether `holds` came true within the budget.
template <class Holds>
bool spin(SpinBudget& budget, Holds holds) {
  const std::int64_t usual = budget.ns.load(std::memory_order_relaxed);
  assert(usual >= 0 && usual <= kSpinMaxNs);
  const bool trial = budget.sleeps.load(std::memory_order_relaxed) % kSleepsPerTrial == 0;
  const std::int64_t limit = trial ? kSpinMaxNs : usual;
  const std::int64_t begin = os::monotonic_ns();
  std::int64_t last = begin;
  for (;;) {
    bool found = false;
    for (int turn = 0; turn < 16 && !found; ++turn) {
      found = holds();
      if (!found) cpu_pause();
    }
    const std::int64_t now = os::monotonic_ns();
    const bool ran = now - last < kNotRunningNs;
    if (found && ran) {
      const std::int64_t more = 2 * std::max(usual, now - begin);
      budget.ns.store(static_cast<std::int32_t>(std::min(more, kSpinMaxNs)),
                      std::memory_order_relaxed);
      return true;
    }
    if (found || !ran || now - begin >= limit) {
      const std::int64_t less = std::max(usual / 2, kSpinMinNs);
      budget.ns.store(static_cast<std::int32_t>(less), std::memory_order_relaxed);
      budget.sleeps.fetch_add(1, std::memory_order_relaxed);
      return found;
    }
    last = now;
  }
}

}  // namespace weft::sockets
