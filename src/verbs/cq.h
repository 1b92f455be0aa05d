// A completion queue, and the connections that its pollers drive.
#pragma once

#include <weft/completion.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "verbs/device.h"
#include "verbs/spin_lock.h"

namespace weft::verbs {

class CompletionChannelImpl;
class QueuePairImpl;

// Threads: any. `lock_` guards the ring and is held for nanoseconds; `drive_lock_` guards the lists
// of QPs and is held while they are driven. Order: drive_lock_, then a QP's progress lock (tried,
// never waited for), then lock_.
class CompletionQueueImpl final : public CompletionQueue,
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
  [[nodiscard]] std::uint32_t depth() const override { return depth_; }
  [[nodiscard]] std::shared_ptr<CompletionChannel> channel() const override;
  [[nodiscard]] void* context() const override { return context_; }
  [[nodiscard]] std::size_t users() const override {
    return users_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool overflowed() const override {
    return overflowed_.load(std::memory_order_acquire);
  }

  void add_counters(Counters& sum) const override;

  // Called by QPs as they complete work. `solicited`: wakes a CQ armed for solicited events.
  void push(const WorkCompletion& wc, bool solicited);

  // A QP that delivers here; `users` counts it until release_user().
  void attach(QueuePairImpl& qp);
  void detach(QueuePairImpl& qp);  // blocks while the list is being driven
  void add_user() { users_.fetch_add(1, std::memory_order_acq_rel); }
  void release_user() { users_.fetch_sub(1, std::memory_order_acq_rel); }

  [[nodiscard]] std::uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }
  // A QP's doorbell waits for the next poll. False: too many wait already.
  [[nodiscard]] bool note_doorbell(QueuePairImpl& qp);
  // Drives the connections adopted by this CQ's pollers once. Does nothing if another thread does.
  // True: look again before sleeping, as QueuePairImpl::progress() says.
  bool drive();
  // Takes over from the background thread what a caller can drive itself.
  void adopt_members();
  // The background thread found a QP active: the next poll takes it over if it can. A QP of other
  // CQs (`fostered`) has to detach() from this one too before it goes.
  void offer(QueuePairImpl& qp, bool fostered);
  // Gives everything back to the background thread.
  void release_adopted();
  [[nodiscard]] std::optional<bool> watched_by_sleeper(const QueuePairImpl& qp);
  // The peer wrote into memory of a QP that has no send outstanding: an event without a completion
  // if the CQ is armed.
  void wake_idle();

  // Polled in vain since the last call of note_polls()? For the background thread. Polls that find
  // what they came for do not count: a program that only reaps its own sends and then watches
  // memory for the peer's Write drives nothing.
  [[nodiscard]] bool polled_lately() const {
    return empty_polls_.load(std::memory_order_relaxed) !=
           polls_seen_.load(std::memory_order_relaxed);
  }
  void note_polls() {
    polls_seen_.store(empty_polls_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  [[nodiscard]] bool armed() const { return armed_.load(std::memory_order_relaxed) != kNotArmed; }
  [[nodiscard]] bool has_sleeper() const;
  // An adopted connection was not driven for a while: do not count on wait().
  void nobody_sleeps();
  [[nodiscard]] bool empty() const { return count_.load(std::memory_order_acquire) == 0; }

  void event_taken() { unacked_.fetch_add(1, std::memory_order_acq_rel); }

  static constexpr std::size_t kHotMax = 8;
  // Of polls that are answered from the ring, one in so many drives connections all the same.
  static constexpr std::uint64_t kFullPollsToDrive = 8;
  // Polls in vain before a poller is offered connections of other CQs, see DeviceImpl::poller().
  static constexpr std::uint64_t kPollsToFoster = 64;

 private:
  static constexpr std::uint8_t kNotArmed = 0, kArmedNext = 1, kArmedSolicited = 2;
  struct FreeDeleter {
    void operator()(WorkCompletion* p) const { std::free(p); }
  };

  CompletionQueueImpl(std::shared_ptr<DeviceImpl> device, const CqOptions& options);
  std::size_t take(std::span<WorkCompletion> out);
  [[nodiscard]] bool allocate(std::uint32_t depth);
  [[nodiscard]] bool armed_while_unwatched() const;
  void take_offers();
  // Under drive_lock_.
  void ring_collected();
  void adopt_locked(QueuePairImpl& qp);
  [[nodiscard]] bool is_member(const QueuePairImpl& qp) const;
  [[nodiscard]] bool is_hot(const QueuePairImpl& qp) const;
  template <class Predicate>
  void keep_hot(Predicate stays);
  void count_own();

  void overflow();
  void fail_members();

  const std::shared_ptr<DeviceImpl> device_;
  const std::shared_ptr<CompletionChannelImpl> channel_;
  void* const context_;

  SpinLock lock_;
  std::unique_ptr<WorkCompletion[], FreeDeleter> ring_;  // not touched before it is used
  std::uint32_t depth_ = 0;
  std::uint32_t head_ = 0;
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint8_t> armed_{kNotArmed};
  std::atomic<bool> overflowed_{false};
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<std::uint64_t> empty_polls_{0};
  std::atomic<bool> doorbell_due_{false};
  std::atomic<std::uint64_t> polls_seen_{0};
  std::atomic<std::size_t> users_{0};

  std::atomic<std::uint32_t> unacked_{0};
  std::mutex ack_mutex_;
  std::condition_variable acked_;

  SpinLock drive_lock_;
  std::vector<QueuePairImpl*> members_;
  std::array<QueuePairImpl*, kHotMax> hot_{};  // driven by whoever polls; members or fostered
  std::atomic<std::uint32_t> hot_count_{0};
  std::atomic<std::uint32_t> own_count_{0};  // members among them
  std::atomic<std::uint32_t> member_count_{0};

  // Doorbells of QPs that are not driven here, for the next poll to ring. Under doorbells_lock_,
  // which comes after drive_lock_.
  static constexpr std::size_t kDoorbellsMax = 4096;
  SpinLock doorbells_lock_;
  std::vector<QueuePairImpl*> doorbells_;
  std::vector<QueuePairImpl*> ringing_;  // under drive_lock_

  // What the background thread leaves for the next poll: it would find drive_lock_ taken whenever
  // somebody polls without a pause. Under offers_lock_, which comes after drive_lock_.
  struct Offer {
    std::weak_ptr<QueuePairImpl> held;
    const QueuePairImpl* qp = nullptr;
    bool fostered = false;
  };
  SpinLock offers_lock_;
  std::vector<Offer> offers_;
  std::atomic<bool> offered_{false};
};

}  // namespace weft::verbs
