// Reading, writing and flushing of files without waiting for the disk: io_uring.
//
// One thread. Requests are handed to the kernel by submit(), many with one system call.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>
#include <tl/expected.hpp>

namespace weft::readsend {

class Disk {
 public:
  // Who gets to know that a request is done. `result`: octets, or a negative errno.
  class Waiter {
   public:
    virtual void disk_done(std::int64_t result) = 0;

   protected:
    ~Waiter() = default;
  };

  // Fails with an errno.   ENOSYS, EPERM: this kernel has no io_uring, or forbids it
  [[nodiscard]] static tl::expected<std::unique_ptr<Disk>, int> create(unsigned depth);
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  // Readable (an eventfd) when something is done.
  [[nodiscard]] int fd() const { return event_; }

  // Queue a request. The buffer lives until the waiter was called. has_room() is false when a
  // caller who can wait should.
  [[nodiscard]] bool has_room() const { return pending_ < depth_; }
  void read(int fd, void* to, std::uint32_t bytes, std::uint64_t offset, Waiter& waiter);
  void write(int fd, const void* from, std::uint32_t bytes, std::uint64_t offset, Waiter& waiter);
  void sync(int fd, Waiter& waiter);  // fsync

  // Hands over what was queued, then tells the waiters of what is done; returns how many those
  // were.
  std::size_t progress();
  [[nodiscard]] unsigned pending() const { return pending_; }
  void clear_event() const;

 private:
  explicit Disk(unsigned depth) : depth_(depth) {}
  [[nodiscard]] io_uring_sqe* next(Waiter& waiter);

  io_uring ring_{};
  int event_ = -1;
  unsigned depth_;
  unsigned pending_ = 0;
  bool queued_ = false;
};

}  // namespace weft::readsend
