// Acks that leave with the program's answer, between queue pairs that are connected out of band.
//
// A program that polls and has just been given a message often posts its answer before it polls
// again; then the Ack needs no system call of its own. Left to the next pass, it leaves with the
// answer, or without one with the next poll, before the caller sleeps, or by the timer. It is left
// only where the last messages were answered so.
//
// Written by posting and polling threads without a lock; a race costs a system call, no more.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace weft::progress {

class LeftAck {
 public:
  [[nodiscard]] bool waits() const noexcept { return left_.load(std::memory_order_relaxed); }
  // It has been sent, or the connection begins.
  void clear() noexcept { left_.store(false, std::memory_order_relaxed); }

  // An Ack is due. `look`: when the shard was last looked at, ShardOwner::last_look(). True: it
  // waits for the program's answer from now on.
  bool leave(std::uint64_t look) noexcept {
    const std::uint64_t before = due_at_.exchange(look, std::memory_order_relaxed);
    std::uint32_t answers = answers_.load(std::memory_order_relaxed);
    if (before != 0 && answers != 0) answers_.store(--answers, std::memory_order_relaxed);
    if (answers < kAnswersToWait) return false;
    left_.store(true, std::memory_order_relaxed);
    return true;
  }

  // A request is posted: the answer, if an Ack was due.
  void note_post(std::uint64_t look) noexcept {
    if (due_at_.load(std::memory_order_relaxed) == 0) return;
    const bool at_once = look == due_at_.exchange(0, std::memory_order_relaxed);
    const std::uint32_t answers = answers_.load(std::memory_order_relaxed);
    if (at_once) {
      answers_.store(std::min(answers + 1, kAnswersMax), std::memory_order_relaxed);
    } else if (answers != 0) {
      answers_.store(answers - 1, std::memory_order_relaxed);
    }
  }

 private:
  // An Ack waits if so many of the last ones have been answered at once.
  static constexpr std::uint32_t kAnswersToWait = 2;
  static constexpr std::uint32_t kAnswersMax = 4;

  std::atomic<bool> left_{false};
  std::atomic<std::uint64_t> due_at_{0};   // the look then; 0: answered
  std::atomic<std::uint32_t> answers_{0};  // that came at once, up to kAnswersMax
};

}  // namespace weft::progress
