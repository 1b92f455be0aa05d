// Calls of exs_poll that wait for one of their sockets to be ready.
//
// Any thread. The locks of their sockets are taken, so kick() alone may be called with one.
#pragma once

#include <sys/exs.h>

#include <atomic>
#include <memory>
#include <vector>

#include "exs/core/exs_event_queue.h"
#include "os/lock.h"

namespace weft::exs {

class Socket;

// One exs_poll. Evaluated without any lock of a socket held.
struct PollWait {
  exs_pollfd_t* vec = nullptr;
  int count = 0;
  exs_ahandle_t ahandle = 0;
  std::shared_ptr<EventQueue> queue;
  std::vector<std::shared_ptr<Socket>> sockets;  // one for each entry, null: bad
  std::vector<short> seen;                       // as many: for whoever evaluates it
  os::Mutex mutex;                               // also guards the revents of `vec`
  bool done WEFT_GUARDED_BY(mutex) = false;
  std::atomic<bool> kicked{false};
};

// Those to be evaluated, since a socket of theirs has changed.
class PollWaits {
 public:
  // `wait` is to be evaluated by the next run().
  void kick(const std::shared_ptr<PollWait>& wait);
  [[nodiscard]] bool any() const { return any_.load(std::memory_order_acquire); }
  // Evaluates what has been kicked: those that are ready have their event, and end.
  void run();

 private:
  os::Mutex mutex_;
  std::vector<std::shared_ptr<PollWait>> kicked_ WEFT_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};  // there is one in kicked_; written with the mutex
};

}  // namespace weft::exs
