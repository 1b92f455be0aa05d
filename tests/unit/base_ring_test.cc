#include "base/ring.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

namespace weft {
namespace {

TEST(SpscRing, RoundsCapacityUpToAPowerOfTwo) {
  EXPECT_EQ(SpscRing<int>(1).capacity(), 1U);
  EXPECT_EQ(SpscRing<int>(5).capacity(), 8U);
  EXPECT_EQ(SpscRing<int>(8).capacity(), 8U);
}

TEST(SpscRing, GivesEntriesBackInOrder) {
  SpscRing<int> ring(4);
  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.front(), nullptr);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ring.push(i));
  EXPECT_EQ(ring.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    ASSERT_NE(ring.front(), nullptr);
    EXPECT_EQ(*ring.front(), i);
    ring.pop();
  }
  EXPECT_TRUE(ring.empty());
}

TEST(SpscRing, RefusesTheEntryThatDoesNotFitAndKeepsTheRest) {
  SpscRing<int> ring(2);
  EXPECT_TRUE(ring.push(1));
  EXPECT_TRUE(ring.push(2));
  EXPECT_TRUE(ring.full());
  EXPECT_FALSE(ring.push(3));
  EXPECT_EQ(ring.size(), 2U);
  ring.pop();
  EXPECT_FALSE(ring.full());
  EXPECT_TRUE(ring.push(3));
  EXPECT_EQ(*ring.front(), 2);
  ring.pop();
  EXPECT_EQ(*ring.front(), 3);
}

TEST(SpscRing, KeepsOrderOverManyLaps) {
  SpscRing<int> ring(3);
  int next_in = 0;
  int next_out = 0;
  for (int round = 0; round < 1000; ++round) {
    while (next_in - next_out < 1 + round % 4) ASSERT_TRUE(ring.push(next_in++));
    ASSERT_EQ(*ring.front(), next_out++);
    ring.pop();
  }
}

TEST(SpscRing, ConsumerLooksAheadWithoutTaking) {
  SpscRing<int> ring(4);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ring.push(i * 10));
  EXPECT_EQ(*ring.peek(2), 20);
  EXPECT_EQ(ring.peek(3), nullptr);
  *ring.peek(1) = 11;
  ring.pop();
  EXPECT_EQ(*ring.front(), 11);
  ring.pop(2);
  EXPECT_TRUE(ring.empty());
}

TEST(SpscRing, ProducerFillsSlotsInPlaceAndPublishesThemTogether) {
  SpscRing<int> ring(4);
  *ring.reserve(0) = 7;
  *ring.reserve(1) = 8;
  EXPECT_TRUE(ring.empty());
  ring.commit(2);
  EXPECT_EQ(ring.size(), 2U);
  EXPECT_EQ(*ring.peek(1), 8);
  EXPECT_NE(ring.reserve(1), nullptr);
  EXPECT_EQ(ring.reserve(2), nullptr);
}

struct Huge {
  unsigned char bytes[std::size_t{1} << 20];
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if !defined(__has_feature)
#define WEFT_PLAIN_ALLOCATOR 1
#elif !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define WEFT_PLAIN_ALLOCATOR 1
#endif
#endif

#if defined(WEFT_PLAIN_ALLOCATOR)  // the sanitizers' allocators end the program instead
TEST(SpscRing, HasNoRoomAtAllWhenMemoryIsNotThere) {
  SpscRing<Huge> ring(std::size_t{1} << 31);
  EXPECT_EQ(ring.capacity(), 0U);
  EXPECT_TRUE(ring.full());
  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.reserve(), nullptr);
  EXPECT_EQ(ring.front(), nullptr);
}
#endif

TEST(SpscRing, TwoThreadsLoseAndInventNothing) {
  constexpr std::uint64_t kCount = 100000;
  struct Entry {
    std::uint64_t number = 0;
    std::uint64_t square = 0;
  };
  SpscRing<Entry> ring(64);
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < kCount;) {
      if (ring.push({i, i * i})) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kCount;) {
    const Entry* e = ring.front();
    if (e == nullptr) {
      std::this_thread::yield();
      continue;
    }
    if (e->number != i || e->square != i * i) ++wrong;
    ring.pop();
    ++i;
  }
  producer.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace weft
