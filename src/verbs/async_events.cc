#include "verbs/async_events.h"

#include <weft/limits.h>

#include <utility>

#include "os/guarded.h"
#include "os/log.h"

namespace weft::verbs {

Status AsyncEvents::open() {
  auto queue = os::SignalQueue<AsyncEvent>::create();
  if (!queue) return fail(queue.error());
  queue_ = std::move(*queue);
  return {};
}

void AsyncEvents::raise(AsyncEvent event) {
  os::log(LogLevel::kDebug, "asynchronous event: {}", describe(event.type));
  const os::MutexLock lock(mutex_);
  const AsyncEventType type = event.type;
  const auto* const sink = &sink_;
  // Whoever raises it is in the middle of something, and can't do it again.
  const auto queued = os::guarded([&]() -> Status {
    if (*sink) {
      (*sink)(event);
    } else if (!queue_->push_below(std::move(event), limits::kAsyncEvents)) {
      return fail(Error::kLimitExceeded);
    }
    return {};
  });
  if (queued) return;
  static_cast<void>(os::guarded([&]() -> Status {
    os::log(
        LogLevel::kError, "an asynchronous event is lost ({}): {}",
        queued.error() == Error::kLimitExceeded ? "too many wait unread" : describe(queued.error()),
        describe(type));
    return {};
  }));
}

void AsyncEvents::set_sink(std::function<void(const AsyncEvent&)> sink) {
  const os::MutexLock lock(mutex_);
  sink_ = std::move(sink);
  if (!sink_) return;
  while (auto event = queue_->try_pop()) sink_(*event);
}

}  // namespace weft::verbs
