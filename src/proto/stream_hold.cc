// A Send that comes before its receive is posted. RFC 5041 7.1 lets it be an error at once; here it
// may wait for a bounded time. Nothing more is read meanwhile, so TCP holds the peer back. Between
// wired queue pairs it is refused then (stream_not_ready.cc).
//
// A payload that its target cannot take now waits in the same way, for as long as the target likes.
#include <algorithm>
#include <new>
#include <utility>

#include "proto/stream.h"

namespace weft::proto {

namespace {

// How often the receive queue is looked at, for queues that tell nobody of a post.
constexpr Duration kRetryPause{1'000'000};

}  // namespace

// Keeps what the last read has brought, from this segment on: one read at most.
void Stream::hold(MarkedOctets ulpdu) {
  early_send_ = false;
  const bool for_target = std::exchange(target_waits_, false);
  rx_pin_.release();
  const Instant now = host_.now();
  const std::span<const std::uint8_t> rest = reader_.rest();
  if constexpr (!profile::kHeap) return fail(Violation::kLocalFault);  // nowhere to keep it
  held_.reset(new (std::nothrow)
                  Held{.for_target = for_target,
                       .ulpdu = std::vector<std::uint8_t>(ulpdu.size()),
                       .rest = {rest.begin(), rest.end()},
                       .until = for_target ? Instant::never() : now + params_.recv_wait});
  if (held_ != nullptr) ulpdu.take(held_->ulpdu.data(), ulpdu.size());
  reader_.drop_rest();
  if (held_ == nullptr) return fail(Violation::kLocalFault);
  retry_at_ = std::min(now + kRetryPause, held_->until);
}

bool Stream::retry_receive() {
  if (!profile::kHeap || held_ == nullptr) return true;
  if (machine_.state() == StreamState::kRts) {
    if (held_->for_target) return retry_target();
    if (!open_receive()) return false;
  }
  go_on_with(std::move(held_));
  return held_ == nullptr;
}

// The open segment is still that of the payload, and what its target took is counted there. The
// memory may have been revoked meanwhile.
bool Stream::retry_target() {
  std::unique_ptr<Held> held = std::move(held_);  // a failure discards what is held
  MarkedOctets payload{std::span<const std::uint8_t>(held->ulpdu)};
  payload.drop(seg_.header_len + seg_.placed);
  MemoryFault fault = MemoryFault::kNone;
  if (seg_.op == Opcode::kWrite) {
    fault = resolve_remote(seg_.stag, seg_.to + seg_.placed, payload.size(), Access::kRemoteWrite,
                           rx_pin_, write_at_);
  }
  const bool good = fault == MemoryFault::kNone ? place(payload) : target_failed();
  rx_pin_.release();
  if (std::exchange(target_waits_, false)) {
    held_ = std::move(held);
    retry_at_ = host_.now() + kRetryPause;
    return false;
  }
  retry_at_ = Instant::never();
  reader_.resume(held->rest);
  if (good && close_segment()) {
    drain_reader();
  } else {
    reader_.drop_all();
  }
  return true;
}

void Stream::go_on_with(std::unique_ptr<Held> held) {
  retry_at_ = Instant::never();
  seen_before_ = true;
  reader_.resume(held->rest);
  const MarkedOctets ulpdu{std::span<const std::uint8_t>(held->ulpdu)};
  if (ulpdu.empty() || on_ulpdu(ulpdu)) {
    drain_reader();
  } else if (target_waits_) {
    hold(ulpdu);
  } else {
    rx_pin_.release();
    reader_.drop_all();
  }
}

// The open segment is still that of the Send: nothing has been looked at since.
void Stream::retry_due(Instant now) {
  if (retry_receive()) return;
  if (now < held_->until) {
    retry_at_ = std::min(now + kRetryPause, held_->until);
  } else if (params_.acks) {
    refuse_send();
  } else if (params_.unreliable) {
    lose_send();
  } else {
    violate(Violation::kNoReceive);
  }
}

}  // namespace weft::proto
