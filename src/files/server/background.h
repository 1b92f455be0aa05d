// Work that may wait long for a file system: to reserve room for a file, to free that of one, to
// flush, or until a lease is given up. Threads do it, started as they are needed.
//
// One thread calls.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "os/fd.h"
#include "os/lock.h"

namespace weft::files {

class Background {
 public:
  class Job {
   public:
    Job() = default;
    virtual ~Job() = default;
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    virtual void work() noexcept = 0;  // on one of the threads
    virtual void done() = 0;           // then, from progress()
  };

  // Null, with errno, where there are no descriptors.
  [[nodiscard]] static std::unique_ptr<Background> create(std::size_t most_threads);
  // Waits for what is under way; what no thread has begun is dropped.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Readable when something is done.
  [[nodiscard]] int fd() const { return event_.get(); }
  // Without any thread the caller does it at once.
  void run(std::unique_ptr<Job> job);
  // Ends the jobs that are done; returns how many there were.
  std::size_t progress();

 private:
  explicit Background(std::size_t most_threads) : most_threads_(most_threads) {}
  void add_done(std::unique_ptr<Job> job);
  void serve();

  const std::size_t most_threads_;
  os::Fd event_;
  std::size_t pending_ = 0;  // run, and not yet ended
  std::vector<std::thread> threads_;
  os::Mutex mutex_;
  os::Condition has_job_;
  std::deque<std::unique_ptr<Job>> jobs_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Job>> done_ WEFT_GUARDED_BY(mutex_);
  std::size_t idle_ WEFT_GUARDED_BY(mutex_) = 0;  // threads that wait for a job
  bool ends_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::files
