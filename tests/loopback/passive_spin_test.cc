// The background thread's spinning for programs that watch memory instead of a CQ. It needs a core
// that nobody else wants.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "os/cores.h"
#include "support/weft_side.h"

namespace weft::test {
namespace {

// Of 100 Writes, with pauses, that one thread posts and sees arrive in memory: for how many the
// background thread had to be woken.
std::uint64_t woken_for(Pair& pair, Memory& from, Memory& into) {
  const std::uint64_t before = pair.host.device->counters().wakeups;
  constexpr int kWrites = 100;
  for (int i = 1; i <= kWrites; ++i) {
    from.store64(0, from.load64(0) + 1);
    const SendFlags flags = i == kWrites ? SendFlags::kSignaled : SendFlags::kNone;
    post(*pair.a.qp, wr_write(1, into.rkey(), into.to(), flags), {from.sge(0, 8)});
    const auto next = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
    while (std::chrono::steady_clock::now() < next || into.load64(0) != from.load64(0)) {
    }
  }
  const std::uint64_t woken = pair.host.device->counters().wakeups - before;
  take_success(*pair.a.send_cq, 1);  // frees the slots of all
  return woken;
}

// One is left beside those that run: the background would have it.
bool a_core_is_idle() {
  std::ifstream file("/proc/loadavg");
  std::string text;
  std::getline(file, text);
  return os::running_threads(text).value_or(1) < std::thread::hardware_concurrency();
}

// Whether the background looks on, as configured. Nullopt: the machine has no idle core.
std::optional<bool> looks_on(Pair& pair, Memory& from, Memory& into, bool expected) {
  int contrary = 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    const bool idle_before = a_core_is_idle();
    const bool answer = woken_for(pair, from, into) < 50;
    if (answer == expected) return answer;
    if (idle_before && a_core_is_idle() && ++contrary == 200) return answer;
  }
  return std::nullopt;
}

TEST(PassiveSpin, TheBackgroundLooksOnForProgramsThatWatchMemory) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two cores";
  for (const bool spins : {true, false}) {
    Config config = plain_config();
    config.passive_spin = spins ? std::chrono::milliseconds(1) : std::chrono::milliseconds(0);
    Pair pair(config);
    Memory from(pair.host, 8);
    Memory into(pair.host, 8);
    into.store64(0, 0);
    from.store64(0, 0);
    const std::optional<bool> answer = looks_on(pair, from, into, spins);
    if (!answer) GTEST_SKIP() << "other programs use the second core";
    EXPECT_EQ(*answer, spins);
  }
}

}  // namespace
}  // namespace weft::test
