// The state of an engine and the loop of its thread. Internal to engine.cc and engine_core.cc.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "io/handler.h"
#include "os/fd.h"
#include "os/fork.h"
#include "os/lock.h"

namespace weft::io {

// Kept alive by the Engine and by its thread. Lock order: mutex_ is the innermost lock.
class EngineCore : public std::enable_shared_from_this<EngineCore> {
 public:
  [[nodiscard]] Status init();
  void stop();

  [[nodiscard]] Status add(int fd, std::uint32_t events, std::weak_ptr<Handler> handler);
  [[nodiscard]] Status modify(int fd, std::uint32_t events);
  [[nodiscard]] Status give(int fd, std::weak_ptr<Handler> handler);
  void forget(int fd, bool wait);
  [[nodiscard]] TimerId schedule(Instant when, std::weak_ptr<Handler> handler);
  void cancel(TimerId id, bool wait);
  void wait_for(const void* whom);
  [[nodiscard]] Status post(std::function<void()> task);

  [[nodiscard]] bool on_thread() const noexcept {
    return thread_id_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  [[nodiscard]] std::uint64_t wakeups() const noexcept {
    return wakeups_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool running() const noexcept { return started_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool forked() const noexcept { return fork_.forked(); }

 private:
  struct Registration {
    std::weak_ptr<Handler> handler;
    const void* whom = nullptr;  // the same, as running_ names it; null: no registration
    std::uint32_t generation = 0;
    std::uint32_t events = 0;
  };
  struct Due {
    Instant when;
    TimerId id = 0;
    // For a heap whose top is the earliest; of equal ones, the one scheduled first.
    bool operator<(const Due& o) const { return when != o.when ? when > o.when : id > o.id; }
  };

  [[nodiscard]] Status start_locked() WEFT_REQUIRES(mutex_);
  void wake_locked() WEFT_REQUIRES(mutex_);
  void forget_locked(int fd) WEFT_REQUIRES(mutex_);
  void settle_locked(const void* whom) WEFT_REQUIRES(mutex_);
  template <class Call>
  [[nodiscard]] bool run_callback(std::shared_ptr<Handler> handler, Call&& call)
      WEFT_REQUIRES(mutex_);

  // The thread.
  void loop();
  [[nodiscard]] Duration sleep_time_locked() const WEFT_REQUIRES(mutex_);
  void dispatch(const epoll_event& event) WEFT_REQUIRES(mutex_);
  void run_timers() WEFT_REQUIRES(mutex_);
  void run_tasks() WEFT_REQUIRES(mutex_);
  using Timers = std::unordered_map<TimerId, std::weak_ptr<Handler>>;
  void run_again_locked(Timers::node_type timer) WEFT_REQUIRES(mutex_);
  void wait_for_memory() WEFT_REQUIRES(mutex_);
  void drop_stale_timers_locked() WEFT_REQUIRES(mutex_);

  const os::ForkGuard fork_;
  os::Fd epoll_;
  os::Fd wake_;
  std::atomic<bool> started_{false};
  std::atomic<std::thread::id> thread_id_{};
  std::atomic<std::uint64_t> wakeups_{0};

  os::Mutex mutex_;
  std::thread thread_ WEFT_GUARDED_BY(mutex_);
  bool stopping_ WEFT_GUARDED_BY(mutex_) = false;
  bool asleep_ WEFT_GUARDED_BY(mutex_) = false;  // or about to be: a change must wake it
  bool wake_sent_ WEFT_GUARDED_BY(mutex_) = false;
  const void* running_ WEFT_GUARDED_BY(mutex_) = nullptr;  // handler whose callback runs
  TimerId running_timer_ WEFT_GUARDED_BY(mutex_) = 0;
  bool running_timer_canceled_ WEFT_GUARDED_BY(mutex_) = false;
  std::uint64_t callbacks_ WEFT_GUARDED_BY(mutex_) = 0;  // begun so far
  os::Condition settled_;
  std::size_t waiters_ WEFT_GUARDED_BY(mutex_) = 0;

  std::vector<Registration> fds_ WEFT_GUARDED_BY(mutex_);  // by descriptor
  std::uint32_t next_generation_ WEFT_GUARDED_BY(mutex_) = 1;

  std::vector<Due> heap_ WEFT_GUARDED_BY(mutex_);
  Timers timers_ WEFT_GUARDED_BY(mutex_);  // ids not in here are stale in heap_
  TimerId next_timer_ WEFT_GUARDED_BY(mutex_) = 1;

  std::deque<std::function<void()>> tasks_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::io
