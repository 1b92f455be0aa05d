// The disk by io_uring.
#pragma once

#include <liburing.h>

#include "readsend/disk.h"

namespace weft::readsend {

class UringDisk final : public Disk {
 public:
  [[nodiscard]] static tl::expected<std::unique_ptr<Disk>, int> create(unsigned depth);
  ~UringDisk() override;
  UringDisk(const UringDisk&) = delete;
  UringDisk& operator=(const UringDisk&) = delete;

  void read(int fd, void* to, std::uint32_t bytes, std::uint64_t offset, Waiter& waiter) override;
  void write(int fd, const void* from, std::uint32_t bytes, std::uint64_t offset,
             Waiter& waiter) override;
  void sync(int fd, Waiter& waiter) override;
  std::size_t progress() override;

 private:
  explicit UringDisk(unsigned depth) : Disk(depth, Engine::kUring) {}
  [[nodiscard]] io_uring_sqe* next();
  void submit_for(io_uring_sqe* sqe, Waiter& waiter);

  io_uring ring_{};
  bool has_ring_ = false;
  bool unsubmitted_ = false;
};

}  // namespace weft::readsend
