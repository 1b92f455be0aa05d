// The owner of a shard looks after it: callers, who poll or sleep in wait(), or the background.
//
// It changes by what callers do. They take the shard over with a wait(), or with polls that find
// nothing, a few in a row and none of them armed. It goes back to the background when a CQ is armed
// while nobody is known to sleep in wait(), when the channel or the CQ goes, and when no caller has
// looked for 10 to 20 ms, or for a moment if one of them is known to sleep elsewhere. Both may run
// the shard at the same moment: its lock keeps one out, and nothing is lost.
//
// The shard's epoll is nested in that of the background's thread; a change of owner is one
// epoll_ctl(), whatever the number of lanes.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "io/engine.h"
#include "os/lock.h"
#include "progress/doubt.h"
#include "progress/pace.h"
#include "progress/passive_spin.h"

namespace weft::progress {

class Shard;

class ShardOwner final : public io::Handler {
 public:
  explicit ShardOwner(Shard& shard) noexcept : shard_(shard) {}
  ShardOwner(const ShardOwner&) = delete;
  ShardOwner& operator=(const ShardOwner&) = delete;

  [[nodiscard]] bool is_callers() const noexcept {
    return who_.load(std::memory_order_seq_cst) == Who::kCallers;
  }
  // A first lane has come: the background's thread knows the epoll from now on.   kSystem
  [[nodiscard]] Status begin();
  void take();  // callers look after it from now on
  // The background does. The caller runs the shard afterwards.
  void give();
  // Callers look after it and nobody sleeps: active lanes may stay in the list.
  [[nodiscard]] bool is_patient() const noexcept { return is_callers() && sleepers() == 0; }

  // --- callers ---
  // Around a sleep that ends when the shard's epoll reports something.
  void begin_sleep();
  void end_sleep();
  [[nodiscard]] std::uint32_t sleepers() const noexcept {
    return sleepers_.load(std::memory_order_seq_cst);
  }
  void note_look(std::uint64_t now) noexcept;  // a caller runs the shard; `now`: cpu_ticks()
  // A caller, perhaps this shard's, goes to sleep elsewhere: if nobody looks for a moment, it goes
  // to the background then, and not only when the watch finds out.
  void doubt();
  [[nodiscard]] std::uint64_t last_look() const noexcept {
    return last_look_.load(std::memory_order_relaxed);
  }
  // A poll found nothing. See give_way().
  void note_vain_poll();
  // A poll found completions: it is not one of a row without success.
  void something_found() noexcept {
    if (untaken_.load(std::memory_order_relaxed) != 0) untaken_.store(0, std::memory_order_relaxed);
  }
  // Callers have let it lie without a word: do not count on their way to sleep.
  [[nodiscard]] bool was_abandoned() const noexcept {
    return abandoned_.load(std::memory_order_relaxed);
  }

  // --- posts ---
  [[nodiscard]] PostPace& pace() noexcept { return pace_; }
  // A request was left for the next pass: if none comes, a timer makes one.
  void start_late_pass();

  void on_io(std::uint32_t events) override;

 private:
  enum class Who : std::uint8_t { kBackground, kCallers };
  // A timer of the home thread, which keeps the shard while it runs.
  class Timer final : public io::Handler {
   public:
    Timer(ShardOwner& owner, void (ShardOwner::*due)()) : owner_(owner), due_(due) {}
    void on_timer(io::TimerId /*id*/) override { (owner_.*due_)(); }

   private:
    ShardOwner& owner_;
    void (ShardOwner::*due_)();
  };

  [[nodiscard]] bool start_timer(Duration wait, Timer& timer);
  void watch_callers();
  void look_after_callers();
  void settle_doubt_later();
  void settle_doubt();
  void pass_late();
  [[nodiscard]] bool polled_densely();
  void serve();
  void serve_soon();
  bool serve_now();
  void spin();

  Shard& shard_;
  os::SpinLock lock_;  // changes of who_, with the registration that goes with it
  std::atomic<Who> who_{Who::kBackground};
  std::atomic<bool> registered_{false};  // in the home thread's epoll
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> abandoned_{false};
  std::atomic<std::uint64_t> last_look_{0};  // cpu_ticks()

  // The watch over callers.
  std::atomic<bool> watching_{false};
  std::atomic<std::uint32_t> looks_{0};  // by callers
  std::uint32_t looks_seen_ = 0;         // the home thread's
  bool looked_before_ = false;           // likewise
  Timer watch_timer_{*this, &ShardOwner::look_after_callers};
  Doubt doubt_;
  Timer doubt_timer_{*this, &ShardOwner::settle_doubt};

  // Whether they take over. A race costs one decision, no more.
  std::atomic<std::uint32_t> untaken_{0};  // polls without success, while the background has it
  std::atomic<std::uint32_t> polls_to_take_{kPollsToTake};
  struct Dense {
    std::atomic<std::uint64_t> since{0};  // cpu_ticks()
    std::atomic<std::uint32_t> looks_then{0};
    std::atomic<std::uint32_t> vain{0};
    std::atomic<std::uint32_t> vain_to_take{kLooksOfPollers};
  };
  Dense dense_;

  PostPace pace_;
  std::atomic<bool> late_set_{false};
  Timer late_timer_{*this, &ShardOwner::pass_late};
  std::uint32_t late_delays_ = 0;  // the home thread's
  PassiveSpin passive_spin_;       // likewise

  static constexpr std::uint32_t kPollsToTake = 4;
  // This many looks within 10 ms are those of a caller who does little else.
  static constexpr std::uint32_t kLooksOfPollers = 5000;
};

}  // namespace weft::progress
