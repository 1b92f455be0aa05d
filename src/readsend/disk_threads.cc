#include "readsend/disk_threads.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "os/event_fd.h"
#include "os/signals_blocked.h"

namespace weft::readsend {

tl::expected<std::unique_ptr<Disk>, int> ThreadDisk::create(unsigned depth) {
  std::unique_ptr<ThreadDisk> disk(new ThreadDisk(depth));
  if (const int error = disk->open_event(); error != 0) return tl::unexpected(error);
  return disk;
}

ThreadDisk::~ThreadDisk() {
  {
    const os::MutexLock lock(mutex_);
    ends_ = true;
    jobs_.clear();
  }
  has_job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadDisk::read(int fd, void* to, std::uint32_t bytes, std::uint64_t offset, Waiter& waiter) {
  queued();
  Job job{Kind::kRead, fd, to, bytes, offset, &waiter, 0};
  const iovec part{to, bytes};
  // Fails where it would have to wait, and on file systems that cannot tell.
  job.result = preadv2(fd, &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  if (job.result < 0) return hand_over(job);
  add_done(job);
}

void ThreadDisk::write(int fd, const void* from, std::uint32_t bytes, std::uint64_t offset,
                       Waiter& waiter) {
  queued();
  hand_over({Kind::kWrite, fd, const_cast<void*>(from), bytes, offset, &waiter, 0});
}

void ThreadDisk::sync(int fd, Waiter& waiter) {
  queued();
  hand_over({Kind::kSync, fd, nullptr, 0, 0, &waiter, 0});
}

void ThreadDisk::carry_out(Job& job) {
  const auto offset = static_cast<off_t>(job.offset);
  do {
    switch (job.kind) {
      case Kind::kRead:
        job.result = pread(job.fd, job.at, job.bytes, offset);
        // As io_uring: an offset means nothing to a pipe.
        if (job.result < 0 && errno == ESPIPE) job.result = ::read(job.fd, job.at, job.bytes);
        break;
      case Kind::kWrite: job.result = pwrite(job.fd, job.at, job.bytes, offset); break;
      case Kind::kSync: job.result = fsync(job.fd); break;
    }
  } while (job.result < 0 && errno == EINTR);
  if (job.result < 0) job.result = -errno;
}

void ThreadDisk::hand_over(Job job) {
  bool more = false;
  {
    const os::MutexLock lock(mutex_);
    jobs_.push_back(job);
    more = jobs_.size() > idle_ && threads_.size() < kMaxThreads;
  }
  has_job_.notify_one();
  if (!more) return;
  try {
    threads_.push_back(os::start_thread([this] { work(); }));
  } catch (const std::system_error&) {
    // Those that there are do it; without any, the caller.
    if (!threads_.empty()) return;
    {
      const os::MutexLock lock(mutex_);
      job = jobs_.back();
      jobs_.pop_back();
    }
    carry_out(job);
    add_done(job);
  }
}

void ThreadDisk::add_done(const Job& job) {
  bool first = false;
  {
    const os::MutexLock lock(mutex_);
    first = done_.empty();
    done_.push_back(job);
  }
  if (first) os::raise_event(fd());
}

void ThreadDisk::work() {
  os::MutexLock lock(mutex_);
  for (;;) {
    ++idle_;
    while (!ends_ && jobs_.empty()) has_job_.wait(mutex_);
    --idle_;
    if (ends_) return;
    Job job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    carry_out(job);
    add_done(job);
    lock.lock();
  }
}

std::size_t ThreadDisk::progress() {
  std::vector<Job> done;
  {
    const os::MutexLock lock(mutex_);
    done.swap(done_);
  }
  for (const Job& job : done) finish(*job.waiter, job.result);
  return done.size();
}

}  // namespace weft::readsend
