// An event queue: what exs_qcreate makes, and what a synchronous call waits on.
//
// Any thread may push, pop and wait. Nothing is ever dropped: the depth sizes the first allocation,
// and a queue that holds more grows.
#pragma once

#include <sys/exs.h>

#include <atomic>
#include <cassert>
#include <cstddef>
#include <vector>

#include "os/fd.h"
#include "os/lock.h"

namespace weft::exs {

class EventQueue {
 public:
  explicit EventQueue(std::size_t depth);
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // Somebody who sleeps until `need` events wait. Its descriptor, if it has one, becomes readable
  // then.
  struct Sleeper {
    int fd = -1;
    std::size_t need = 1;
  };

  void push(const exs_event_t& event);
  // The same for the event that ends an operation, which names the queue no longer. In one step, so
  // that the queue is busy until the event is there to be taken, and no longer.
  void complete(const exs_event_t& event);
  // Takes at most `count` events; returns how many.
  std::size_t pop(exs_event_t* out, std::size_t count);
  [[nodiscard]] std::size_t waiting() const { return waiting_.load(std::memory_order_acquire); }

  // Enters the sleeper for a scope, which the thread may leave by being cancelled.
  class Sleep {
   public:
    Sleep(EventQueue& queue, const Sleeper& sleeper)
        : queue_(queue), sleeper_(sleeper), entered_(queue.enter(sleeper_)) {}
    ~Sleep() {
      if (entered_) queue_.leave(sleeper_);
    }
    Sleep(const Sleep&) = delete;
    Sleep& operator=(const Sleep&) = delete;
    // False: what it waits for is there already.
    [[nodiscard]] bool entered() const { return entered_; }

   private:
    EventQueue& queue_;
    Sleeper sleeper_;
    bool entered_;
  };

  // A descriptor that is readable while events wait; the same one each time, -1 with errno.
  int readable_fd();
  // Somebody has asked for it, and may be about to sleep on it: no event is there.
  [[nodiscard]] bool may_be_slept_on() const {
    return watched_.load(std::memory_order_relaxed) && waiting() == 0;
  }

  // Operations that name this queue. exs_qdelete refuses while there are any. There is room for the
  // event of each, so that none needs memory for its end. Throws std::bad_alloc.
  void attach() {
    const std::size_t events = users_.fetch_add(1, std::memory_order_relaxed) + 1 + waiting();
    if (events > room_.load(std::memory_order_relaxed)) make_room();
  }
  void detach() {
    [[maybe_unused]] const std::size_t before = users_.fetch_sub(1, std::memory_order_release);
    assert(before != 0);
  }
  [[nodiscard]] bool busy() const;

  // exs_qdelete has taken it away: those who wait for events give up.
  void retire();
  [[nodiscard]] bool retired() const { return retired_.load(std::memory_order_acquire); }

  void set_signal(const exs_signal_t& signal);
  [[nodiscard]] exs_signal_t signal() const;
  void set_depth(std::size_t depth);
  [[nodiscard]] std::size_t depth() const;
  void set_strategy(int strategy) { strategy_.store(strategy, std::memory_order_relaxed); }
  [[nodiscard]] int strategy() const { return strategy_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] bool enter(Sleeper& sleeper);
  void leave(Sleeper& sleeper);
  void grow() WEFT_REQUIRES(mutex_);
  void make_room();
  void append(const exs_event_t& event, bool ends_operation);

  mutable os::Mutex mutex_;
  std::vector<exs_event_t> ring_ WEFT_GUARDED_BY(mutex_);  // a power of two of places
  std::size_t head_ WEFT_GUARDED_BY(mutex_) = 0;
  std::size_t depth_ WEFT_GUARDED_BY(mutex_);
  std::atomic<std::size_t> room_;  // the size of ring_; written with the mutex
  std::atomic<std::size_t> waiting_{0};
  std::vector<Sleeper*> sleepers_ WEFT_GUARDED_BY(mutex_);
  os::Fd readable_;
  exs_signal_t signal_ WEFT_GUARDED_BY(mutex_){};
  std::atomic<std::size_t> users_{0};
  std::atomic<bool> retired_{false};
  std::atomic<bool> watched_{false};
  std::atomic<int> strategy_{EXS_WAIT_ADAPTIVE};
};

}  // namespace weft::exs
