// Every interleaving of a few threads over the kick lock, by explicit search. The steps of the lock
// word are the real ones (os/kick_lock.h).
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "explore.h"
#include "os/kick_lock.h"

namespace weft::os {
namespace {

constexpr int kThreads = 3;

// One state of all threads. Small integers, so that it can be compared and stored as bytes.
struct World {
  KickWord word = KickWord::kFree;
  std::array<std::uint8_t, kThreads> pc{};
  std::array<bool, kThreads> mail{};  // what a thread wants done
  std::uint8_t inside = 0;            // threads between entering and leaving

  auto operator<=>(const World&) const = default;
};

enum class Role : std::uint8_t {
  kKicker,  // leaves mail, then enters or kicks: posts, late bells, the background
  kPoller,  // enters or goes away, as a poll does
};

constexpr std::uint8_t kStart = 0, kEnter = 1, kWork = 2, kLeave = 3, kDone = 4;

void enter(World& w, int t, KickStep step) {
  w.word = step.next;
  w.pc[static_cast<std::size_t>(t)] = step.done ? kWork : kDone;
  if (step.done) ++w.inside;
}

// One step of thread `t`.
World step(World w, int t, Role role) {
  auto& pc = w.pc[static_cast<std::size_t>(t)];
  switch (pc) {
    case kStart:
      if (role == Role::kKicker) w.mail[static_cast<std::size_t>(t)] = true;
      pc = kEnter;
      break;
    case kEnter:
      enter(w, t, role == Role::kKicker ? kick_enter_or_kick(w.word) : kick_try_enter(w.word));
      break;
    case kWork:
      w.mail = {};
      pc = kLeave;
      break;
    case kLeave: {
      const KickStep left = kick_leave(w.word);
      w.word = left.next;
      pc = left.done ? kDone : kWork;
      if (left.done) --w.inside;
      break;
    }
    default: break;
  }
  return w;
}

void expect_sound(const std::array<Role, kThreads>& roles) {
  const auto next = [&](const World& w, std::vector<World>& out) {
    for (int t = 0; t < kThreads; ++t) {
      const auto at = static_cast<std::size_t>(t);
      if (w.pc[at] != kDone) out.push_back(step(w, t, roles[at]));
    }
  };
  std::size_t ends = 0;
  test::explore(World{}, next, [&](const World& w, bool end) {
    ASSERT_LE(w.inside, 1) << "two threads hold the lock";
    if (!end) return;
    ++ends;
    ASSERT_EQ(w.word, KickWord::kFree);
    for (const bool left : w.mail) ASSERT_FALSE(left) << "a kick was lost";
  });
  EXPECT_GT(ends, 0U);
}

TEST(KickLockModel, NoInterleavingLosesAKickOrLetsTwoIn) {
  for (int mask = 0; mask < 1 << kThreads; ++mask) {
    std::array<Role, kThreads> roles{};
    for (int t = 0; t < kThreads; ++t) {
      roles[static_cast<std::size_t>(t)] = (mask >> t & 1) != 0 ? Role::kPoller : Role::kKicker;
    }
    SCOPED_TRACE(mask);
    expect_sound(roles);
  }
}

// The lock itself, for ThreadSanitizer and for what a model can't show.
TEST(KickLock, WhatIsKickedIsDoneByTheHolder) {
  KickLock lock;
  std::array<std::atomic<int>, 4> wanted{};
  std::array<int, 4> done{};  // guarded by the lock
  const auto pass = [&] {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      done[i] += wanted[i].exchange(0, std::memory_order_seq_cst);
    }
  };
  constexpr int kRounds = 20000;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wanted.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        wanted[t].fetch_add(1, std::memory_order_seq_cst);
        if (!lock.enter_or_kick()) continue;
        do {
          pass();
        } while (!lock.leave());
        lock.left();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(lock.try_enter());
  for (const int count : done) EXPECT_EQ(count, kRounds);
}

}  // namespace
}  // namespace weft::os
