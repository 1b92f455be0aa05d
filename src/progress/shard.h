// A shard: lanes that are run together, and how their events are found.
//
// A completion queue has one from its first queue pair on. A lane gets its shard when its queue
// pair is made, from the receive CQ, and keeps it for life. Everybody makes progress by one call,
// run(): callers who poll or sleep, the background thread, timers. One of them runs the shard at a
// time; the others leave a kick, and the holder makes one more pass. So nothing is lost, and nobody
// waits for another thread.
//
// A pass asks epoll, if it is due; takes the lanes that are ready out of the list; and gives each a
// turn. A lane that was active a moment ago stays in the list, and is looked at without epoll.
//
// Who looks after a shard, callers or the background, is the ShardOwner's business.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "io/engine.h"
#include "os/fd.h"
#include "os/kick_lock.h"
#include "os/lock.h"
#include "progress/host.h"
#include "progress/shard_owner.h"

namespace weft::progress {

class Lane;
class LaneOwner;

// How a run looks.
enum class Look : std::uint8_t {
  kPoll,    // the caller looks again soon: active lanes stay in the list, epoll now and then
  kGlance,  // the same, and the caller has more to take: a lane that only sends waits
  kListed,  // the same as kPoll without epoll: the caller sleeps next, and epoll ends that
  kAll,     // asks epoll; then lanes with nothing to do are asleep
  kSettle,  // the same without epoll: before a sleep, which ends when epoll reports something
};

struct Ran {
  bool moved = false;  // something came or went
  bool left = false;   // there is more to do
  bool busy = false;   // another thread runs it, and has been told if the look was not a poll
};

class Shard final : public std::enable_shared_from_this<Shard> {
 public:
  // A neighbour shares its always readable descriptor, if it has not enough sharers; null: there is
  // none.
  //   kSystem   no descriptors
  [[nodiscard]] static Result<std::shared_ptr<Shard>> create(std::shared_ptr<ProgressHost> host,
                                                             io::Engine& home,
                                                             const Shard* neighbour);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Runs what is ready, one pass, and one more for each kick. Never blocks. Any thread that holds
  // no lane and no shard.
  Ran run(Look look);
  // A caller's poll. True: look again before sleeping.
  bool poll(Look look = Look::kPoll);
  // Sends all that waits and puts active lanes to sleep: the caller may sleep somewhere else next.
  void settle();
  // Once, by a thread that does not come back; whoever looks after the shard does what is left.
  void run_for_others();
  [[nodiscard]] ShardOwner& owner() noexcept { return owner_; }
  [[nodiscard]] int epoll() const noexcept { return epoll_.get(); }
  [[nodiscard]] io::Engine& home() noexcept { return home_; }
  [[nodiscard]] ProgressHost& host() noexcept { return *host_; }
  // Sleepers on the epoll, and the background's thread, look once more. Any thread; a system
  // call.
  void make_epoll_readable();

  // --- posts ---

  // A request was left for the next pass. False: a thread sleeps, and may not see it:
  // kick_or_wake().
  [[nodiscard]] bool note_left_post();
  [[nodiscard]] bool posts_wait() const noexcept {
    return posts_wait_.load(std::memory_order_relaxed);
  }
  // The process exits: sends what waits, and does nothing else.
  void send_at_exit();

  // --- lanes; with the lane held ---

