#include "progress/passive_spin.h"

#include <sched.h>

#include <algorithm>

#include "os/clock.h"
#include "os/ticks.h"

namespace weft::progress {

namespace {
// A program that wants the core keeps it for milliseconds; an interrupt, or a host that runs
// something else for a moment, ends sooner and does not count.
constexpr std::uint64_t kCoreWantedUs = 200;
constexpr Duration kPauseMax{1'000'000'000};
constexpr Duration kCoresAskedEach{1'000'000};
}  // namespace

bool PassiveSpin::may_begin(const ProgressHost& host) {
  return host.settings().passive_spin.count() > 0 && host.cores() > 1 && os::now() >= not_before_ &&
         cores_are_enough(host);
}

bool PassiveSpin::yield(const ProgressHost& host) {
  const std::uint64_t before = os::cpu_ticks();
  sched_yield();
  if (os::cpu_ticks() - before <= kCoreWantedUs * host.ticks_per_us()) return true;
  // Where another core is idle, the system will soon move one of the two.
  if (host.machine_cores().are_enough().value_or(false)) return true;
  pause_ = std::min(pause_ * 2, kPauseMax);
  not_before_ = os::now() + pause_;
  return false;
}

bool PassiveSpin::cores_are_enough(const ProgressHost& host) {
  const Instant now = os::now();
  if (now - cores_asked_at_ >= kCoresAskedEach) {
    cores_asked_at_ = now;
    cores_enough_ = host.machine_cores().are_enough().value_or(true);
  }
  return cores_enough_;
}

}  // namespace weft::progress
