#include "os/job_threads.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "os/event_fd.h"

namespace weft::os {
namespace {

using Threads = JobThreads<int>;

TEST(JobThreads, EachJobIsDoneOnce) {
  constexpr int kJobs = 200;
  const Fd event = make_event();
  Threads threads(4, [](int& job) noexcept { ++job; });
  threads.raises(event.get());
  for (int job = 0; job < kJobs; ++job) threads.run(job);
  std::vector<int> times(kJobs + 1);
  for (std::size_t done = 0; done < kJobs;) {
    for (const int job : threads.take_done_and_lower()) {
      ++times.at(static_cast<std::size_t>(job));
      ++done;
    }
  }
  for (int job = 1; job <= kJobs; ++job) EXPECT_EQ(times[static_cast<std::size_t>(job)], 1);
}

// Else a loop that sleeps on the event does not sleep any more.
TEST(JobThreads, WhereAllIsTakenTheEventIsNotRaised) {
  constexpr int kRounds = 100;
  const Fd event = make_event();
  for (int round = 0; round < kRounds; ++round) {
    {
      Threads threads(1, [](int&) noexcept {});
      threads.raises(event.get());
      threads.run(round);
      while (threads.take_done_and_lower().empty()) {
      }
    }
    ASSERT_FALSE(lower_event(event.get())) << "round " << round;
  }
}

}  // namespace
}  // namespace weft::os