  //   kSystem   no room in the epoll
  // Lanes are registered with their address; the lowest bit tells the bell from the socket.
  [[nodiscard]] Status attach(Lane& lane, std::shared_ptr<LaneOwner> owner);
  // The lane is out of the epoll. Its owner is let go behind a pass, when nothing here refers to
  // the lane any more; who calls this outside a pass calls run() afterwards.
  void detach(Lane& lane);
  void update(const Lane& lane, int fd, std::uint32_t events);
  [[nodiscard]] bool add_bell(Lane& lane);
  void remove_bell(int bell);
  // Links a lane whose InList this thread has set. `by_holder`: in a pass of this shard.
  void push(Lane& lane, bool by_holder);
  // Behind push() by others: somebody runs the lane soon.
  void kick_or_wake();
  // Lanes that stay in the list although nothing has come, as their holders count them.
  struct Attended {
    std::atomic<std::uint32_t> all{0};
    std::atomic<std::uint32_t> costly{0};   // each look is a system call
    std::atomic<std::uint32_t> blocked{0};  // of these, those that wait for room: only epoll tells
  };
  [[nodiscard]] Attended& attended() noexcept { return attended_; }
  static constexpr std::uint32_t kCostlyMax = 8;
  // Callers pause between their looks.
  [[nodiscard]] bool is_looked_at_seldom() const noexcept {
    return seldom_.load(std::memory_order_relaxed);
  }

  // Lanes that are over wait for a pass to be let go.
  [[nodiscard]] bool has_retired() const noexcept {
    return any_retired_.load(std::memory_order_acquire);
  }

  // --- the device ---
  [[nodiscard]] std::uint32_t lanes() const noexcept {
    return lane_count_.load(std::memory_order_relaxed);
  }
  void check_peers(Instant now);
  struct Stalled {
    Instant since;
    std::shared_ptr<LaneOwner> owner;
    Lane* lane = nullptr;
  };
  // Adds its lanes whose peers take nothing of what is to be sent.
  void add_stalled(std::vector<Stalled>& out);

  // A lane in full operation, and what keeps it. In lists: what ends needs no memory.
  struct Kept {
    Lane* lane = nullptr;
    std::shared_ptr<LaneOwner> owner;
  };
  using Place = std::list<Kept>::iterator;

 private:
  Shard(std::shared_ptr<ProgressHost> host, io::Engine& home);
  [[nodiscard]] std::vector<Kept> kept_lanes();

  // With lock_ held.
  bool pass(Look look, bool kicked) WEFT_REQUIRES(lock_);
  [[nodiscard]] bool look_is_due(Look look, bool kicked, bool patient) WEFT_REQUIRES(lock_);
  void harvest() WEFT_REQUIRES(lock_);
  bool run_ready(std::uint32_t told, Look look, bool patient) WEFT_REQUIRES(lock_);
  // How many there were; they are in front now.
  std::uint32_t take_inbox() WEFT_REQUIRES(lock_);
  void link(Lane& lane) noexcept WEFT_REQUIRES(lock_);
  void link_first(Lane& lane) noexcept WEFT_REQUIRES(lock_);
  [[nodiscard]] Lane* unlink() noexcept WEFT_REQUIRES(lock_);
  void free_retired(std::list<Kept>& out) WEFT_REQUIRES(lock_);

  const std::shared_ptr<ProgressHost> host_;  // and with it the home thread
  io::Engine& home_;
  os::Fd epoll_;
  // One-shot in epoll_: to arm it wakes whoever sleeps there. Some shards have it in common.
  std::shared_ptr<const os::Fd> always_readable_;
  ShardOwner owner_{*this};

  os::KickLock lock_;
  // Lanes that are ready, the holder's, first in first out; and those that others have added.
  Lane* head_ WEFT_GUARDED_BY(lock_) = nullptr;
  Lane* tail_ WEFT_GUARDED_BY(lock_) = nullptr;
  std::uint32_t length_ WEFT_GUARDED_BY(lock_) = 0;
  std::atomic<Lane*> inbox_{nullptr};
  Attended attended_;
  std::atomic<bool> seldom_{false};
  bool more_events_ = false;  // epoll had as many as one look takes
  std::uint32_t since_look_ = 0;
  std::atomic<bool> posts_wait_{false};

  // Lanes in full operation; those that are over.
  os::SpinLock table_lock_;
  std::list<Kept> table_ WEFT_GUARDED_BY(table_lock_);
  std::list<Kept> retired_ WEFT_GUARDED_BY(table_lock_);
  std::atomic<bool> any_retired_{false};
  std::atomic<std::uint32_t> lane_count_{0};
};

}  // namespace weft::progress
