// Posts of one connection that are left to the shard's next pass.
//
// Under load posts are collected, so that many small requests leave with one system call. The first
// after a pause or a poll is sent at once, unless there is a stream of them, on this connection or
// on the CQ: a caller that keeps posting polls again when the queues are full.
//
// Written by posting and polling threads without a lock; a race costs one batch, no more.
#pragma once

#include <atomic>
#include <cstdint>

#include "os/ticks.h"
#include "progress/pace.h"
#include "proto/work.h"

namespace weft::progress {

class CollectedPosts {
 public:
  explicit CollectedPosts(const proto::SendQueue& sq) noexcept : sq_(sq) {}

  // Octets in the send queue that no doorbell has covered yet. The poster's, under its lock.
  void note_posted(std::uint64_t bytes) noexcept {
    unsent_bytes_.store(unsent_bytes_.load(std::memory_order_relaxed) + bytes,
                        std::memory_order_relaxed);
  }
  [[nodiscard]] bool has_room() const noexcept {
    return unsent_bytes_.load(std::memory_order_relaxed) < kCollectedBytes &&
           sq_.size() < sq_.capacity();
  }
  static constexpr std::uint32_t kFewLanes = 4;
  // The facts when a request has just been posted.
  struct Post {
    bool collecting = false;         // others wait already
    bool callers = false;            // callers look after the shard
    bool many = false;               // the shard has more than kFewLanes connections
    std::uint64_t last_look = 0;     // at the shard, in cpu_ticks()
    std::uint64_t received = 0;      // a count that grows with what the connection receives
    std::uint64_t ticks_per_us = 0;  // of cpu_ticks()
  };
  // Whether it may wait for the next pass. `pace`: the shard's.
  [[nodiscard]] bool may_wait(PostPace& pace, const Post& post) noexcept {
    return may_wait(pace, post, [] { return os::cpu_ticks(); });
  }
  // The same by another clock. It is read only where that decides.
  template <class Ticks>
  [[nodiscard]] bool may_wait(PostPace& pace, const Post& post, Ticks ticks) noexcept {
    // Where nobody polls, and a pause ends the stream, those of many connections may all be between
    // two looks for longer than a pause.
    const bool looks = sq_.tail() % kPostsPerLook == 0 || (post.many && !post.callers);
    if (post.collecting && !looks) return true;
    const std::uint64_t now = ticks();
    const bool answers =
        post.received != received_at_post_.exchange(post.received, std::memory_order_relaxed);
    if (pace.note_post(now, answers, !post.callers, kStreamGapUs * post.ticks_per_us)) return true;
    if (!post.callers) return false;
    if (streaming_.load(std::memory_order_relaxed)) return true;
    return pace.polls() == polls_at_flush_.load(std::memory_order_relaxed) &&
           now - post.last_look < kPostWaitsUs * post.ticks_per_us;
  }

  // The lane's holder sends all that has been posted.
  void begin_flush() noexcept { unsent_bytes_.store(0, std::memory_order_relaxed); }
  void end_flush(const PostPace& pace) noexcept {
    const std::uint32_t tail = sq_.tail();
    streaming_.store(tail - tail_at_flush_ >= kStreamOfPosts, std::memory_order_relaxed);
    tail_at_flush_ = tail;
    polls_at_flush_.store(pace.polls(), std::memory_order_relaxed);
  }

 private:
  // A post may wait for the next pass if the last look was less than this ago.
  static constexpr std::uint64_t kPostWaitsUs = 20;
  // So much is collected of one connection before it is sent.
  static constexpr std::uint64_t kCollectedBytes = 256U << 10U;
  // While posts are being collected, one in so many looks at the clock.
  static constexpr std::uint32_t kPostsPerLook = 4;
  // Where nobody polls, posts further apart than this are no stream.
  static constexpr std::uint64_t kStreamGapUs = 2;
  // This many requests in one flush are a stream.
  static constexpr std::uint32_t kStreamOfPosts = 4;

  const proto::SendQueue& sq_;
  std::atomic<bool> streaming_{false};  // the last flush carried many requests
  std::atomic<std::uint64_t> unsent_bytes_{0};
  std::atomic<std::uint64_t> polls_at_flush_{0};  // of the shard
  std::atomic<std::uint64_t> received_at_post_{0};
  std::uint32_t tail_at_flush_ = 0;  // of sq_
};

}  // namespace weft::progress
