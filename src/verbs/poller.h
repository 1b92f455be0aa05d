// A poller finds out which lanes have something to do, and runs them.
//
// Each completion queue has one; queue pairs that tie two CQs together make them share it. A lane
// stays with its poller. What changes is who runs the poller:
//
//   callers      a thread that polls or waits on one of its CQs
//   background   its home thread, in whose epoll the poller's own epoll is nested
//
// Both may try to run it at the same moment. A kick lock keeps one of them out: that thread leaves
// a kick, and the holder makes one more pass, so nothing is lost. Handing thousands of lanes from
// callers to the background, or back, costs one epoll_ctl().
//
// Lanes that were active a moment ago are hot: they are served without asking epoll.
//
// Lock order: a poller's lock, then a lane's; the table's and the doorbells' are innermost.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "io/engine.h"
#include "io/fd.h"
#include "io/kick_lock.h"
#include "io/lock.h"
#include "io/ticks.h"
#include "verbs/lane.h"

namespace weft::verbs {

class CompletionQueueImpl;

class Poller final : public io::Handler, public std::enable_shared_from_this<Poller> {
 public:
  //   kSystem   no descriptors
  [[nodiscard]] static Result<std::shared_ptr<Poller>> create(std::shared_ptr<DeviceImpl> device,
                                                              io::Engine& home);
  ~Poller() override;
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // The poller that does the work of this one: itself, or the one it was merged into.
  [[nodiscard]] Poller& root() noexcept;
  // From now on `from` and `to` are one.
  static void merge(const std::shared_ptr<Poller>& from, const std::shared_ptr<Poller>& to);

  // The CQs whose callers run it. Under the device's topology lock.
  [[nodiscard]] std::vector<std::weak_ptr<CompletionQueueImpl>>& cqs() noexcept { return cqs_; }

  // --- lanes; with the lane held ---
  [[nodiscard]] Status attach(Lane& lane, std::shared_ptr<LaneOwner> owner);
  // Returns what kept the owner alive: let it go without the lane.
  [[nodiscard]] std::shared_ptr<LaneOwner> detach(Lane& lane);
  void update(const Lane& lane, int fd, std::uint32_t events);
  // The lane's transport has got a bell.  False: no room in the epoll.
  [[nodiscard]] bool add_bell(Lane& lane);

  // --- callers ---

