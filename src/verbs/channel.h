// A completion channel: events of armed CQs, and the place where a caller sleeps.
#pragma once

#include <weft/completion.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/time.h"
#include "io/fd.h"
#include "io/signal.h"

namespace weft::verbs {

class DeviceImpl;
class CompletionQueueImpl;

// Threads: any. `members_mutex_` guards the list of CQs and is held while they are driven from
// here.
//
// Two ways to sleep lead to the same events. poll(fd()) wakes when the background thread, or
// another caller, has queued one. wait() sleeps on the sockets of the connections themselves,
// beside fd(), and drives them on the caller's own thread: one wake-up instead of two.
class CompletionChannelImpl final : public CompletionChannel {
 public:
  [[nodiscard]] static Result<std::shared_ptr<CompletionChannelImpl>> create(
      std::shared_ptr<DeviceImpl> device);
  ~CompletionChannelImpl() override;

  [[nodiscard]] int fd() const override { return events_->fd(); }
  [[nodiscard]] Result<CompletionQueue*> wait(
      std::optional<std::chrono::nanoseconds> timeout) override;
  [[nodiscard]] std::size_t users() const override;

  void add(CompletionQueueImpl& cq);
  void remove(CompletionQueueImpl& cq);  // drops its events not yet taken
  void notify(CompletionQueueImpl& cq);  // queues one event

  // Sockets that a sleeper in wait() watches. If one is ready already, the sleeper wakes, also if
  // it was added before.
  void watch(int socket);
  void unwatch(int socket);
  [[nodiscard]] bool has_sleeper() const { return sleepers_.load(std::memory_order_acquire) != 0; }
  // A thread sleeps in wait(), or is expected to do so next because that is how this program
  // sleeps: connections stay with it between two waits. If it sleeps in poll(2) after all, the
  // background thread finds that out within two ticks, see expect_no_sleeper().
  [[nodiscard]] bool is_slept_on() const {
    return has_sleeper() || waits_.load(std::memory_order_relaxed);
  }
  void expect_no_sleeper() { waits_.store(false, std::memory_order_relaxed); }

 private:
  CompletionChannelImpl(std::shared_ptr<DeviceImpl> device,
                        std::unique_ptr<io::Signal<CompletionQueueImpl*>> events, io::Fd sleep_fd);
  [[nodiscard]] CompletionQueueImpl* take();
  [[nodiscard]] bool drive();  // true: look again before sleeping
  void adopt();
  [[nodiscard]] CompletionQueueImpl* spin(Instant until);
  [[nodiscard]] Status sleep(Instant until);

  const std::shared_ptr<DeviceImpl> device_;
  const std::unique_ptr<io::Signal<CompletionQueueImpl*>> events_;
  const io::Fd sleep_fd_;  // epoll: events_->fd() and sockets
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> waits_{false};

  mutable std::mutex members_mutex_;
  std::vector<CompletionQueueImpl*> members_;
};

}  // namespace weft::verbs
