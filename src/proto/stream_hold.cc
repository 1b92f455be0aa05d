// A Send that comes before its receive is posted. RFC 5041 7.1 lets it be an error at once; here it
// may wait for a bounded time. Nothing more is read meanwhile, so TCP holds the peer back. Between
// wired queue pairs it is refused then (stream_not_ready.cc).
#include <algorithm>
#include <new>

#include "proto/stream.h"

namespace weft::proto {

namespace {

// How often the receive queue is looked at, for queues that tell nobody of a post.
constexpr Duration kRetryPause{1'000'000};

}  // namespace

// Keeps what the last read has brought, from the Send on: one read at most.
void Stream::hold(MarkedOctets ulpdu) {
  early_send_ = false;
  rx_pin_.release();
  const Instant now = host_.now();
  const std::span<const std::uint8_t> rest = reader_.rest();
  held_.reset(new (std::nothrow) Held{.ulpdu = std::vector<std::uint8_t>(ulpdu.size()),
                                      .rest = {rest.begin(), rest.end()},
                                      .until = now + params_.recv_wait});
  if (held_ != nullptr) ulpdu.take(held_->ulpdu.data(), ulpdu.size());
  reader_.drop_rest();
  if (held_ == nullptr) return fail(Violation::kLocalFault);
  retry_at_ = std::min(now + kRetryPause, held_->until);
}

bool Stream::retry_receive() {
  if (held_ == nullptr) return true;
  if (machine_.state() == StreamState::kRts && !open_receive()) return false;
  go_on_with(std::move(held_));
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
