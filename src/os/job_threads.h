// Threads for jobs that may wait long in the kernel: started as they are needed, up to a limit. An
// event tells that some are done.
//
// One thread calls. A Job is a value that can be moved; the threads call `work` for it.
#pragma once

#include <cstddef>
#include <exception>
#include <list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "os/event_fd.h"
#include "os/fork.h"
#include "os/lock.h"
#include "os/signals_blocked.h"

namespace weft::os {

template <class Job>
class JobThreads {
  struct End {
    ForkGuard made_here;
    void operator()(JobThreads* threads) const {
      if (!made_here.forked()) delete threads;
    }
  };

 public:
  using Work = void (*)(Job& job) noexcept;
  // In a child of fork() it leaves them alone: the threads are not there to be waited for.
  using Ptr = std::unique_ptr<JobThreads, End>;

  [[nodiscard]] static Ptr make(std::size_t most_threads, Work work) {
    return Ptr(new JobThreads(most_threads, work));
  }
  JobThreads(std::size_t most_threads, Work work) noexcept
      : most_threads_(most_threads), work_(work) {}
  // Waits for what is under way; what no thread has begun is dropped.
  ~JobThreads() {
    std::list<Job> dropped;  // goes without the lock
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

  // Without any thread the caller does it at once. Throws where there is no memory for the job;
  // once it is taken it needs none.
  void run(Job job) {
    std::list<Job> one;
    one.push_back(std::move(job));
    bool more = false;
    {
      const MutexLock lock(mutex_);
      jobs_.splice(jobs_.end(), one);
      more = jobs_.size() > idle_ && threads_.size() < most_threads_;
    }
    has_job_.notify_one();
    if (more && !start() && threads_.empty()) do_last();
  }

  // One that the caller has done itself.
  void add_done(Job job) {
    std::list<Job> one;
    one.push_back(std::move(job));
    note_done(one);
  }

  // The jobs done since the last time, in order. The event is the caller's to lower, before this.
  [[nodiscard]] std::list<Job> take_done() {
    const MutexLock lock(mutex_);
    return std::exchange(done_, {});
  }
  // The same, and lowers the event if there is something.
  [[nodiscard]] std::list<Job> take_done_and_lower() {
    const MutexLock lock(mutex_);
    // With the lock: a job that is added to the empty list raises it again.
    if (!done_.empty()) static_cast<void>(lower_event(event_));
    return std::exchange(done_, {});
  }

 private:
  // False: there is no thread or no memory to be had.
  [[nodiscard]] bool start() noexcept {
    try {
      threads_.reserve(threads_.size() + 1);  // before the thread runs
      threads_.push_back(start_thread([this] { serve(); }));
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }

  void do_last() noexcept {
    std::list<Job> mine;
    {
      const MutexLock lock(mutex_);
      mine.splice(mine.end(), jobs_, --jobs_.end());
    }
    work_(mine.front());
    note_done(mine);
  }

  void note_done(std::list<Job>& one) noexcept {
    const MutexLock lock(mutex_);
    // With the lock: else somebody takes the list in between, and an event without jobs stays.
    if (done_.empty()) raise_event(event_);
    done_.splice(done_.end(), one);
  }

  void serve() {
    MutexLock lock(mutex_);
    for (;;) {
      ++idle_;
      while (!ends_ && jobs_.empty()) has_job_.wait(mutex_);
      --idle_;
      if (ends_) return;
      std::list<Job> mine;
      mine.splice(mine.end(), jobs_, jobs_.begin());
      lock.unlock();
      work_(mine.front());
      note_done(mine);
      lock.lock();
    }
  }

  const std::size_t most_threads_;
  const Work work_;
  int event_ = -1;
  std::vector<std::thread> threads_;
  Mutex mutex_;
  Condition has_job_;
  std::list<Job> jobs_ WEFT_GUARDED_BY(mutex_);
  std::list<Job> done_ WEFT_GUARDED_BY(mutex_);
  std::size_t idle_ WEFT_GUARDED_BY(mutex_) = 0;  // threads that wait for a job
  bool ends_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::os
