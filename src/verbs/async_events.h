// The asynchronous events of a device: queued until the program takes them, or handed to its sink.
// Any thread.
#pragma once

#include <weft/device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "os/lock.h"
#include "os/signal_queue.h"

namespace weft::verbs {

class AsyncEvents {
 public:
  // Once, before all below.   kSystem
  [[nodiscard]] Status open();
  [[nodiscard]] int fd() const { return queue_->fd(); }
  // If limits::kAsyncEvents wait, or there is no memory, the event is lost and the log says so.
  // Takes no lock of the caller's: may be called with QP or CQ locks held, since sinks may not call
  // back into the engine.
  void raise(AsyncEvent event);
  [[nodiscard]] Result<AsyncEvent> next(std::optional<std::chrono::nanoseconds> timeout) {
    return queue_->next(timeout);
  }
  // Events that wait go to the sink at once. Empty: none from now on.
  void set_sink(std::function<void(const AsyncEvent&)> sink);

 private:
  os::Mutex mutex_;
  std::unique_ptr<os::SignalQueue<AsyncEvent>> queue_;
  std::function<void(const AsyncEvent&)> sink_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::verbs
