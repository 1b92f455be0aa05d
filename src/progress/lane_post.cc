// Posts that a lane sends at once, or leaves to the next pass.

#include "os/ticks.h"
#include "progress/lane.h"

namespace weft::progress {

void Lane::ring_doorbell() {
  ack_.note_post(shard_->owner().last_look());
  if (!may_leave_post()) {
    send_now();
    ShardOwner& owner = shard_->owner();
    if (!owner.is_callers()) owner.pace().note_sent(os::cpu_ticks());
    return;
  }
  // A full barrier: whoever takes the note sees what was posted before.
  Word before = 0;
  const Next next = apply([](Word w) { return signal_step(w, kPosted); }, &before);
  if (next == Next::kVoid) return send_now();
  if (next == Next::kPush) shard_->push(*this, false);
  if ((before & kPosted) != 0 || state_of(before) == kRunning) return;
  if (!shard_->note_left_post()) shard_->kick_or_wake();
}

bool Lane::may_leave_post() {
  ShardOwner& owner = shard_->owner();
  if (!live() || !posts_.has_room() || owner.sleepers() != 0) return false;
  // With an Ack that waits for this post there is nothing collected yet.
  const bool collecting = post_waits() && !ack_.waits();
  return posts_.may_wait(owner.pace(), {.collecting = collecting,
                                        .callers = owner.is_callers(),
                                        .many = shard_->lanes() > CollectedPosts::kFewLanes,
                                        .last_look = owner.last_look(),
                                        .received = calls_.rx.get(),
                                        .ticks_per_us = host_.ticks_per_us()});
}

bool Lane::leaves_ack() {
  if (blocked() || !stream_->only_ack_due() || !shard_->owner().is_patient()) return false;
  return ack_.leave(shard_->owner().last_look()) && shard_->note_left_post();
}

void Lane::send_left_ack() {
  if (!live() || !ack_.waits()) return;
  stream_->pause(true);
  transmit();
}

}  // namespace weft::progress
