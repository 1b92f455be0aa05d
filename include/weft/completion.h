// Completion queues and the channels that wake a sleeper.
#pragma once

#include <weft/result.h>
#include <weft/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>

#pragma GCC visibility push(default)
namespace weft {

class CompletionQueue;

// Delivers "this armed CQ has a completion" events. Any thread.
class CompletionChannel {
 public:
  virtual ~CompletionChannel() = default;

  // Readable (POLLIN, level) while an event waits. Owned by the channel; the caller may set
  // O_NONBLOCK on it, which wait(nullopt) then honors, and may put it into poll or epoll. Set
  // behind a wait that slept, the first one without an event takes 10 ms to see it.
  [[nodiscard]] virtual int fd() const = 0;

  // Takes the oldest event; sleeps up to `timeout` for one (nullopt: as the fd's O_NONBLOCK flag
  // says, else forever). Every event taken must be acknowledged on its CQ. A thread that waits
  // here also makes progress on the connections of the channel's CQs.
  //   kTimedOut   no event came (non-blocking: there is no event)
  //   kAborted    a signal interrupted the wait
  [[nodiscard]] virtual Result<CompletionQueue*> wait(
      std::optional<std::chrono::nanoseconds> timeout) = 0;

  // The same for a caller with an event loop of its own, one thread at a time. `true` from
  // begin_sleep(): nothing is left to do; its loop sleeps until sleep_fd() is readable (POLLIN,
  // level), then it calls end_sleep() and polls its CQs. `false`: poll them again first. A CQ that
  // other threads may complete into must be armed. With `progress = thread` the background does all
  // work, and sleep_fd() is fd().
  [[nodiscard]] virtual int sleep_fd() const = 0;
  [[nodiscard]] virtual bool begin_sleep() = 0;
  virtual void end_sleep() = 0;  // without a sleep: does nothing

  [[nodiscard]] virtual std::size_t users() const = 0;  // CQs attached
};

class CompletionQueue {
 public:
  enum class Arm : std::uint8_t { kNext, kSolicited };
  virtual ~CompletionQueue() = default;

  // Moves up to out.size() completions, oldest first, and returns how many. Makes progress on the
  // connections whose QPs use this CQ, on the calling thread, without sleeping.
  virtual std::size_t poll(std::span<WorkCompletion> out) = 0;

  // One event on the channel at the next completion that fits (kSolicited: a solicited receive or
  // any failure). Completions already in the queue do not count: arm, then poll once more.
  //   kBadState   the CQ has no channel
  [[nodiscard]] virtual Status arm(Arm what) = 0;

  // Keeps what is queued.  kInvalidArgument: fewer than are queued now, or over the limit.
  [[nodiscard]] virtual Status resize(std::uint32_t depth) = 0;

  // Acknowledges `count` events taken from the channel.
  virtual void ack_events(std::uint32_t count) = 0;
  // Before the CQ is destroyed, while other threads may wait on the channel: drops its events that
  // nobody has taken, lets no more come, and blocks until every event taken has been acknowledged.
  virtual void wait_for_acks() = 0;

  [[nodiscard]] virtual std::uint32_t depth() const = 0;
  [[nodiscard]] virtual std::size_t queued() const = 0;  // completions that nobody has polled yet
  [[nodiscard]] virtual std::shared_ptr<CompletionChannel> channel() const = 0;
  [[nodiscard]] virtual void* context() const = 0;      // the caller's, from CqOptions
  [[nodiscard]] virtual std::size_t users() const = 0;  // QPs attached (a QP may count twice)
  // It has lost a completion at least once. Each time, the QPs that use it go to the error state;
  // the event kCqError comes the first time.
  [[nodiscard]] virtual bool overflowed() const = 0;
};

struct CqOptions {
  std::uint32_t depth = 256;                   // at least 1; the next power of two is made of it
  std::shared_ptr<CompletionChannel> channel;  // may be null
  void* context = nullptr;
};

}  // namespace weft
#pragma GCC visibility pop
