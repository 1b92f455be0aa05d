// The thread that sends what bad links hold (link_transport.h, datagram_link.h), when it is due.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "base/time.h"
#include "os/lock.h"

namespace weft::io {

// A link that may hold something.
class UnderWay {
 public:
  virtual ~UnderWay() = default;
  // When the last of it leaves; nothing: there is none.
  [[nodiscard]] virtual std::optional<Instant> last_due() const = 0;
};

// Never destroyed. A child of fork() has no such thread, and makes one of its own. The process ends
// when all that is under way has left. Any thread.
class LinkPump {
 public:
  using Task = std::function<void()>;

  static LinkPump& of_process();

  // Throws where there is no thread to be had, or no memory.
  void call(Instant when, Task task);
  // Throws std::bad_alloc.
  void add(const std::shared_ptr<UnderWay>& link);

 private:
  struct Call {
    Instant when;
    Task task;
    bool operator<(const Call& other) const { return when > other.when; }  // the earliest on top
  };

  [[noreturn]] void run();
  static void drain_at_exit();
  void drain();

  static constinit std::atomic<LinkPump*> pump_;
  const pid_t process_ = getpid();
  os::Mutex mutex_;
  os::Condition changed_;
  std::priority_queue<Call> calls_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<UnderWay>> links_ WEFT_GUARDED_BY(mutex_);
  bool running_ WEFT_GUARDED_BY(mutex_) = false;
  bool in_task_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::io
