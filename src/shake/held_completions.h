// The completions that a shaken completion queue has, and those of them that it shows already.
//
// One thread at a time. Time is nanoseconds of a clock that does not go back.
#pragma once

#include <weft/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <span>

#include "shake/shake_plan.h"

namespace weft::shake {

// Receives complete in the order of their queue, and so do requests; queues have no order among
// each other.
[[nodiscard]] constexpr bool is_receive(const WorkCompletion& one) {
  return one.op == WcOp::kRecv || one.op == WcOp::kRecvWithImm;
}

class Held {
 public:
  Held(const Plan& plan, std::uint64_t stream) : plan_(plan), stream_(stream) {}

  // `may_wait`: it need not be shown at once. How long it is not. `place`: of its queue pair among
  // all, the same in each run.
  std::uint64_t add(const WorkCompletion& one, std::uint64_t now_ns, bool may_wait,
                    std::uint64_t place = 0);
  // Those that are shown now: how many of `out`.
  [[nodiscard]] std::size_t take(std::span<WorkCompletion> out, std::uint64_t now_ns);
  // From now on those that are here are shown.
  void show_all();
  // Those of this queue pair are gone.
  void forget(std::uint32_t qp_num);
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Item {
    WorkCompletion completion;
    std::uint64_t shown_ns;  // from then on
  };

  [[nodiscard]] std::uint64_t wait_ns(bool receive, Dice dice) const;

  const Plan plan_;
  const std::uint64_t stream_;
  std::map<std::uint64_t, std::uint64_t> came_;  // how many have come of each queue
  std::uint64_t taken_ = 0;
  // By queue pair, and whether they are receives; all in one without Effect::kOrder.
  std::map<std::uint64_t, std::deque<Item>> queues_;
  std::size_t size_ = 0;
};

}  // namespace weft::shake
