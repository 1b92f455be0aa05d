// The memory of a ring changes at any moment, under connections that are at work: what a hostile
// peer can do. Both ends are the victim here, each with an account of its requests.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "flood.h"
#include "support/ring_mappings.h"

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

constexpr std::size_t kControlBytes = 4096;  // positions, and who sleeps

// A mapping of our own of the ring that this process has, whatever becomes of the others.
class Intruder {
 public:
  Intruder() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; base_ == nullptr && std::getline(maps, line);) {
      if (line.find("weft-ring") == std::string::npos) continue;
      char* dash = nullptr;
      const auto begin = std::strtoull(line.c_str(), &dash, 16);
      size_ = std::strtoull(dash + 1, nullptr, 16) - begin;
      // An old size of 0 makes a second mapping of the same pages.
      void* const copy =
          mremap(reinterpret_cast<void*>(begin), 0, size_, MREMAP_MAYMOVE);  // NOLINT
      if (copy != MAP_FAILED) base_ = static_cast<std::uint8_t*>(copy);
    }
  }
  ~Intruder() {
    if (base_ != nullptr) munmap(base_, size_);
  }
  Intruder(const Intruder&) = delete;
  Intruder& operator=(const Intruder&) = delete;

  [[nodiscard]] bool inside() const { return base_ != nullptr; }
  // Changes octets of `bytes` from `begin` on: one bit, one octet, or a run.
  void change(std::minstd_rand& random, std::size_t begin, std::size_t bytes) {
    const std::size_t at = begin + random() % bytes;
    const auto value = static_cast<std::uint8_t>(random());
    switch (random() % 3) {
      case 0: base_[at] = static_cast<std::uint8_t>(base_[at] ^ (1U << (value % 8U))); break;
      case 1: base_[at] = value; break;
      default: std::memset(base_ + at, value, std::min<std::size_t>(size_ - at, value)); break;
    }
  }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::uint8_t* base_ = nullptr;
  std::size_t size_ = 0;
};

void join(Host& host, Flood& active, Flood& passive) {
  active.post_receives();
  passive.post_receives();
  active.peer = passive.here();
  passive.peer = active.here();
  connect(host, active.endpoint, host, passive.endpoint);
}

bool on_the_ring(const Flood& flood) { return flood.endpoint.connection->info().path == "ring"; }

unsigned seed() {
  const char* given = std::getenv("WEFT_SEED");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 0))
                          : std::random_device()();
}

// What is changed in a round.
enum class Target : std::uint8_t { kControl, kPayload, kAll };

void change_under_load(unsigned seed, Target target) {
  Config config = plain_config();
  config.path = PathMode::kAuto;
  config.close_timeout = milliseconds(100);  // an end that was made deaf is not waited for
  Host host(config);
  Flood a(host, seed), b(host, seed + 1);
  join(host, a, b);
  ASSERT_TRUE(eventually([&] { return a.step() && b.step() && on_the_ring(a) && on_the_ring(b); }))
      << a.state() << "; " << b.state();
  Intruder intruder;
  ASSERT_TRUE(intruder.inside());
  std::atomic<int> at_work{2};
  std::atomic<bool> sound{true};
  const auto flood = [&](Flood& side) {
    for (int i = 0; i < 3000 && side.endpoint.qp->state() == QpState::kRts; ++i) {
      if (!side.step()) sound = false;
    }
    --at_work;
  };
  std::thread first([&] { flood(a); });
  std::thread second([&] { flood(b); });
  std::minstd_rand random(seed);
  const std::size_t begin = target == Target::kPayload ? kControlBytes : 0;
  const std::size_t end = target == Target::kControl ? kControlBytes : intruder.size();
  while (at_work != 0) {
    intruder.change(random, begin, end - begin);
    if (random() % 4 == 0) std::this_thread::yield();
  }
  first.join();
  second.join();
  // It may live still, or sleep for a peer that was made not to wake it.
  a.endpoint.connection->abort();
  EXPECT_TRUE(a.settle()) << a.state();
  EXPECT_TRUE(b.settle()) << b.state();
  EXPECT_TRUE(sound);
  EXPECT_TRUE(a.guards_intact() && b.guards_intact());
}

TEST(HostileRing, WhateverChangesUnderALiveConnectionEveryRequestCompletesOnce) {
  const unsigned first = seed();
  for (unsigned round = 0; round < 12; ++round) {
    SCOPED_TRACE("WEFT_SEED=" + std::to_string(first) + ", round " + std::to_string(round));
    change_under_load(first + 2 * round, static_cast<Target>(round % 3));
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  EXPECT_TRUE(eventually([] { return ring_mappings() == 0; })) << "a ring was left behind";
}

}  // namespace
}  // namespace weft::test
