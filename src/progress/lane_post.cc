// Posts that a lane sends at once, or leaves to the next pass.
#include <algorithm>

#include "os/ticks.h"
#include "progress/lane.h"

namespace weft::progress {

namespace {

// A post may wait for the next pass if the last look was less than this ago.
constexpr std::uint64_t kPostWaitsUs = 20;
// So much is collected of one connection before it is sent.
constexpr std::uint64_t kCollectedBytes = 256U << 10U;
// While posts are being collected, one in so many looks at the clock.
constexpr std::uint32_t kPostsPerLook = 4;
// Where nobody polls, posts further apart than this are no stream.
constexpr std::uint64_t kStreamGapUs = 2;
// An Ack waits for the program's answer if so many of the last ones have come at once.
constexpr std::uint32_t kAnswersToWait = 2;
constexpr std::uint32_t kAnswersMax = 4;

}  // namespace

void Lane::ring() {
  if (ack_.look.load(std::memory_order_relaxed) != 0) note_answer();
  if (!may_leave_post()) {
    kick();
    ShardOwner& owner = shard_->owner();
    if (!owner.is_callers()) owner.pace().note_sent(os::cpu_ticks());
    return;
  }
  // A full barrier: whoever takes the note sees what was posted before.
  Word before = 0;
  const Next next = apply([](Word w) { return signal_step(w, kPosted); }, &before);
  if (next == Next::kVoid) return kick();
  if (next == Next::kPush) shard_->push(*this, false);
  if ((before & kPosted) != 0 || state_of(before) == kRunning) return;
  if (!shard_->note_left_post()) shard_->tell();
}

// Under load posts are collected, so that many small requests leave with one system call. The first
// after a pause or a poll is sent at once, unless there is a stream of them, on this connection or
// on the CQ: a caller that keeps posting polls again when the queues are full.
bool Lane::may_leave_post() {
  ShardOwner& owner = shard_->owner();
  if (!live() || !room_to_collect() || owner.sleepers() != 0) return false;
  // With an Ack that waits for this post there is nothing collected yet.
  const bool collecting = post_waits() && !ack_.left.load(std::memory_order_relaxed);
  if (collecting && sq_.tail() % kPostsPerLook != 0) return true;
  const std::uint64_t now = os::cpu_ticks();
  const std::uint64_t received = calls_.rx.get();
  const bool answers =
      received != posts_.received_at_post.exchange(received, std::memory_order_relaxed);
  const bool callers = owner.is_callers();
  PostPace& pace = owner.pace();
  if (pace.note_post(now, answers, !callers, kStreamGapUs * host_.ticks_per_us())) return true;
  if (!callers) return false;
  if (posts_.streaming.load(std::memory_order_relaxed)) return true;
  return pace.polls() == posts_.polls_at_flush.load(std::memory_order_relaxed) &&
         now - owner.last_look() < kPostWaitsUs * host_.ticks_per_us();
}

// Between wired queue pairs. A program that polls and has just been given a message often posts its
// answer before it polls again; then the Ack needs no system call of its own. Left to the next
// pass, it leaves with the answer, or without one with the next poll, before the caller sleeps, or
// by the timer. It is left only where the last messages were answered so.
bool Lane::leaves_ack() {
  if (blocked() || !stream_->only_ack_due()) return false;
  ShardOwner& owner = shard_->owner();
  if (!owner.is_patient()) return false;
  const std::uint64_t before = ack_.look.exchange(owner.last_look(), std::memory_order_relaxed);
  std::uint32_t answers = ack_.answers.load(std::memory_order_relaxed);
  if (before != 0 && answers != 0) ack_.answers.store(--answers, std::memory_order_relaxed);
  if (answers < kAnswersToWait) return false;
  ack_.left.store(true, std::memory_order_relaxed);
  return shard_->note_left_post();
}

// Called for the first post since an Ack was due.
void Lane::note_answer() {
  const bool at_once =
      shard_->owner().last_look() == ack_.look.exchange(0, std::memory_order_relaxed);
  const std::uint32_t answers = ack_.answers.load(std::memory_order_relaxed);
  if (at_once) {
    ack_.answers.store(std::min(answers + 1, kAnswersMax), std::memory_order_relaxed);
  } else if (answers != 0) {
    ack_.answers.store(answers - 1, std::memory_order_relaxed);
  }
}

void Lane::send_left_ack() {
  if (!live() || !ack_.left.load(std::memory_order_relaxed)) return;
  stream_->pause(true);
  transmit();
}

bool Lane::room_to_collect() const noexcept {
  return posts_.unsent_bytes.load(std::memory_order_relaxed) < kCollectedBytes &&
         sq_.size() < sq_.capacity();
}

}  // namespace weft::progress
