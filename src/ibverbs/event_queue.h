// A queue with a descriptor of its own, as programs expect of an rdma_cm channel and of async_fd.
//
// The descriptor is an eventfd that counts the entries: readable while there is one, and its own
// O_NONBLOCK flag decides whether pop() waits. Programs set that flag with fcntl and put the
// descriptor into poll and epoll. Any thread.
#pragma once

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace weft::ibverbs {

template <class T>
class EventQueue {
 public:
  EventQueue() : fd_(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {}
  ~EventQueue() {
    if (fd_ >= 0) close(fd_);
  }
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int fd() const { return fd_; }

  void push(T entry) {
    {
      const std::lock_guard lock(mutex_);
      entries_.push_back(std::move(entry));
    }
    const std::uint64_t one = 1;
    // Cannot fail: the counter would have to reach 2^64 - 1.
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
  }

  // Takes the oldest entry. Waits for one unless the descriptor is non-blocking. Nothing, with
  // errno EAGAIN or EINTR, as read() on the descriptor says.
  std::optional<T> pop() {
    for (;;) {
      std::uint64_t token = 0;
      if (read(fd_, &token, sizeof token) < 0) return std::nullopt;
      const std::lock_guard lock(mutex_);
      // An empty queue: take_if() removed the entry of this token meanwhile.
      if (entries_.empty()) continue;
      std::optional<T> entry(std::move(entries_.front()));
      entries_.pop_front();
      return entry;
    }
  }

  // Takes out the entries for which `wanted` is true, in order.
  template <class Predicate>
  std::vector<T> take_if(Predicate wanted) {
    std::vector<T> taken;
    const std::lock_guard lock(mutex_);
    const auto rest = std::stable_partition(entries_.begin(), entries_.end(),
                                            [&](const T& entry) { return !wanted(entry); });
    std::move(rest, entries_.end(), std::back_inserter(taken));
    entries_.erase(rest, entries_.end());
    for (std::size_t i = 0; i < taken.size(); ++i) drop_token();
    return taken;
  }

 private:
  // Takes one token back without waiting, whatever O_NONBLOCK says. A thread in pop() may hold it
  // already; that thread then finds the queue empty and goes on.
  void drop_token() {
    std::uint64_t token = 0;
    iovec part{&token, sizeof token};
    [[maybe_unused]] const ssize_t got = preadv2(fd_, &part, 1, -1, RWF_NOWAIT);
  }

  int fd_;
  std::mutex mutex_;
  std::deque<T> entries_;
};

}  // namespace weft::ibverbs
