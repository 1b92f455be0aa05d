#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "os/signal_queue.h"

namespace weft::os {
namespace {

using namespace std::chrono_literals;

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

void set_non_blocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

using Numbers = SignalQueue<int>;

std::unique_ptr<Numbers> numbers() { return std::move(*Numbers::create()); }

TEST(SignalQueue, IsReadableExactlyWhileSomethingIsInIt) {
  const auto s = numbers();
  EXPECT_FALSE(readable(s->fd()));
  s->push(1);
  s->push(2);
  EXPECT_TRUE(readable(s->fd()));
  EXPECT_EQ(s->try_pop(), 1);
  EXPECT_TRUE(readable(s->fd()));
  EXPECT_EQ(s->try_pop(), 2);
  EXPECT_FALSE(readable(s->fd()));
  EXPECT_EQ(s->try_pop(), std::nullopt);
  s->push(3);
  EXPECT_TRUE(readable(s->fd()));
}

TEST(SignalQueue, TakesOnlyWhatIsWanted) {
  auto s = std::move(*SignalQueue<int>::create());
  s->push_if(1, true, [] { return false; });
  EXPECT_EQ(s->size(), 0U);
  EXPECT_FALSE(s->try_pop());
  s->push_if(2, true, [] { return true; });
  int counted = 0;
  EXPECT_EQ(s->try_pop([&](int item) { counted += item; }), 2);
  EXPECT_EQ(counted, 2);
}

TEST(SignalQueue, ShowsOnRequestWhatWasPushedUnshown) {
  const auto s = numbers();
  s->push_if(1, false, [] { return true; });
  EXPECT_FALSE(readable(s->fd()));
  EXPECT_EQ(s->try_pop(), 1);
  s->show();
  EXPECT_FALSE(readable(s->fd())) << "nothing is in it";
  s->push_if(2, false, [] { return true; });
  s->push_if(3, false, [] { return true; });
  EXPECT_EQ(s->try_pop(), 2);
  s->show();
  EXPECT_TRUE(readable(s->fd()));
  EXPECT_EQ(s->try_pop(), 3);
  EXPECT_FALSE(readable(s->fd()));
  s->push_if(4, false, [] { return true; });
  s->push(5);
  EXPECT_TRUE(readable(s->fd()));
  EXPECT_EQ(s->take_if([](int) { return true; }).size(), 2U);
  EXPECT_FALSE(readable(s->fd()));
}

TEST(SignalQueue, NonBlockingFlagOfTheDescriptorDecidesHowToWaitWithoutLimit) {
  const auto s = numbers();
  set_non_blocking(s->fd());
  const auto nothing = s->next(std::nullopt);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error(), Error::kTimedOut);
  s->push(7);
  EXPECT_EQ(s->next(std::nullopt).value_or(0), 7);
}

TEST(SignalQueue, BlockingWaitEndsWithTheFirstItem) {
  const auto s = numbers();
  std::thread pusher([&] {
    std::this_thread::sleep_for(10ms);
    s->push(5);
  });
  EXPECT_EQ(s->next(std::nullopt).value_or(0), 5);
  pusher.join();
}

TEST(SignalQueue, TimeLimitHoldsOnABlockingDescriptorToo) {
  const auto s = numbers();
  for (const auto limit : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(5ms)}) {
    const auto nothing = s->next(limit);
    ASSERT_FALSE(nothing);
    EXPECT_EQ(nothing.error(), Error::kTimedOut);
  }
}

TEST(SignalQueue, InterruptedWaitSaysSo) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction before {};
  sigaction(SIGUSR2, &action, &before);
  const auto s = numbers();
  const pthread_t self = pthread_self();
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    while (!stop) {
      pthread_kill(self, SIGUSR2);
      std::this_thread::sleep_for(1ms);
    }
  });
  const auto aborted = s->next(std::nullopt);
  stop = true;
  sender.join();
  sigaction(SIGUSR2, &before, nullptr);
  ASSERT_FALSE(aborted);
  EXPECT_EQ(aborted.error(), Error::kAborted);
}

TEST(SignalQueue, ItemsAreTakenOnceByManyTakers) {
  const auto s = numbers();
  constexpr int kItems = 2000;
  std::atomic<int> sum{0};
  std::atomic<int> taken{0};
  std::vector<std::thread> takers;
  for (int t = 0; t < 3; ++t) {
    takers.emplace_back([&] {
      while (auto item = s->next(2s)) {
        if (*item < 0) return;
        sum += *item;
        ++taken;
      }
    });
  }
  for (int i = 0; i < kItems; ++i) s->push(i);
  for (int t = 0; t < 3; ++t) s->push(-1);
  for (auto& t : takers) t.join();
  EXPECT_EQ(taken, kItems);
  EXPECT_EQ(sum, kItems * (kItems - 1) / 2);
}

TEST(SignalQueue, ReaderBehindOurBackDoesNotMakeUsSleep) {
  const auto s = numbers();
  s->push(1);
  std::uint64_t count = 0;
  ASSERT_EQ(read(s->fd(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
  EXPECT_EQ(s->try_pop(), 1);
  s->push(2);
  EXPECT_TRUE(readable(s->fd()));
}

TEST(SignalQueue, TakeIfKeepsOrderOfBothParts) {
  const auto s = numbers();
  for (int i = 0; i < 6; ++i) s->push(i);
  const auto even = s->take_if([](int i) { return i % 2 == 0; });
  EXPECT_EQ(even, (std::list<int>{0, 2, 4}));
  EXPECT_TRUE(readable(s->fd()));
  const auto rest = s->take_if([](int) { return true; });
  EXPECT_EQ(rest, (std::list<int>{1, 3, 5}));
  EXPECT_FALSE(readable(s->fd()));
}

TEST(SignalQueue, PushBelowKeepsTheLimit) {
  const auto s = numbers();
  EXPECT_TRUE(s->push_below(1, 2));
  EXPECT_TRUE(s->push_below(2, 2));
  EXPECT_FALSE(s->push_below(3, 2));
  EXPECT_EQ(s->size(), 2U);
}

}  // namespace
}  // namespace weft::os
