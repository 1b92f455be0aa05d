// A Send that comes before its receive is posted. RFC 5041 7.1 lets it be an error at once; here it
// may wait for a bounded time. Nothing more is read meanwhile, so TCP holds the peer back. Between
// wired queue pairs it is refused then (stream_not_ready.cc).
//
// A Write whose target cannot take it now waits in the same way, for as long as the target likes.
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
  const bool is_write = std::exchange(target_waits_, false);
  rx_pin_.release();
  const Instant now = host_.now();
  const std::span<const std::uint8_t> rest = reader_.rest();
  if constexpr (!profile::kHeap) return fail(Violation::kLocalFault);  // nowhere to keep it
  held_.reset(new (std::nothrow)
                  Held{.is_write = is_write,
                       .ulpdu = std::vector<std::uint8_t>(ulpdu.size()),
                       .rest = {rest.begin(), rest.end()},
                       .until = is_write ? Instant::never() : now + params_.recv_wait});
  if (held_ != nullptr) ulpdu.take(held_->ulpdu.data(), ulpdu.size());
  reader_.drop_rest();
  if (held_ == nullptr) return fail(Violation::kLocalFault);
  retry_at_ = std::min(now + kRetryPause, held_->until);
}

bool Stream::retry_receive() {
  if (!profile::kHeap || held_ == nullptr) return true;
  if (machine_.state() == StreamState::kRts) {
    if (held_->is_write) return retry_target();
    if (!open_receive()) return false;
  }
  go_on_with(std::move(held_));
  return true;
}

// The open segment is still that of the Write, and what its target took is counted there. The
// memory may have been revoked meanwhile.
bool Stream::retry_target() {
  MarkedOctets payload{std::span<const std::uint8_t>(held_->ulpdu)};
  payload.drop(seg_.header_len + seg_.placed);
  const auto bytes = static_cast<std::uint32_t>(payload.size());
  const std::uint64_t to = seg_.to + seg_.placed;
  const MemoryFault fault =
      resolve_remote(seg_.stag, to, bytes, Access::kRemoteWrite, rx_pin_, write_at_);
  Stored stored = Stored::kRefused;
  if (fault == MemoryFault::kNone) {
    stored = store(*rx_pin_.entry(), to, write_at_, payload, bytes);
  }
  rx_pin_.release();
  seg_.placed += bytes - static_cast<std::uint32_t>(payload.size());
  if (stored == Stored::kLater) {
    retry_at_ = host_.now() + kRetryPause;
    return false;
  }
  const std::unique_ptr<Held> held = std::move(held_);
  retry_at_ = Instant::never();
  reader_.resume(held->rest);
  bool good = false;
  if (fault != MemoryFault::kNone) {
    good = target_failed();
  } else if (stored == Stored::kRefused) {
    good = fail_segment(Violation::kWriteBounds);
  } else {
    good = close_segment();
  }
  if (good) {
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
  if (held->ulpdu.empty() || on_ulpdu(std::span<const std::uint8_t>(held->ulpdu))) {
    drain_reader();
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
