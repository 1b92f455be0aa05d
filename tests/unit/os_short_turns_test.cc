// Short turns on a core: what the scheduler is asked for, and nothing else.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <thread>

#include "os/short_turns.h"

namespace {

// struct sched_attr of sched_setattr(2), as its 48 octets.
using Attributes = std::array<std::uint64_t, 6>;
constexpr std::size_t kRuntime = 3;

Attributes mine() {
  Attributes out{};
  EXPECT_EQ(syscall(SYS_sched_getattr, 0, out.data(), sizeof(out), 0), 0);
  return out;
}

// A kernel that gives the length of a turn has one to say; an older one says 0.
TEST(OsShortTurns, OnlyTheLengthOfATurnChanges) {
  std::thread([] {
    const Attributes before = mine();
    weft::os::ask_for_short_turns();
    Attributes after = mine();
    if (before[kRuntime] != 0) {
      EXPECT_EQ(after[kRuntime], 100'000U);
    }
    after[kRuntime] = before[kRuntime];
    EXPECT_EQ(after, before);
  }).join();
}

TEST(OsShortTurns, NicenessStays) {
  std::thread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 5), 0);
    weft::os::ask_for_short_turns();
    EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())), 5);
  }).join();
}

TEST(OsShortTurns, OtherPoliciesAreLeftAlone) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    const Attributes before = mine();
    weft::os::ask_for_short_turns();
    EXPECT_EQ(mine(), before);
  }).join();
}

}  // namespace
