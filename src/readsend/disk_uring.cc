#include "readsend/disk_uring.h"

namespace weft::readsend {

tl::expected<std::unique_ptr<Disk>, int> UringDisk::create(unsigned depth) {
  std::unique_ptr<UringDisk> disk(new UringDisk(depth));
  if (const int error = io_uring_queue_init(depth, &disk->ring_, 0); error < 0) {
    return tl::unexpected(-error);
  }
  disk->has_ring_ = true;
  if (const int error = disk->open_event(); error != 0) return tl::unexpected(error);
  if (const int error = io_uring_register_eventfd(&disk->ring_, disk->fd()); error < 0) {
    return tl::unexpected(-error);
  }
  return disk;
}

UringDisk::~UringDisk() {
  if (has_ring_) io_uring_queue_exit(&ring_);
}

io_uring_sqe* UringDisk::next() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {
    io_uring_submit(&ring_);
    sqe = io_uring_get_sqe(&ring_);
  }
  return sqe;
}

void UringDisk::submit_for(io_uring_sqe* sqe, Waiter& waiter) {
  io_uring_sqe_set_data(sqe, &waiter);
  queued();
  unsubmitted_ = true;
}

void UringDisk::read(int fd, void* to, std::uint32_t bytes, std::uint64_t offset, Waiter& waiter) {
  io_uring_sqe* sqe = next();
  io_uring_prep_read(sqe, fd, to, bytes, offset);
  submit_for(sqe, waiter);
}

void UringDisk::write(int fd, const void* from, std::uint32_t bytes, std::uint64_t offset,
                      Waiter& waiter) {
  io_uring_sqe* sqe = next();
  io_uring_prep_write(sqe, fd, from, bytes, offset);
  submit_for(sqe, waiter);
}

void UringDisk::sync(int fd, Waiter& waiter) {
  io_uring_sqe* sqe = next();
  io_uring_prep_fsync(sqe, fd, 0);
  submit_for(sqe, waiter);
}

std::size_t UringDisk::progress() {
  if (unsubmitted_) {
    unsubmitted_ = false;
    // A kernel short of memory takes them later: they stay in the queue.
    if (io_uring_submit(&ring_) < 0) unsubmitted_ = true;
  }
  std::size_t count = 0;
  io_uring_cqe* cqe = nullptr;
  while (io_uring_peek_cqe(&ring_, &cqe) == 0 && cqe != nullptr) {
    auto* waiter = static_cast<Waiter*>(io_uring_cqe_get_data(cqe));
    const std::int64_t result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    ++count;
    finish(*waiter, result);
  }
  return count;
}

}  // namespace weft::readsend
