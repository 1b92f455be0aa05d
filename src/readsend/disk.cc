#include "readsend/disk.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace weft::readsend {

tl::expected<std::unique_ptr<Disk>, int> Disk::create(unsigned depth) {
  std::unique_ptr<Disk> disk(new Disk(depth));
  if (const int error = io_uring_queue_init(depth, &disk->ring_, 0); error < 0) {
    disk->ring_.ring_fd = -1;
    return tl::unexpected(-error);
  }
  disk->event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (disk->event_ < 0) return tl::unexpected(errno);
  if (const int error = io_uring_register_eventfd(&disk->ring_, disk->event_); error < 0) {
    return tl::unexpected(-error);
  }
  return disk;
}

Disk::~Disk() {
  if (ring_.ring_fd > 0) io_uring_queue_exit(&ring_);
  if (event_ >= 0) close(event_);
}

io_uring_sqe* Disk::next(Waiter& waiter) {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {
    io_uring_submit(&ring_);
    sqe = io_uring_get_sqe(&ring_);
  }
  io_uring_sqe_set_data(sqe, &waiter);
  ++pending_;
  queued_ = true;
  return sqe;
}

void Disk::read(int fd, void* to, std::uint32_t bytes, std::uint64_t offset, Waiter& waiter) {
  io_uring_sqe* sqe = next(waiter);
  io_uring_prep_read(sqe, fd, to, bytes, offset);
  io_uring_sqe_set_data(sqe, &waiter);
}

void Disk::write(int fd, const void* from, std::uint32_t bytes, std::uint64_t offset,
                 Waiter& waiter) {
  io_uring_sqe* sqe = next(waiter);
  io_uring_prep_write(sqe, fd, from, bytes, offset);
  io_uring_sqe_set_data(sqe, &waiter);
}

void Disk::sync(int fd, Waiter& waiter) {
  io_uring_sqe* sqe = next(waiter);
  io_uring_prep_fsync(sqe, fd, 0);
  io_uring_sqe_set_data(sqe, &waiter);
}

std::size_t Disk::progress() {
  if (queued_) {
    queued_ = false;
    // A kernel short of memory takes them later: they stay in the queue.
    if (io_uring_submit(&ring_) < 0) queued_ = true;
  }
  std::size_t count = 0;
  io_uring_cqe* cqe = nullptr;
  while (io_uring_peek_cqe(&ring_, &cqe) == 0 && cqe != nullptr) {
    auto* waiter = static_cast<Waiter*>(io_uring_cqe_get_data(cqe));
    const std::int64_t result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    --pending_;
    ++count;
    waiter->disk_done(result);
  }
  return count;
}

void Disk::clear_event() const {
  std::uint64_t count = 0;
  static_cast<void>(::read(event_, &count, sizeof count));
}

}  // namespace weft::readsend
