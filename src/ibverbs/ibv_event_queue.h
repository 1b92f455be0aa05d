// A queue with a descriptor of its own, as programs expect of an rdma_cm channel and of async_fd.
//
// The descriptor is an eventfd that counts the entries: readable while there is one, and its own
// O_NONBLOCK flag decides whether pop() waits. Programs set that flag with fcntl and put the
// descriptor into poll and epoll. Any thread.
//
// An entry and its token come and go together, under the mutex. So who holds the mutex and sees an
// entry can read its token without waiting, and who was told by poll() that there is something is
// not sent to sleep by a token whose entry is gone.
#pragma once

#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>

#include "base/splice_if.h"
#include "ibverbs/errors.h"
#include "os/event_fd.h"
#include "os/lock.h"

namespace weft::ibverbs {

template <class T>
class EventQueue {
 public:
  EventQueue() : fd_(os::make_event(0, EFD_SEMAPHORE)) {}
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  [[nodiscard]] bool valid() const { return static_cast<bool>(fd_); }
  [[nodiscard]] int fd() const { return fd_.get(); }

  void push(T entry) {
    push_if(std::move(entry), [] { return true; });
  }

  // Nothing happens when `wanted`, asked under the mutex, says no: see take_if().
  template <class Wanted>
  void push_if(T entry, Wanted wanted) {
    const os::MutexLock lock(mutex_);
    if (!wanted()) return;
    entries_.push_back(std::move(entry));
    os::raise_event(fd());
  }

  // Takes the oldest entry; `on_take` sees it under the mutex. Waits for one, behind `before_wait`,
  // unless the descriptor is non-blocking; a thread may be cancelled there, and only there.
  // Nothing, with errno: EAGAIN, or EINTR when a signal came
  template <class OnTake, class BeforeWait>
  std::optional<T> pop(OnTake on_take, BeforeWait before_wait) {
    for (;;) {
      if (std::optional<T> entry = take_first(on_take)) return entry;
      if ((fcntl(fd(), F_GETFL) & O_NONBLOCK) != 0) return errno = EAGAIN, std::nullopt;
      before_wait();
      pollfd one{fd(), POLLIN, 0};
      if (poll(&one, 1, -1) >= 0) continue;
      // A read() of a real device goes on after a handler with SA_RESTART; poll() never does.
      const int error = errno;
      if (error != EINTR || signals_interrupt()) return errno = error, std::nullopt;
    }
  }
  template <class OnTake>
  std::optional<T> pop(OnTake on_take) {
    return pop(on_take, [] {});
  }
  std::optional<T> pop() {
    return pop([](const T&) {});
  }

  // Entries in nodes of their own. Like take_if(), it needs no memory.
  void push_all(std::list<T> entries) {
    if (entries.empty()) return;
    const os::MutexLock lock(mutex_);
    const std::uint64_t count = entries.size();
    entries_.splice(entries_.end(), entries);
    os::raise_event(fd(), count);
  }

  // The oldest first.
  template <class Visit>
  void each(Visit visit) {
    const os::MutexLock lock(mutex_);
    for (const T& entry : entries_) visit(entry);
  }

  // Takes out the entries for which `wanted` is true, in order.
  template <class Predicate>
  std::list<T> take_if(Predicate wanted) {
    const os::MutexLock lock(mutex_);
    std::list<T> taken = splice_if(entries_, wanted);
    for (std::size_t tokens = taken.size(); tokens != 0; --tokens) drop_token();
    return taken;
  }

 private:
  template <class OnTake>
  std::optional<T> take_first(OnTake on_take) {
    const os::MutexLock lock(mutex_);
    if (entries_.empty()) return std::nullopt;
    drop_token();
    std::optional<T> entry(std::move(entries_.front()));
    entries_.pop_front();
    on_take(*entry);
    return entry;
  }

  // REQUIRES: an entry whose token this is. So it does not wait.
  void drop_token() WEFT_REQUIRES(mutex_) { (void)os::lower_event(fd()); }

  const os::Fd fd_;
  os::Mutex mutex_;
  std::list<T> entries_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::ibverbs
