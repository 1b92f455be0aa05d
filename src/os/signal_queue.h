// A queue with a descriptor that is readable while something is in it.
//
// Any thread. The application owns the descriptor's O_NONBLOCK flag: it decides what waiting
// without a time limit means.
#pragma once

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "base/result.h"
#include "base/splice_if.h"
#include "base/time.h"
#include "os/fd.h"
#include "os/fork.h"

namespace weft::os {

// The descriptor: readable or not. REQUIRES: set() and clear() alternate, under one lock.
class SignalFd {
 public:
  [[nodiscard]] static Result<SignalFd> create();
  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  void set() noexcept;    // never blocks
  void clear() noexcept;  // never blocks
  [[nodiscard]] bool non_blocking() const noexcept;

 private:
  explicit SignalFd(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

using Timeout = std::optional<std::chrono::nanoseconds>;

// Sleeps until `fd` is readable.
//   kTimedOut   the time is over; `timeout` nullopt: the descriptor is non-blocking
//   kAborted    a signal interrupted the sleep
class Waiter {
 public:
  Waiter(int fd, Timeout timeout);
  [[nodiscard]] Status wait();  // again: the same limit

 private:
  int fd_;
  Instant until_;  // never: as the descriptor says
};

template <class T>
class SignalQueue {
 public:
  //   kSystem   no descriptors
  [[nodiscard]] static Result<std::unique_ptr<SignalQueue>> create() {
    auto fd = SignalFd::create();
    if (!fd) return fail(fd.error());
    return std::unique_ptr<SignalQueue>(new SignalQueue(std::move(*fd)));
  }

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  void push(T item) {
    if (fork_.forked()) return;
    const std::lock_guard lock(mutex_);
    append_locked(std::move(item));
    show_locked();
  }
  // An entry that another queue has given by take_if(). Needs no memory.
  void push_all(std::list<T> items) {
    if (items.empty() || fork_.forked()) return;
    const std::lock_guard lock(mutex_);
    items_.splice(items_.end(), items);
    show_locked();
  }
  // As push(), if `wanted()` holds: it is asked with the queue locked. Not `shown`: without a word
  // on the descriptor. For a thread that takes an item itself next, and then calls show(): that
  // saves it two system calls.
  template <class Wanted>
  void push_if(T item, bool shown, Wanted wanted) {
    if (fork_.forked()) return;
    const std::lock_guard lock(mutex_);
    if (!wanted()) return;
    append_locked(std::move(item));
    if (shown) show_locked();
  }
  // Keeps room for one more item of push_distinct(), or gives that back.   std::bad_alloc
  void reserve() {
    if (fork_.forked()) return;
    const std::lock_guard lock(mutex_);
    spare_.emplace_back();
    ++reserved_;
  }
  void unreserve() {
    if (fork_.forked()) return;
    const std::lock_guard lock(mutex_);
    --reserved_;
  }
  // As push_if(), and needs no memory where there is none: then an item takes the place of one that
  // is in the queue twice, and one that is in it already stays where it is. REQUIRES: reserve() was
  // called for each different item.
  template <class Wanted>
  void push_distinct(T item, bool shown, Wanted wanted) {
    try {
      return push_if(item, shown, wanted);
    } catch (const std::bad_alloc&) {
      const std::lock_guard lock(mutex_);
      if (!wanted()) return;
      squeeze_locked(item);
      if (shown) show_locked();
    }
  }
  // The descriptor says what is in it, as always.
  void show() {
    if (fork_.forked()) return;
    const std::lock_guard lock(mutex_);
    if (!items_.empty()) show_locked();
  }
  // False, and nothing changed, if `limit` are waiting.
  [[nodiscard]] bool push_below(T item, std::size_t limit) {
    if (fork_.forked()) return false;
    const std::lock_guard lock(mutex_);
    if (items_.size() >= limit) return false;
    append_locked(std::move(item));
    show_locked();
    return true;
  }

  [[nodiscard]] std::optional<T> try_pop() {
    return try_pop([](const T&) {});
  }
  // `taken(item)` is called with the queue locked: for take_if(), the item is in the queue or it
  // has been called.
  template <class Taken>
  [[nodiscard]] std::optional<T> try_pop(Taken taken) {
    if (fork_.forked()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    if (items_.empty()) return std::nullopt;
    std::optional<T> out(std::move(items_.front()));
    keep_first_locked();
    if (items_.empty()) unshow_locked();
    taken(*out);
    return out;
  }

  //   kTimedOut, kAborted   as Waiter
  //   kBadState             in a child of fork()
  [[nodiscard]] Result<T> next(Timeout timeout) {
    if (fork_.forked()) return fail(Error::kBadState);
    Waiter waiter(fd_.get(), timeout);
    while (true) {
      if (auto item = try_pop()) return std::move(*item);
      if (auto woken = waiter.wait(); !woken) return fail(woken.error());
    }
  }

  // Takes out what `pred` holds for, in order. The caller destroys it, without our lock. Needs no
  // memory.
  template <class Predicate>
  [[nodiscard]] std::list<T> take_if(Predicate pred) {
    if (fork_.forked()) return {};
    const std::lock_guard lock(mutex_);
    std::list<T> out = splice_if(items_, pred);
    if (items_.empty()) unshow_locked();
    return out;
  }

  [[nodiscard]] std::size_t size() const {
    if (fork_.forked()) return 0;
    const std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  static constexpr std::size_t kSpareMax = 64;

  explicit SignalQueue(SignalFd fd) : fd_(std::move(fd)) {}
  void append_locked(T item) {
    if (spare_.empty()) return items_.push_back(std::move(item));
    spare_.front() = std::move(item);
    items_.splice(items_.end(), spare_, spare_.begin());
  }
  void keep_first_locked() {
    if (spare_.size() >= std::max(kSpareMax, reserved_)) return items_.pop_front();
    items_.front() = T{};
    spare_.splice(spare_.begin(), items_, items_.begin());
  }
  void squeeze_locked(T item) {
    if (std::find(items_.begin(), items_.end(), item) != items_.end()) return;
    for (auto at = items_.begin(); at != items_.end(); ++at) {
      if (std::find(items_.begin(), at, *at) == at) continue;
      *at = item;
      return items_.splice(items_.end(), items_, at);
    }
  }
  void show_locked() {
    if (!std::exchange(shown_, true)) fd_.set();
  }
  void unshow_locked() {
    if (std::exchange(shown_, false)) fd_.clear();
  }

  const ForkGuard fork_;
  mutable std::mutex mutex_;
  std::list<T> items_;
  std::list<T> spare_;  // nodes of items that were taken: the next ones need no memory
  std::size_t reserved_ = 0;
  bool shown_ = false;  // on the descriptor
  SignalFd fd_;
};

}  // namespace weft::os
