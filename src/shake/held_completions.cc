#include "shake/held_completions.h"

#include <vector>

namespace weft::shake {
namespace {

constexpr std::uint64_t kMicrosecond = 1000;

}  // namespace

// Most are not delayed by much: a program that is slow for seconds finds nothing more.
std::uint64_t Held::wait_ns(bool receive, Dice dice) const {
  if (!receive && plan_.has(Effect::kLate)) {
    if (dice.percent(30)) return dice.below(2000) * kMicrosecond;
    if (dice.percent(50)) return dice.below(100) * kMicrosecond;
  }
  if (plan_.has(Effect::kOrder)) {
    if (dice.percent(10)) return dice.below(1000) * kMicrosecond;
    if (dice.percent(30)) return dice.below(50) * kMicrosecond;
  }
  // So that a poll finds nothing, and the call that arms is next.
  if (plan_.has(Effect::kArm) && dice.percent(30)) return dice.below(200) * kMicrosecond;
  return 0;
}

std::uint64_t Held::add(const WorkCompletion& one, std::uint64_t now_ns, bool may_wait,
                        std::uint64_t place) {
  const bool receive = is_receive(one);
  std::uint64_t key = 0;
  if (plan_.has(Effect::kOrder)) key = std::uint64_t{one.qp_num} << 1U | (receive ? 1U : 0U);
  const std::uint64_t queue = place << 1U | (receive ? 1U : 0U);
  const std::uint64_t wait =
      wait_ns(receive, {plan_.seed, stream_, Decision::kShown, queue, ++came_[queue]});
  queues_[key].push_back({one, may_wait ? now_ns + wait : 0});
  ++size_;
  return may_wait ? wait : 0;
}

std::size_t Held::take(std::span<WorkCompletion> out, std::uint64_t now_ns) {
  std::vector<std::map<std::uint64_t, std::deque<Item>>::iterator> ready;
  const auto is_ready = [now_ns](const std::deque<Item>& queue) {
    return !queue.empty() && queue.front().shown_ns <= now_ns;
  };
  for (auto at = queues_.begin(); at != queues_.end();) {
    if (is_ready(at->second)) ready.push_back(at);
    at = at->second.empty() ? queues_.erase(at) : std::next(at);
  }
  std::size_t taken = 0;
  while (taken < out.size() && !ready.empty()) {
    Dice dice(plan_.seed, stream_, Decision::kTaken, 0, ++taken_);
    const std::size_t chosen = dice.below(ready.size());
    std::deque<Item>& queue = ready[chosen]->second;
    out[taken++] = queue.front().completion;
    queue.pop_front();
    if (!is_ready(queue)) ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  size_ -= taken;
  return taken;
}

void Held::show_all() {
  for (auto& [key, queue] : queues_) {
    for (Item& item : queue) item.shown_ns = 0;
  }
}

void Held::forget(std::uint32_t qp_num) {
  for (auto& [key, queue] : queues_) {
    size_ -= std::erase_if(queue,
                           [qp_num](const Item& item) { return item.completion.qp_num == qp_num; });
  }
}

}  // namespace weft::shake
