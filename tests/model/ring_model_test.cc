// The rings against a deque, and from one thread to another.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>
#include <thread>

#include "../sim/rng.h"
#include "../sim/seeds.h"
#include "base/ring.h"
#include "proto/work.h"

namespace weft {
namespace {

using testing::for_each_seed;
using testing::Rng;

TEST(SpscRing, AgreesWithADeque) {
  for_each_seed(50, [&](std::uint64_t seed) {
    Rng rng(seed);
    SpscRing<std::uint64_t> ring(rng.size(1, 40));
    std::deque<std::uint64_t> model;
    std::uint64_t next = 0;
    for (int i = 0; i < 5000; ++i) {
      const std::size_t room = ring.capacity() - model.size();
      switch (rng.u32(0, 3)) {
        case 0:
          ASSERT_EQ(ring.push(next), room != 0);
          if (room != 0) model.push_back(next++);
          break;
        case 1: {
          const std::size_t count = rng.size(1, 5);
          ASSERT_EQ(ring.reserve(count - 1) != nullptr, count <= room);
          if (count > room) break;
          for (std::size_t k = 0; k < count; ++k) {
            *ring.reserve(k) = next;
            model.push_back(next++);
          }
          ring.commit(count);
          break;
        }
        case 2: {
          const std::size_t count = rng.size(1, 5);
          ASSERT_EQ(ring.peek(count - 1) != nullptr, count <= model.size());
          if (count > model.size()) break;
          for (std::size_t k = 0; k < count; ++k) ASSERT_EQ(*ring.peek(k), model[k]);
          ring.pop(count);
          model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(count));
          break;
        }
        default: ASSERT_EQ(ring.front() == nullptr, model.empty());
      }
      ASSERT_EQ(ring.size(), model.size());
      ASSERT_EQ(ring.empty(), model.empty());
      ASSERT_EQ(ring.full(), model.size() == ring.capacity());
    }
  });
}

TEST(SpscRing, PassesEverythingInOrderBetweenThreads) {
  constexpr std::uint64_t kCount = 50000;
  SpscRing<std::uint64_t> ring(64);
  std::jthread producer([&] {
    for (std::uint64_t i = 0; i < kCount;) {
      if (ring.push(i)) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (std::uint64_t i = 0; i < kCount;) {
    const std::uint64_t* front = ring.front();
    if (front == nullptr) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(*front, i++);
    ring.pop();
  }
}

using proto::SendWqe;

// A slot with its tail, filled with a number.
void fill(SendWqe& wqe, std::uint64_t n, std::size_t tail) {
  wqe.wr_id = n;
  std::memset(wqe.inline_data(), static_cast<int>(n & 0xffU), tail);
}
bool holds(SendWqe& wqe, std::uint64_t n, std::size_t tail) {
  if (wqe.wr_id != n) return false;
  for (std::size_t i = 0; i < tail; ++i) {
    if (wqe.inline_data()[i] != static_cast<std::uint8_t>(n & 0xffU)) return false;
  }
  return true;
}

TEST(WorkRing, AgreesWithADequeAndKeepsTheTailsApart) {
  for_each_seed(50, [&](std::uint64_t seed) {
    Rng rng(seed);
    proto::SendQueue ring;
    const std::uint32_t depth = rng.u32(1, 40);
    ASSERT_TRUE(ring.allocate(depth, rng.size(0, 100)));
    ASSERT_GE(ring.capacity(), depth);
    const std::size_t tail = ring.tail_bytes();
    std::deque<std::uint64_t> model;
    std::uint64_t next = 1;
    for (int i = 0; i < 3000; ++i) {
      const std::size_t room = ring.capacity() - model.size();
      if (rng.one_in(2)) {
        const std::uint32_t count = rng.u32(1, 3);
        ASSERT_EQ(ring.reserve(count - 1) != nullptr, count <= room);
        if (count > room) continue;
        for (std::uint32_t k = 0; k < count; ++k) {
          fill(*ring.reserve(k), next, tail);
          model.push_back(next++);
        }
        ring.commit(count);
      } else if (!model.empty()) {
        ASSERT_TRUE(holds(ring.at(ring.head()), model.front(), tail));
        ASSERT_TRUE(holds(ring.at(ring.tail() - 1), model.back(), tail));
        ring.retire();
        model.pop_front();
      }
      ASSERT_EQ(ring.size(), model.size());
    }
  });
}

TEST(WorkRing, PassesEverythingInOrderBetweenThreads) {
  constexpr std::uint64_t kCount = 20000;
  proto::SendQueue ring;
  ASSERT_TRUE(ring.allocate(32, 64));
  std::jthread producer([&] {
    for (std::uint64_t i = 0; i < kCount;) {
      if (SendWqe* wqe = ring.reserve(); wqe != nullptr) {
        fill(*wqe, i++, 64);
        ring.commit();
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (std::uint64_t i = 0; i < kCount;) {
    if (ring.head() == ring.tail()) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_TRUE(holds(ring.at(ring.head()), i++, 64));
    ring.retire();
  }
}

}  // namespace
}  // namespace weft
