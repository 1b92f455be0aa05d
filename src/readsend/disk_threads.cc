#include "readsend/disk_threads.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace weft::readsend {

tl::expected<std::unique_ptr<Disk>, int> ThreadDisk::create(unsigned depth) {
  std::unique_ptr<ThreadDisk> disk(new ThreadDisk(depth));
  if (const int error = disk->open_event(); error != 0) return tl::unexpected(error);
  disk->threads_->raises(disk->fd());
  return disk;
}

void ThreadDisk::read(int fd, void* to, std::uint32_t bytes, std::uint64_t offset, Waiter& waiter) {
  queued();
  Job job{Kind::kRead, fd, to, bytes, offset, &waiter, 0};
  const iovec part{to, bytes};
  // Fails where it would have to wait, and on file systems that cannot tell.
  job.result = preadv2(fd, &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  if (job.result < 0) return threads_->run(job);
  threads_->add_done(job);
}

void ThreadDisk::write(int fd, const void* from, std::uint32_t bytes, std::uint64_t offset,
                       Waiter& waiter) {
  queued();
  threads_->run({Kind::kWrite, fd, const_cast<void*>(from), bytes, offset, &waiter, 0});
}

void ThreadDisk::sync(int fd, Waiter& waiter) {
  queued();
  threads_->run({Kind::kSync, fd, nullptr, 0, 0, &waiter, 0});
}

void ThreadDisk::carry_out(Job& job) noexcept {
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

std::size_t ThreadDisk::progress() {
  const auto done = threads_->take_done();
  for (const Job& job : done) finish(*job.waiter, job.result);
  return done.size();
}

}  // namespace weft::readsend
