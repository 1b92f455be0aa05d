// The engine: one background thread that sleeps in epoll and serves descriptors, timers and tasks.
//
// The thread starts when it is first needed, blocks the application's signals, is named "weft", and
// costs no CPU while nothing happens. It does not survive fork(): in the child every call fails
// with kBadState or does nothing.
//
// Threads: every member may be called from any thread, callbacks run on the engine's thread only,
// one at a time. Callbacks may call every member. No lock of the engine is held during a callback.
//
// A callback that ends by std::bad_alloc is called again a little later: while its descriptor is
// ready, with the same TimerId, or the same task. It has to leave things so that this is right.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "base/time.h"
#include "io/handler.h"
#include "os/clock.h"
#include "os/close_in_child.h"
#include "os/guarded.h"

namespace weft::io {

class EngineCore;

class Engine {
 public:
  //   kSystem   no descriptors
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create();
  // Stops and joins the thread (on the engine's own thread: lets it end by itself). Callbacks that
  // are due no longer run.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- descriptors ---

  // Calls handler->on_io() when `fd` has one of `events` (EPOLLIN, EPOLLOUT, EPOLLRDHUP; with
  // EPOLLET edge-, else level-triggered; 0: errors and hang-ups only). Takes the place of an
  // earlier registration of the same fd whose descriptor was removed.
  //   kBadState   registered already, or after fork()
  //   kNoMemory, a system_error()
  [[nodiscard]] Status add(int fd, std::uint32_t events, std::weak_ptr<Handler> handler);
  // Changes the events; with EPOLLET this also re-arms them.   kNotFound, kBadState, kSystem
  Status modify(int fd, std::uint32_t events);
  // The callbacks for `fd` go to another handler from now on. No system call.   kNotFound,
  // kBadState
  Status give(int fd, std::weak_ptr<Handler> handler);
  // No callback for `fd` starts any more, and no callback is running when this returns, unless it
  // is called on the engine's thread. Unknown descriptors are ignored. Comes before close(fd).
  // REQUIRES: the caller holds no lock that the handler's callbacks take.
  void remove(int fd);
  // As remove(), without waiting for a callback that runs now: for owners whose callbacks check,
  // under the owner's lock, whether they are still wanted.
  void forget(int fd);

  // --- timers ---

  // Calls handler->on_timer(id) once at or soon after `when`. 0: never() was given, no memory or no
  // thread is to be had, or after fork().
  [[nodiscard]] TimerId schedule(Instant when, std::weak_ptr<Handler> handler);
  // The call does not start any more, and is not running when this returns (unless on the engine's
  // thread). Ids of the past, and 0, are ignored. REQUIRES: as remove().
  void cancel(TimerId id);
  void forget_timer(TimerId id);  // as cancel(), without waiting
  // Waits until no callback of `handler` is running (unless on the engine's thread).
  void wait_for(const Handler* handler);

  // Runs `task` soon, in order with others. Dropped if the engine stops before.
  //   kBadState (forked), kNoMemory, a system_error()
  template <class Task>
  Status post(Task task) {
    return os::guarded([&] { return post_function(std::move(task)); });
  }

  // --- sight ---

  [[nodiscard]] bool on_thread() const noexcept;
  [[nodiscard]] std::uint64_t wakeups() const noexcept;  // sleeps that ended
  [[nodiscard]] bool running() const noexcept;           // the thread has been started

 private:
  explicit Engine(std::shared_ptr<EngineCore> core) : core_(std::move(core)) {}
  [[nodiscard]] Status post_function(std::function<void()> task);
  std::shared_ptr<EngineCore> core_;
};

}  // namespace weft::io
