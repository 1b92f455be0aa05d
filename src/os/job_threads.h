// Threads for jobs that may wait long in the kernel: started as they are needed, up to a limit. An
// event tells that some are done.
//
// One thread calls. A Job is a value that can be moved; the threads call `work` for it.
#pragma once

#include <cstddef>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "os/event_fd.h"
#include "os/lock.h"
#include "os/signals_blocked.h"

namespace weft::os {

template <class Job>
class JobThreads {
 public:
  using Work = void (*)(Job& job) noexcept;

  JobThreads(std::size_t most_threads, Work work) noexcept
      : most_threads_(most_threads), work_(work) {}
  // Waits for what is under way; what no thread has begun is dropped.
  ~JobThreads() {
    std::deque<Job> dropped;  // goes without the lock
    {
      const MutexLock lock(mutex_);
      ends_ = true;
      dropped.swap(jobs_);
    }
    has_job_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  JobThreads(const JobThreads&) = delete;
  JobThreads& operator=(const JobThreads&) = delete;

  // Once, before the first job: an eventfd, which is raised when the first job of a list is done.
  void raises(int event) noexcept { event_ = event; }

  // Without any thread the caller does it at once.
  void run(Job job) {
    bool more = false;
    {
      const MutexLock lock(mutex_);
      jobs_.push_back(std::move(job));
      more = jobs_.size() > idle_ && threads_.size() < most_threads_;
    }
    has_job_.notify_one();
    if (more && !start() && threads_.empty()) do_last();
  }

  // One that the caller has done itself.
  void add_done(Job job) {
    bool first = false;
    {
      const MutexLock lock(mutex_);
      first = done_.empty();
      done_.push_back(std::move(job));
    }
    if (first) raise_event(event_);
  }

  // The jobs done since the last time, in order. The event is the caller's to lower, before this.
  [[nodiscard]] std::vector<Job> take_done() {
    const MutexLock lock(mutex_);
    return std::exchange(done_, {});
  }
  // The same, and lowers the event if there is something.
  [[nodiscard]] std::vector<Job> take_done_and_lower() {
    const MutexLock lock(mutex_);
    // With the lock: a job that is added to the empty list raises it again.
    if (!done_.empty()) static_cast<void>(lower_event(event_));
    return std::exchange(done_, {});
  }

 private:
  // False: the system gives no thread.
  [[nodiscard]] bool start() {
    try {
      threads_.push_back(start_thread([this] { serve(); }));
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  void do_last() {
    Job job = take_last();
    work_(job);
    add_done(std::move(job));
  }
  [[nodiscard]] Job take_last() {
    const MutexLock lock(mutex_);
    Job job = std::move(jobs_.back());
    jobs_.pop_back();
    return job;
  }

  void serve() {
    MutexLock lock(mutex_);
    for (;;) {
      ++idle_;
      while (!ends_ && jobs_.empty()) has_job_.wait(mutex_);
      --idle_;
      if (ends_) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      work_(job);
      add_done(std::move(job));
      lock.lock();
    }
  }

  const std::size_t most_threads_;
  const Work work_;
  int event_ = -1;
  std::vector<std::thread> threads_;
  Mutex mutex_;
  Condition has_job_;
  std::deque<Job> jobs_ WEFT_GUARDED_BY(mutex_);
  std::vector<Job> done_ WEFT_GUARDED_BY(mutex_);
  std::size_t idle_ WEFT_GUARDED_BY(mutex_) = 0;  // threads that wait for a job
  bool ends_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::os
