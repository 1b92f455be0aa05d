// A Send that comes before its receive is posted. RFC 5041 7.1 lets it be an error at once; here it
// may wait for a bounded time. Nothing more is read meanwhile, so TCP holds the peer back. Between
// wired queue pairs it is refused then (stream_not_ready.cc).
//
// A payload that its target cannot take now waits in the same way, for as long as the target likes.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "proto/stream.h"

namespace weft::proto {

namespace {

// How often the receive queue is looked at, for queues that tell nobody of a post.
constexpr Duration kRetryPause{1'000'000};
constexpr std::size_t kLastOctets = 64;  // of a Write, for tests

}  // namespace

// Keeps what the last read has brought, from this segment on: one read at most.
void StreamRx::hold(MarkedOctets ulpdu) {
  Stream& s = stream();
  const bool for_target = std::exchange(hold_.why, Waits::kForNothing) == Waits::kForTarget;
  pin_.release();
  const Instant now = s.host_.now();
  const std::span<const std::uint8_t> rest = reader_.rest();
  if constexpr (!profile::kHeap) return s.fail(Violation::kLocalFault);  // nowhere to keep it
  hold_.held.reset(new (std::nothrow)
                       Held{.for_target = for_target,
                            .ulpdu = std::vector<std::uint8_t>(ulpdu.size()),
                            .rest = {rest.begin(), rest.end()},
                            .since = now,
                            .until = for_target ? Instant::never() : now + s.params_.recv_wait});
  if (hold_.held != nullptr) ulpdu.move_to(hold_.held->ulpdu.data(), ulpdu.size());
  reader_.drop_rest();
  if (hold_.held == nullptr) return s.fail(Violation::kLocalFault);
  if (!for_target) s.host_.receive_late(LateReceive::kBegins, Duration{0});
  hold_.retry_at = std::min(now + kRetryPause, hold_.held->until);
}

#ifndef WEFT_PROFILE_SMALL
// The others wait, as for a target.
Stored StreamRx::Hold::place_last_first(StreamHost& host, const MemoryEntry& entry,
                                        std::uint64_t to, std::uint8_t* at, MarkedOctets& payload) {
  const std::size_t size = payload.size();
  const std::span<const std::uint8_t> octets = payload.front();
  const bool may_part = octets.size() == size && size > 1 &&  // no markers are among them
                        !has(entry.spec.access, kByMethod);
  if (last_octets == 0 && may_part) {
    const Duration wait = host.last_octets_first();
    if (wait.count() > 0) {
      last_octets = std::min(size / 2, kLastOctets);
      others_at = host.now() + wait;
      const std::size_t before = size - last_octets;
      std::memcpy(at + before, octets.data() + before, last_octets);
    }
  }
  if (last_octets != 0 && host.now() < others_at) return Stored::kLater;
  const std::size_t placed = std::exchange(last_octets, 0);
  const Stored stored = store(entry, to, at, payload, size - placed);
  payload.drop(placed);
  return stored;
}
#endif

bool StreamRx::retry_receive() {
  if (!profile::kHeap || hold_.held == nullptr) return true;
  if (stream().machine_.state() == StreamState::kRts) {
    if (hold_.held->for_target) return retry_target();
    if (!open_receive()) return false;
    stream().host_.receive_late(LateReceive::kCame, stream().host_.now() - hold_.held->since);
  }
  go_on_with(std::move(hold_.held));
  return hold_.held == nullptr;
}

// The open segment is still that of the payload, and what its target took is counted there. The
// memory may have been revoked meanwhile.
bool StreamRx::retry_target() {
  Stream& s = stream();
  std::unique_ptr<Held> held = std::move(hold_.held);  // a failure discards what is held
  MarkedOctets payload{std::span<const std::uint8_t>(held->ulpdu)};
  payload.drop(seg_.header_len + seg_.placed);
  MemoryFault fault = MemoryFault::kNone;
  if (seg_.op == Opcode::kWrite) {
    fault = s.resolve_remote(seg_.stag, seg_.to + seg_.placed, payload.size(), Access::kRemoteWrite,
                             pin_, write_at_);
  }
  const bool good = fault == MemoryFault::kNone ? place(payload) : target_failed();
  pin_.release();
  if (hold_.why == Waits::kForTarget) {
    hold_.why = Waits::kForNothing;
    hold_.held = std::move(held);
    hold_.retry_at = s.host_.now() + kRetryPause;
    return false;
  }
  hold_.retry_at = Instant::never();
  reader_.resume(held->rest);
  if (good && close_segment()) {
    drain_reader();
  } else {
    reader_.drop_all();
  }
  return true;
}

void StreamRx::go_on_with(std::unique_ptr<Held> held) {
  hold_.retry_at = Instant::never();
  hold_.seen_before = true;
  reader_.resume(held->rest);
  const MarkedOctets ulpdu{std::span<const std::uint8_t>(held->ulpdu)};
  if (ulpdu.empty() || on_ulpdu(ulpdu)) {
    drain_reader();
  } else if (hold_.why == Waits::kForTarget) {
    hold(ulpdu);
  } else {
    pin_.release();
    reader_.drop_all();
  }
}

// The open segment is still that of the Send: nothing has been looked at since.
void StreamRx::retry_due(Instant now) {
  Stream& s = stream();
  if (retry_receive()) return;
  if (now < hold_.held->until) {
    hold_.retry_at = std::min(now + kRetryPause, hold_.held->until);
    return;
  }
  const Duration waited = now - hold_.held->since;
  if (s.params_.acks) {
    s.host_.receive_late(LateReceive::kRefused, waited);
    s.refusal_.refuse();
    go_on_with(std::move(hold_.held));
  } else if (s.params_.unreliable) {
    loss_.starve();
    go_on_with(std::move(hold_.held));
  } else {
    s.host_.receive_late(LateReceive::kFailed, waited);
    s.violate(Violation::kNoReceive);
  }
}

}  // namespace weft::proto
