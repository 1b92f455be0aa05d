#include "progress/give_way.h"

#include <sched.h>

#include <cassert>

#include "base/patience.h"
#include "os/ticks.h"

namespace weft::progress {

namespace {
// A yield that takes this long has run somebody else; a peer does what there is to do and yields as
// well, so one that kept the core for longer than the second limit was a stranger.
constexpr std::uint64_t kLongYieldUs = 5;
constexpr std::uint64_t kStrangersYieldUs = 2000;

thread_local Patience t_patience;
}  // namespace

bool yield_if_due(const ProgressHost& host) {
  if (!t_patience.is_over()) return false;
  assert(host.ticks_per_us() != 0);
  const std::uint64_t before = os::cpu_ticks();
  sched_yield();
  const std::uint64_t took_us = (os::cpu_ticks() - before) / host.ticks_per_us();
  if (took_us < kLongYieldUs) {
    t_patience.note(Yielded::kToNobody);
    return false;
  }
  if (took_us < kStrangersYieldUs) return true;
  t_patience.note(Yielded::kToAStranger);
  return false;
}

void note_yield(bool found) { t_patience.note(found ? Yielded::kToAPeer : Yielded::kToAStranger); }

}  // namespace weft::progress
