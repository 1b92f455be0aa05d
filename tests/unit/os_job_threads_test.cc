#include "os/job_threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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

// Its threads are not there, and those that wait are not woken.
TEST(JobThreads, AChildOfForkDoesNotWaitForThem) {
  constexpr unsigned kLimitS = 60;
  const Fd event = make_event();
  auto threads = Threads::make(1, [](int&) noexcept {});
  threads->raises(event.get());
  threads->run(1);
  while (threads->take_done().empty()) {
  }
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(kLimitS);
    threads.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace weft::os
