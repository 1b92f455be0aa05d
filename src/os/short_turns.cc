#include "os/short_turns.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace weft::os {
namespace {

// struct sched_attr in its first size, which all kernels know: sched_setattr(2). The kernel's own
// header declares sched_param a second time.
struct Attributes {
  std::uint32_t size = sizeof(Attributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};
static_assert(sizeof(Attributes) == 48);

constexpr std::uint64_t kTurnNs = 100'000;  // the shortest that Linux gives

}  // namespace

void ask_for_short_turns() {
  Attributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return;
  attributes.runtime_ns = kTurnNs;
  // A kernel or a filter may refuse it: the turns stay as they are.
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace weft::os
