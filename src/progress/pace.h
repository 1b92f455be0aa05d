// Whether posts come in streams, so that their doorbells are worth collecting.
//
// Written by posting and polling threads without a lock; a race costs one batch, no more.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::progress {

class PostPace {
 public:
  void note_poll() noexcept {
    polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t polls() const noexcept {
    return polls_.load(std::memory_order_relaxed);
  }
  // The ninth post between two polls is part of a stream, and so are those behind a poll that ended
  // one. Where nobody polls (`alone`) a program may wait in memory for the answer to each post: one
  // that answers something, or comes `gap` ticks after the last, begins anew. `now`: cpu_ticks().
  [[nodiscard]] bool note_post(std::uint64_t now, bool answers, bool alone,
                               std::uint64_t gap) noexcept {
    const std::uint64_t polls = this->polls();
    std::uint32_t posts = posts_.load(std::memory_order_relaxed) + 1;
    if (polls != polls_at_post_.load(std::memory_order_relaxed)) {
      polls_at_post_.store(polls, std::memory_order_relaxed);
      streaming_.store(posts > kStream, std::memory_order_relaxed);
      posts = 1;
    } else if (alone && (answers || now - last_post_.load(std::memory_order_relaxed) > gap)) {
      streaming_.store(false, std::memory_order_relaxed);
      posts = 1;
    }
    posts_.store(posts, std::memory_order_relaxed);
    last_post_.store(now, std::memory_order_relaxed);
    return posts >= kStream || streaming_.load(std::memory_order_relaxed);
  }
  // A request was sent by the call that posted it: a stream goes on from here.
  void note_sent(std::uint64_t now) noexcept { last_post_.store(now, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t last_post() const noexcept {
    return last_post_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kStream = 8;
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<std::uint32_t> posts_{0};
  std::atomic<bool> streaming_{false};  // there were many before the last poll
  std::atomic<std::uint64_t> polls_at_post_{0};
  std::atomic<std::uint64_t> last_post_{0};  // cpu_ticks() of its end
};

}  // namespace weft::progress
