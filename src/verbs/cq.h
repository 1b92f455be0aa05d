// A completion queue: completions, the armed state, and the shards of the lanes that deliver here.
#pragma once

#include <weft/completion.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "os/lock.h"
#include "progress/shard_set.h"
#include "verbs/completion_channel.h"
#include "verbs/cq_user.h"
#include "verbs/device.h"
#include "verbs/freed_slots.h"
#include "verbs/held.h"

namespace weft::verbs {

// Threads: any. The ring has its own lock, held for nanoseconds; who polls runs the shards.
class CompletionQueueImpl final : public ChannelMember,
                                  public CounterSource,
                                  public std::enable_shared_from_this<CompletionQueueImpl> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<CompletionQueueImpl>> create(
      std::shared_ptr<DeviceImpl> device, const CqOptions& options);
  ~CompletionQueueImpl() override;

  std::size_t poll(std::span<WorkCompletion> out) override;
  Status arm(Arm what) override;
  Status resize(std::uint32_t depth) override;
  void ack_events(std::uint32_t count) override;
  void wait_for_acks() override;
  [[nodiscard]] std::uint32_t depth() const override {
    return depth_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t queued() const override {
    return count_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::shared_ptr<CompletionChannel> channel() const override;
  [[nodiscard]] void* context() const override { return context_; }
  [[nodiscard]] std::size_t users() const override {
    return user_count_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool overflowed() const override {
    return overflowed_.load(std::memory_order_acquire);
  }

  void add_counters(Counters& sum) const override;

  // Called by QPs as they complete work. `solicited`: wakes a CQ armed for solicited events.
  // `slots`: freed when the completion is polled. They outlive it, see forget().
  void push(const WorkCompletion& wc, bool solicited, SlotsToFree slots);

  // Drops what the queue pair of this number has completed and nobody has polled yet. Frees no
  // slots.
  void forget(std::uint32_t qp_num);

  // Queue pairs that deliver here: told when the CQ overflows. `users` counts them until they are
  // gone from it.
  void add_user(const std::shared_ptr<CqUser>& qp);
  void remove_user(const CqUser* qp);
  // From now on, until it is gone, who polls this CQ reads its socket too.
  void add_reader(std::weak_ptr<DatagramReader> reader);

  [[nodiscard]] const progress::ShardSet& shards() const noexcept override { return shards_; }
  void add_shard(const std::shared_ptr<progress::Shard>& shard);
  // The peer wrote into memory of a QP that has no send outstanding: an event without a completion
  // if the CQ is armed.
  void wake_idle();
  [[nodiscard]] bool has_completions() const { return count_.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] bool armed() const { return armed_.load(std::memory_order_relaxed) != kNotArmed; }

  // One poll in this many runs the shards although the ring answers it.
  static constexpr std::uint64_t kFullPollsToDrive = 8;

 private:
  static constexpr std::uint8_t kNotArmed = 0, kArmedNext = 1, kArmedSolicited = 2;
  struct Entry {
    WorkCompletion wc;
    SlotsToFree slots;
  };
  struct FreeDeleter {
    void operator()(Entry* p) const { std::free(p); }
  };

  CompletionQueueImpl(std::shared_ptr<DeviceImpl> device, ObjectCount counted,
                      const CqOptions& options);
  std::size_t take(std::span<WorkCompletion> out);
  [[nodiscard]] bool allocate(std::uint32_t depth) WEFT_REQUIRES(lock_);
  [[nodiscard]] bool posts_wait() const;
  void overflow();
  void fail_users();
  void each_reader(void (DatagramReader::*call)());

  const std::shared_ptr<DeviceImpl> device_;
  const ObjectCount counted_;
  const std::shared_ptr<CompletionChannelImpl> channel_;
  progress::ShardSet shards_;
  void* const context_;

  mutable os::SpinLock lock_;
  // Not touched before it is used.
  std::unique_ptr<Entry[], FreeDeleter> ring_ WEFT_GUARDED_BY(lock_);
  std::atomic<std::uint32_t> depth_{0};  // changed with lock_ held
  std::uint32_t head_ WEFT_GUARDED_BY(lock_) = 0;
  std::atomic<std::uint32_t> count_{0};         // changed with lock_ held
  std::atomic<std::uint8_t> armed_{kNotArmed};  // changed with lock_ held
  std::atomic<bool> overflowed_{false};         // ever
  std::atomic<bool> overflowing_{false};        // its users are about to be failed
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<std::uint64_t> empty_polls_{0};

  mutable os::Mutex users_mutex_;
  std::unordered_map<const CqUser*, std::pair<std::weak_ptr<CqUser>, std::uint32_t>> users_
      WEFT_GUARDED_BY(users_mutex_);  // how often each delivers here
  std::atomic<std::size_t> user_count_{0};
  std::vector<std::weak_ptr<DatagramReader>> readers_ WEFT_GUARDED_BY(users_mutex_);
  std::atomic<bool> has_readers_{false};

  os::Mutex ack_mutex_;  // the counts of events, one of which is a member of ibv_cq
  os::Condition acked_;
};

}  // namespace weft::verbs
