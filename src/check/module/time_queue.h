// All that `weft run --timeline` knows of one queue, and how a queue pair is found by its number.
//
// Any thread. Each has a lock of its own, for as long as a look takes, and no other is taken with
// it: threads that use different queues don't wait for each other. In the steady state none of this
// takes memory from the heap.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "check/module/time_files.h"
#include "check/observer.h"
#include "os/lock.h"
#include "timeline/growing_ring.h"
#include "timeline/queue_book.h"

namespace weft::check {

// When the receives of a queue were posted: of a shared receive queue, or a part of a queue pair.
class ReceiveTimes final : public Follower, public std::enable_shared_from_this<ReceiveTimes> {
 public:
  explicit ReceiveTimes(TimeFiles& files) : files_(files) {}

  void posting_receive() override;
  void not_posted_receive() override;
  // That of the oldest; kNever: unknown. REQUIRES: it is this thread's turn.
  [[nodiscard]] std::uint64_t take();
  // REQUIRES: the same.
  void clear();

 private:
  static constexpr std::size_t kMost = 1U << 16U;

  TimeFiles& files_;
  os::SpinLock lock_;
  timeline::Ring<std::uint64_t> times_ WEFT_GUARDED_BY(lock_);
};

// Those of a queue pair. Its memory stays for the life of the process, and is used for another one
// once nobody owns it: who was late finds another number there.
class TimeQueue final : public Follower {
 public:
  explicit TimeQueue(TimeFiles& files) : files_(files), own_(files) {}

  // --- Follower ---
  void step(const Step& what) override;
  void posting(const Posted& request) override;
  void posting_receive() override { own_.posting_receive(); }
  void not_posted_receive() override { own_.not_posted_receive(); }

  // The queue pair is there. `shared`: its receives; null: they are its own.
  void made(std::uint32_t number, std::shared_ptr<ReceiveTimes> shared);
  void destroyed();
  // It was moved to RESET.
  void emptied();
  void late_receive(Late what);
  void polled(const Completed& completion);
  [[nodiscard]] std::uint32_t number() const { return number_.load(std::memory_order_relaxed); }

  // --- the call of the program that this thread is in ---
  static void call_begins();
  // The last request that it has posted was refused.
  static void last_not_posted();
  static void call_returns(std::uint64_t now);

 private:
  friend class TimeQueues;

  template <class Work>
  void change(Work work);
  void note(const Step& what);

  TimeFiles& files_;
  std::atomic<std::uint32_t> number_{0};  // 0: it is no queue pair now
  std::shared_ptr<ReceiveTimes> shared_;  // set before there are steps; null: they are own_
  ReceiveTimes own_;
  os::SpinLock lock_;
  timeline::QueueBook book_ WEFT_GUARDED_BY(lock_);
  TimeQueue* next_ = nullptr;  // among those that nobody owns
};

class TimeQueues {
 public:
  explicit TimeQueues(TimeFiles& files) : files_(files) {}

  // One that nobody owns, or a new one.
  [[nodiscard]] std::shared_ptr<TimeQueue> take();
  // Makes it known by its number.
  void add(TimeQueue& queue);
  void remove(std::uint32_t number);
  // Without a lock. Null: there is none; it may have become another one meanwhile.
  [[nodiscard]] TimeQueue* find(std::uint32_t number) const;

 private:
  // Numbers have 24 bits.
  static constexpr std::size_t kPage = 1U << 12U;
  using Page = std::array<std::atomic<TimeQueue*>, kPage>;
  [[nodiscard]] std::atomic<TimeQueue*>* place_of(std::uint32_t number) const;
  void let_go(TimeQueue* queue) noexcept;

  TimeFiles& files_;
  std::array<std::atomic<Page*>, kPage> pages_{};
  std::atomic<TimeQueue*> unowned_{nullptr};
  os::Mutex mutex_;
  std::vector<std::unique_ptr<Page>> all_pages_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<TimeQueue>> all_ WEFT_GUARDED_BY(mutex_);
  TimeQueue* idle_ WEFT_GUARDED_BY(mutex_) = nullptr;  // a list by next_
};

}  // namespace weft::check
