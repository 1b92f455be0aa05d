// Work that may wait long for a file system: to reserve room for a file, to free that of one, to
// flush, or until a lease is given up. Threads do it, started as they are needed.
//
// One thread calls.
#pragma once

#include <cstddef>
#include <memory>

#include "os/fd.h"
#include "os/job_threads.h"

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
  // Readable when something is done.
  [[nodiscard]] int fd() const { return event_.get(); }
  // Without any thread the caller does it at once.
  void run(std::unique_ptr<Job> job);
  // Ends the jobs that are done; returns how many there were.
  std::size_t progress();

 private:
  using Threads = os::JobThreads<std::unique_ptr<Job>>;
  explicit Background(std::size_t most_threads);

  os::Fd event_;
  Threads::Ptr threads_;
  std::size_t pending_ = 0;  // run, and not yet ended
};

}  // namespace weft::files
