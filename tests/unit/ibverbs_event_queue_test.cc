// The queue behind async_fd and rdma_cm channels: an entry and the token that makes the descriptor
// readable come and go together.
#include "ibverbs/ibv_event_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <list>
#include <thread>

namespace weft::ibverbs {
namespace {

bool readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

TEST(EventQueue, IsReadableWhileThereIsAnEntry) {
  EventQueue<int> queue;
  ASSERT_TRUE(queue.valid());
  EXPECT_FALSE(readable(queue.fd()));
  queue.push(1);
  queue.push(2);
  EXPECT_TRUE(readable(queue.fd()));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_TRUE(readable(queue.fd()));
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_FALSE(readable(queue.fd()));
}

TEST(EventQueue, WithoutEntriesObeysTheNonBlockingFlag) {
  EventQueue<int> queue;
  ASSERT_EQ(fcntl(queue.fd(), F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(EventQueue, APushThatIsNotWantedLeavesNoTrace) {
  EventQueue<int> queue;
  queue.push_if(1, [] { return false; });
  EXPECT_FALSE(readable(queue.fd()));
}

TEST(EventQueue, TakingOutLeavesTheTokensOfTheOthers) {
  EventQueue<int> queue;
  for (int i = 0; i < 6; ++i) queue.push(i);
  const auto odd = queue.take_if([](int entry) { return entry % 2 == 1; });
  EXPECT_EQ(odd, (std::list{1, 3, 5}));
  for (const int expected : {0, 2, 4}) EXPECT_EQ(queue.pop(), expected);
  EXPECT_FALSE(readable(queue.fd()));
}

// What a program with a loop over poll() does, while entries are taken out beside it: whenever the
// descriptor is readable, either there is an entry or somebody takes one out just now. A surplus
// token would stay forever: readable, and nothing to get.
TEST(EventQueue, IsNotReadableWithoutEntriesAfterPushesAndTakingOutAtOnce) {
  EventQueue<int> queue;
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> ready{0};
    const auto together = [&] {
      ++ready;
      while (ready.load() < 2) std::this_thread::yield();
    };
    std::thread pusher([&] {
      together();
      queue.push(round);
    });
    together();
    std::size_t taken = 0;
    taken += queue.take_if([](int) { return true; }).size();
    pusher.join();
    taken += queue.take_if([](int) { return true; }).size();
    EXPECT_EQ(taken, 1U);
    ASSERT_FALSE(readable(queue.fd())) << "round " << round;
  }
}

}  // namespace
}  // namespace weft::ibverbs
