// Reading, writing and flushing of files without waiting for the disk: by io_uring, or by a pool of
// threads where the kernel has none or forbids it, as Docker's default seccomp profile does.
//
// One thread calls. Requests are handed over by progress(), many with one system call.
#pragma once

#include <cstdint>
#include <memory>
#include <tl/expected.hpp>

#include "os/fd.h"

namespace weft::readsend {

class Disk {
 public:
  // Is told that a request is done. `result`: octets, or a negative errno.
  class Waiter {
   public:
    virtual void disk_done(std::int64_t result) = 0;

   protected:
    ~Waiter() = default;
  };

  enum class Engine : std::uint8_t {
    kBest,  // io_uring, or else threads
    kUring,
    kThreads,
  };

  // Fails with an errno.   ENOSYS, EPERM: kUring, and this kernel has no io_uring or forbids it
  [[nodiscard]] static tl::expected<std::unique_ptr<Disk>, int> create(
      unsigned depth, Engine engine = Engine::kBest);
  virtual ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  // kUring or kThreads.
  [[nodiscard]] Engine engine() const { return engine_; }

  // Readable (an eventfd) when something is done.
  [[nodiscard]] int fd() const { return event_.get(); }

  // Queue a request. The buffer lives until the waiter was called. has_room() is false when a
  // caller who can wait should.
  [[nodiscard]] bool has_room() const { return pending_ < depth_; }
  virtual void read(int fd, void* to, std::uint32_t bytes, std::uint64_t offset,
                    Waiter& waiter) = 0;
  virtual void write(int fd, const void* from, std::uint32_t bytes, std::uint64_t offset,
                     Waiter& waiter) = 0;
  virtual void sync(int fd, Waiter& waiter) = 0;  // fsync

  // Hands over what was queued, then tells the waiters of what is done; returns how many those
  // were.
  virtual std::size_t progress() = 0;
  [[nodiscard]] unsigned pending() const { return pending_; }
  void clear_event() const;

 protected:
  Disk(unsigned depth, Engine engine) : depth_(depth), engine_(engine) {}
  // Makes the eventfd.   An errno
  [[nodiscard]] int open_event();
  void queued() { ++pending_; }
  void finish(Waiter& waiter, std::int64_t result) {
    --pending_;
    waiter.disk_done(result);
  }

 private:
  os::Fd event_;
  const unsigned depth_;
  unsigned pending_ = 0;
  const Engine engine_;
};

}  // namespace weft::readsend