  // Who polls a CQ runs its poller once. True: look again before sleeping, since something moved,
  // or somebody else is at it.
  bool drive(bool ring = true);  // `ring`: doorbells too
  // A poll found nothing: gives way to others now and then.
  void nothing_found();
  // A poll found completions: it is not one of a row without success.
  void something_found() noexcept { untaken_.store(0, std::memory_order_relaxed); }
  void note_poll() noexcept {
    polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // Around a sleep that ends when epoll() reports something.
  void begin_sleep();
  void end_sleep();
  // Before each sleep: every doorbell is rung, and every hot lane is cold. True: look again.
  [[nodiscard]] bool settle();
  // After a sleep: what epoll has to report. Lanes stay cold, for the next sleep.
  void look();
  [[nodiscard]] int epoll() const noexcept { return epoll_.get(); }
  // Callers have let it lie without a word: do not count on their way to sleep.
  [[nodiscard]] bool was_abandoned() const noexcept {
    return abandoned_.load(std::memory_order_relaxed);
  }
  // Leaves the lanes to the background, for example since the caller may sleep in poll(2) next.
  void hand_over();

  // --- posts ---
  // A doorbell may wait: nobody sleeps until it is rung.
  [[nodiscard]] bool collects() const noexcept {
    return sleepers_.load(std::memory_order_relaxed) == 0;
  }
  // A request was posted at `now` (cpu_ticks()); `answers`: something has come on its connection
  // since the post before it. True: it is one of a stream, many since the last poll or before it.
  [[nodiscard]] bool note_post(std::uint64_t now, bool answers) noexcept;
  // A request was sent by the call that posted it: a stream goes on from here.
  void note_rung() noexcept {
    if (!kept_by_callers()) last_post_.store(io::cpu_ticks(), std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t polls() const noexcept {
    return polls_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t last_drive() const noexcept {
    return last_drive_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool doorbells_wait() const noexcept {
    return doorbell_due_.load(std::memory_order_relaxed);
  }
  // The process exits: sends what waits, and does nothing else.
  void ring_at_exit();
  // The next look rings this lane. False: nobody may look soon, so the caller rings.
  [[nodiscard]] bool collect(Lane& lane);

  // --- the device ---
  // True: the background runs it, and had something to do since the last call.
  [[nodiscard]] bool was_active();
  [[nodiscard]] bool kept_by_callers() const noexcept {
    return keeper_.load(std::memory_order_relaxed) == Keeper::kCallers;
  }
  void take();  // callers run it from now on
  void check_peers(Instant now);
  struct Stalled {
    Instant since;
    std::shared_ptr<LaneOwner> owner;
    Lane* lane = nullptr;
  };
  // Adds its lanes whose peers take nothing of what is to be sent.
  void add_stalled(std::vector<Stalled>& out);

  [[nodiscard]] io::Engine& home() noexcept { return home_; }
  [[nodiscard]] std::uint32_t lanes() const noexcept {
    return lane_count_.load(std::memory_order_relaxed);
  }

  void on_io(std::uint32_t events) override;

 private:
  enum class Keeper : std::uint8_t { kBackground, kCallers };
  struct Slot {
    std::shared_ptr<LaneOwner> owner;
    Lane* lane = nullptr;
    std::uint32_t generation = 1;
  };
  struct Hot {
    std::shared_ptr<LaneOwner> owner;
    Lane* lane = nullptr;
    std::uint32_t idle = 0;  // runs in a row that received nothing
    bool attended = false;   // the lane knows that somebody looks
  };
  struct Found {
    std::shared_ptr<LaneOwner> owner;
    Lane* lane = nullptr;
  };
  static constexpr std::uint32_t kHotMax = 8;
  static constexpr std::uint32_t kPollsToTake = 4;
  // So many looks within 10 ms are those of a caller who does little else.
  static constexpr std::uint32_t kDrivesOfPollers = 5000;

  Poller(std::shared_ptr<DeviceImpl> device, io::Engine& home)
      : device_(std::move(device)), home_(home) {}
  [[nodiscard]] Found find(std::uint64_t token);
  [[nodiscard]] std::vector<std::uint64_t> tokens();

  // With lock_ held.
  bool pass(bool look, bool warm = true, bool ring = true) WEFT_REQUIRES(lock_);
  bool ring_doorbells(bool warm = false) WEFT_REQUIRES(lock_);
  template <class Stays>
  bool run_hot(bool again, Stays stays) WEFT_REQUIRES(lock_);
  bool harvest(bool warm) WEFT_REQUIRES(lock_);
  void make_hot(Found found) WEFT_REQUIRES(lock_);
  bool cool_down() WEFT_REQUIRES(lock_);  // True: something moved, or is hot still
  void leave_hot_to_background();
  [[nodiscard]] bool help_others() WEFT_REQUIRES(lock_);
  bool leave() WEFT_RELEASE(lock_) WEFT_NOT_ANALYZED;

  // A timer of the home thread, which keeps the poller while it runs.
  class Timer final : public io::Handler {
   public:
    Timer(Poller& poller, void (Poller::*due)()) : poller_(poller), due_(due) {}
    void on_timer(io::TimerId /*id*/) override { (poller_.*due_)(); }

   private:
    Poller& poller_;
    void (Poller::*due_)();
  };

  void serve();
  void serve_soon();
  bool serve_now();
  void spin();
  [[nodiscard]] bool passive_spin_allowed();
  [[nodiscard]] bool cores_are_enough();
  void start_timer(Duration wait, Timer& timer);
  void watch_callers();
  void look_after_callers();
  void ring_late();
  void start_bell();
  [[nodiscard]] bool polled_densely();
  void look_for_others();
  std::optional<bool> run_once(bool look);
  bool help();

  const std::shared_ptr<DeviceImpl> device_;  // and with it the home thread
  io::Engine& home_;
  io::Fd epoll_;
  io::KickLock lock_;

  // Lanes by slot; a token is a slot and its generation.
  io::SpinLock table_lock_;
  std::vector<Slot> slots_ WEFT_GUARDED_BY(table_lock_);
  std::vector<std::uint32_t> free_slots_ WEFT_GUARDED_BY(table_lock_);
  std::atomic<std::uint32_t> lane_count_{0};

  // With lock_ held.
  std::array<Hot, kHotMax> hot_{};
  std::atomic<std::uint32_t> hot_count_{0};
  bool hot_blocked_ = false;  // one of them waits for room
  bool seldom_ = false;       // callers pause between their looks
  std::uint32_t since_look_ = 0;
  std::vector<std::uint64_t> ringing_;
  std::vector<std::weak_ptr<Poller>> helped_;

  // Who runs it.
  io::SpinLock keeper_lock_;  // changes of keeper_, with the registration that goes with it
  std::atomic<Keeper> keeper_{Keeper::kBackground};
  std::atomic<bool> registered_{false};  // in the home thread's epoll
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> watching_callers_{false};
  std::atomic<std::uint32_t> drives_{0};   // by callers
  std::uint32_t drives_seen_ = 0;          // the home thread's
  bool polled_before_ = false;             // likewise
  std::atomic<std::uint32_t> untaken_{0};  // polls without success, while the background runs it
  std::atomic<std::uint32_t> polls_to_take_{kPollsToTake};
  // See polled_densely(); a race costs one decision, no more.
  std::atomic<std::uint64_t> dense_since_{0};  // cpu_ticks()
  std::atomic<std::uint32_t> drives_then_{0};
  std::atomic<std::uint32_t> vain_{0};
  std::atomic<std::uint32_t> vain_to_take_{kDrivesOfPollers};
  Timer caller_timer_{*this, &Poller::look_after_callers};
  // Spinning: the home thread's.
  Instant cores_asked_at_;
  bool cores_enough_ = false;
  Instant no_spin_before_;
  Duration spin_pause_{1'000'000};
  std::atomic<std::uint64_t> served_{0};  // passes of the background that moved something
  std::uint64_t served_seen_ = 0;         // the device's, under its lock

  // Doorbells.
  io::SpinLock doorbell_lock_;
  std::vector<std::uint64_t> doorbells_ WEFT_GUARDED_BY(doorbell_lock_);  // tokens
  std::atomic<bool> doorbell_due_{false};
  std::atomic<bool> late_bell_{false};  // a timer will ring what is left
  Timer bell_timer_{*this, &Poller::ring_late};
  std::uint32_t bell_delays_ = 0;  // the home thread's
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<std::uint64_t> last_drive_{0};  // cpu_ticks()
  // Posts between two polls. Written by posting threads without a lock; a race costs one batch, no
  // more.
  std::atomic<std::uint32_t> posts_{0};
  std::atomic<bool> streaming_{false};  // there were many before the last poll
  std::atomic<std::uint64_t> polls_at_post_{0};
  std::atomic<std::uint64_t> last_post_{0};  // cpu_ticks() of its end

  std::atomic<Poller*> merged_into_{nullptr};
  std::shared_ptr<Poller> successor_;  // keeps merged_into_
  std::vector<std::weak_ptr<CompletionQueueImpl>> cqs_;
};

}  // namespace weft::verbs
