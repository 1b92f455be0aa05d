// A completion channel: events of armed CQs, and the place where a caller sleeps.
#pragma once

#include <weft/completion.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/time.h"
#include "os/fd.h"
#include "os/lock.h"
#include "os/signal_queue.h"
#include "progress/shard.h"
#include "progress/shard_set.h"
#include "verbs/held.h"

namespace weft::verbs {

// A completion queue as its channel knows it.
class ChannelMember : public CompletionQueue {
 public:
  // Where the lanes are that deliver to it.
  [[nodiscard]] virtual const progress::ShardSet& shards() const noexcept = 0;
  // Retired: its events are of no interest any more.
  void mark_retired() noexcept { retired_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool is_retired() const noexcept {
    return retired_.load(std::memory_order_relaxed);
  }
  void event_taken() { unacked_.fetch_add(1, std::memory_order_acq_rel); }

 protected:
  std::atomic<std::uint32_t> unacked_{0};  // events taken and not acknowledged

 private:
  std::atomic<bool> retired_{false};
};

// Threads: any. The mutex guards the list of CQs; shards are run without it.
//
// Two ways to sleep lead to the same events. poll(fd()) wakes when the background, or another
// caller, has queued one. wait() sleeps on fd() and on the epolls of the shards, and runs these on
// the caller's own thread: one wake-up instead of two. begin_sleep() and end_sleep() are wait() in
// two halves, with the sleep left to the caller.
class CompletionChannelImpl final : public CompletionChannel {
 public:
  [[nodiscard]] static Result<std::shared_ptr<CompletionChannelImpl>> create(
      std::shared_ptr<DeviceImpl> device);

  [[nodiscard]] int fd() const override { return events_->fd(); }
  [[nodiscard]] Result<CompletionQueue*> wait(
      std::optional<std::chrono::nanoseconds> timeout) override;
  [[nodiscard]] int sleep_fd() const override;
  [[nodiscard]] bool begin_sleep() override;
  void end_sleep() override;
  [[nodiscard]] std::size_t users() const override;

  void add(ChannelMember& cq);
  void remove(ChannelMember& cq);
  void retire(ChannelMember& cq);       // drops its events not yet taken; it gets no more
  void queue_event(ChannelMember& cq);  // queues one event
  // A shard more feeds one of its CQs. A sleeper need not hear of it: others look after the shard.
  void add_shard(const std::shared_ptr<progress::Shard>& shard);
  void remove_shard(progress::Shard* shard) noexcept;

  // Once behind each sleep in wait(). True: a program that arms and polls once more will sleep here
  // again, and what has come until then ends that sleep. Should it sleep elsewhere, it hears of
  // that as of what comes behind its poll.
  [[nodiscard]] bool take_sleeps_next() noexcept {
    return sleeps_next_.load(std::memory_order_relaxed) &&
           sleeps_next_.exchange(false, std::memory_order_relaxed);
  }

  // A thread sleeps in wait(), or is expected to do so next because that is how this program
  // sleeps: lanes stay with it between two waits. Should it sleep in poll(2) after all, the
  // background finds out in a while, see ShardOwner.
  [[nodiscard]] bool is_slept_on() const {
    return sleepers_.load(std::memory_order_acquire) != 0 || waits_.load(std::memory_order_relaxed);
  }

 private:
  CompletionChannelImpl(std::shared_ptr<DeviceImpl> device, ObjectCount counted,
                        std::unique_ptr<os::SignalQueue<ChannelMember*>> events);
  class TakingTurn;
  class Counted;
  class Asleep;
  // How long a thread sleeps.
  struct Limit {
    Instant until;
    bool blocks;  // the descriptor did when this thread asked; else it is asked in a while
  };
  [[nodiscard]] ChannelMember* take();
  // Each once, in the order of their addresses.
  using Shards = std::vector<std::shared_ptr<progress::Shard>>;
  [[nodiscard]] std::shared_ptr<const Shards> shards() const;
  void remove_shards(std::span<progress::Shard* const> gone) noexcept WEFT_REQUIRES(mutex_);
  void watch_locked(int fd) const WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool ask_whether_it_blocks();
  [[nodiscard]] Result<CompletionQueue*> wait_for_others(Limit limit);
  [[nodiscard]] ChannelMember* spin(Instant until);
  [[nodiscard]] Result<CompletionQueue*> drive_and_sleep(Limit limit);
  [[nodiscard]] Status sleep(Limit& limit, const Shards& shards);
  static void wake(const Shards& shards);
  [[nodiscard]] bool callers_drive() const;
  void leave_sleep();

  const std::shared_ptr<DeviceImpl> device_;
  const ObjectCount counted_;
  const std::unique_ptr<os::SignalQueue<ChannelMember*>> events_;
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> waits_{false};
  std::atomic<bool> sleeps_next_{false};
  std::atomic<bool> blocks_{false};  // the descriptor did, when it was asked last
  // Between begin_sleep() and end_sleep(): the shards that know of the sleeper. His.
  std::shared_ptr<const Shards> slept_on_;
  const std::uint64_t number_;  // of all channels of the process; from 1

  mutable os::Mutex mutex_;
  std::unordered_set<const ChannelMember*> members_ WEFT_GUARDED_BY(mutex_);
  // How many of them each shard feeds. The list is made anew when a shard comes or goes; one that
  // somebody sleeps on stays as it is.
  std::unordered_map<const progress::Shard*, std::uint32_t> feeds_ WEFT_GUARDED_BY(mutex_);
  std::shared_ptr<const Shards> shards_ WEFT_GUARDED_BY(mutex_) = std::make_shared<Shards>();
  // An epoll over events_->fd() and the epolls of the shards, from the first sleep_fd() on.
  mutable os::Fd sleep_fd_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::verbs
