// The state that the shaken queues of a process share: shaken.h.
#pragma once

#include <weft/limits.h>
#include <weft/queue_pair.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ibverbs/objects.h"
#include "os/lock.h"
#include "shake/ledger.h"
#include "shake/shake_plan.h"

namespace weft::ibverbs {

// The memory of a request; of one that has too many SGEs, and is refused, none: its list is perhaps
// shorter.
[[nodiscard]] inline std::vector<Sge> memory_of(std::span<const Sge> sges) {
  if (sges.size() > limits::kSgesPerRequest) return {};
  return {sges.begin(), sges.end()};
}

// Where the completions of a queue pair are counted.
class CountsCompletions {
 public:
  virtual ~CountsCompletions() = default;
  // The program is about to get it.
  virtual void polled(WorkCompletion& completion) = 0;
  // Rings the doorbell that was left for later.
  virtual void ring_now() = 0;
  [[nodiscard]] virtual bool may_use(const Sge& octets) = 0;
  // Which one it is, by creation from 0.
  [[nodiscard]] virtual std::uint64_t place() const = 0;
};
// A completion queue that holds some of what it has.
class HoldsCompletions {
 public:
  virtual ~HoldsCompletions() = default;
  virtual void show_all() = 0;
  virtual void forget(std::uint32_t qp_num) = 0;
};

// The receives of a queue pair, or of several that share a queue.
class PostedReceives {
 public:
  // `waiting`: how many of a queue that several queue pairs share no message has taken; null: it is
  // one queue pair's.
  using Waiting = std::function<std::uint32_t()>;
  explicit PostedReceives(std::uint32_t depth, Waiting waiting = nullptr)
      : depth_(depth), waiting_(std::move(waiting)) {}
  using Call = std::function<Posted(std::span<const RecvWr>)>;
  // Posts by `call` those for which there is room.
  [[nodiscard]] Posted post(std::span<const RecvWr> wrs, const Call& call);
  [[nodiscard]] std::optional<shake::Ledger::Entry> received(std::uint64_t wr_id);
  [[nodiscard]] bool may_use(const Sge& octets);
  // A queue pair was reset or destroyed. Receives of a queue that is shared are there for the
  // others; but nobody hears of those that it had taken.
  void emptied();
  void resize(std::uint32_t depth) { depth_ = depth; }
  [[nodiscard]] std::uint32_t depth() const { return depth_; }

 private:
  std::atomic<std::uint32_t> depth_;
  const Waiting waiting_;
  os::Mutex posting_;  // taken before mutex_
  os::Mutex mutex_;
  shake::Ledger ledger_ WEFT_GUARDED_BY(mutex_);
  bool all_known_ WEFT_GUARDED_BY(mutex_) = true;  // of a shared one: all that are there are due
};

// Never destroyed: programs call from atexit handlers.
class Shaker {
 public:
  explicit Shaker(const shake::Plan& plan) : plan_(plan), values_(plan.seed, ~std::uint64_t{0}) {}

  [[nodiscard]] const shake::Plan& plan() const { return plan_; }
  // Numbers of the queues, in the order of their creation.
  [[nodiscard]] std::uint64_t next_stream() { return streams_.fetch_add(1); }
  [[nodiscard]] std::uint64_t value();
  // For the log: how many were made, and the place of a new one.
  [[nodiscard]] std::uint64_t qps_made() const { return qps_made_.load(); }
  [[nodiscard]] std::uint64_t next_qp() { return qps_made_.fetch_add(1); }
  [[nodiscard]] std::uint64_t next_cq() { return cqs_made_.fetch_add(1); }

  void add(std::uint32_t number, const std::shared_ptr<CountsCompletions>& qp);
  void remove(std::uint32_t number);
  void add(const std::shared_ptr<HoldsCompletions>& cq);
  void add(const std::shared_ptr<PostedReceives>& receives);
  [[nodiscard]] std::shared_ptr<CountsCompletions> find(std::uint32_t number);
  [[nodiscard]] std::vector<std::shared_ptr<HoldsCompletions>> queues();
  [[nodiscard]] std::vector<std::uint32_t> qp_numbers();

  struct Region {
    std::uint64_t addr, length;
    bool peer_writes;  // or may, through this key or a window
  };

  // Fills octets that a message has left of its receive, if no other request and no peer may use
  // them and their region is there. True: it did.
  bool fill_tail(const Sge& tail);
  void key(std::uint32_t lkey, const Region& region);
  void dead_key(std::uint32_t lkey);

  void ring_later(const std::weak_ptr<CountsCompletions>& qp, std::chrono::nanoseconds wait);

 private:
  struct Ring {
    std::int64_t when_ns;
    std::weak_ptr<CountsCompletions> qp;
    bool operator<(const Ring& other) const {
      return when_ns > other.when_ns;
    }  // the earliest on top
  };
  void run();

  const shake::Plan plan_;
  std::atomic<std::uint64_t> streams_{0}, qps_made_{0}, cqs_made_{0};
  os::Mutex mutex_;
  shake::Dice values_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<std::uint32_t, std::weak_ptr<CountsCompletions>> qps_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<HoldsCompletions>> cqs_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<PostedReceives>> receives_ WEFT_GUARDED_BY(mutex_);
  os::Mutex keys_mutex_;
  std::unordered_map<std::uint32_t, Region> keys_ WEFT_GUARDED_BY(keys_mutex_);
  os::Mutex rings_mutex_;
  os::Condition rings_changed_;
  std::priority_queue<Ring> rings_ WEFT_GUARDED_BY(rings_mutex_);
  bool running_ WEFT_GUARDED_BY(rings_mutex_) = false;
};

// REQUIRES: `shaking` is not null.
[[nodiscard]] Shaker& shaker();

}  // namespace weft::ibverbs
