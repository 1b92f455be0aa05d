#include "shm/ring.h"

#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "os/calls.h"
#include "shm/ring_wait.h"

namespace weft::shm {

namespace {

// The peer begins to read a long message while we still write it.
constexpr std::uint32_t kPublishBytes = 16U << 10U;

// A small message writes so much, or less.
constexpr std::size_t kFetchAhead = 128;
constexpr std::size_t kCacheLine = 64;

constexpr std::size_t other(std::size_t side) { return 1 - side; }

}  // namespace

Ring::Ring(RingMemory memory, os::Fd bell, std::size_t side, const RingParties& parties) noexcept
    : memory_(std::move(memory)),
      parties_(parties),
      bell_(std::move(bell)),
      side_(side),
      ours_(&memory_.side(side)),
      theirs_(&memory_.side(other(side))),
      out_(memory_.buffer(side)),
      in_(memory_.buffer(other(side))),
      bytes_(memory_.buffer_bytes()) {
  assert(side < 2 && is_ring_size(bytes_));
  // It may have served before.
  ours_->waiting.store(ring_wait::kNothing, std::memory_order_relaxed);
  ours_->closed.store(0, std::memory_order_relaxed);
  ours_->tail.store(0, std::memory_order_relaxed);
  ours_->head.store(0, std::memory_order_release);
}

std::optional<SpareRing> Ring::spare() && noexcept {
  if (broken_ || parties_.peer_pid == 0) return {};
  return SpareRing{std::move(memory_), side_, parties_};
}

// --- bytes ---

// Reads how far the peer has come. False: that can't be.
bool Ring::see_tail() noexcept {
  const std::uint32_t tail = theirs_->tail.load(std::memory_order_acquire);
  if (head_ - tail > bytes_) broken_ = true;
  if (!broken_) seen_tail_ = tail;
  assert(used() <= bytes_);
  return !broken_;
}

Result<std::size_t> Ring::send(std::span<const Slice> slices) noexcept {
  if (broken_) return fail(Error::kProtocol);
  std::size_t total = 0;
  std::uint32_t unpublished = 0;
  for (const Slice& slice : slices) {
    const std::uint8_t* from = slice.data;
    std::size_t left = slice.size;
    while (left != 0) {
      if (bytes_ - used() < left && !see_tail()) return fail(Error::kProtocol);
      const std::uint32_t at = head_ & (bytes_ - 1);
      const std::size_t piece =
          std::min<std::size_t>({left, bytes_ - used(), bytes_ - at, kPublishBytes});
      if (piece == 0) {
        if (total != 0) publish_head();
        return total;
      }
      std::memcpy(out_ + at, from, piece);
      head_ += static_cast<std::uint32_t>(piece);
      assert(used() <= bytes_);
      from += piece;
      left -= piece;
      total += piece;
      unpublished += static_cast<std::uint32_t>(piece);
      if (unpublished >= kPublishBytes) {
        ours_->head.store(head_, std::memory_order_release);
        unpublished = 0;
      }
    }
  }
  if (total != 0) publish_head();
  return total;
}

std::span<std::uint8_t> Ring::room() noexcept {
  if (broken_ || (bytes_ - used() < kPublishBytes && !see_tail())) return {};
  const std::uint32_t at = head_ & (bytes_ - 1);
  return {out_ + at, std::min(bytes_ - used(), bytes_ - at)};
}

void Ring::commit(std::size_t n) noexcept {
  assert(n <= bytes_ - used());
  head_ += static_cast<std::uint32_t>(n);
  publish_head();
}

std::span<const std::uint8_t> Ring::view() noexcept {
  viewed_ = theirs_->head.load(std::memory_order_acquire) - tail_;
  if (broken_ || viewed_ > bytes_) return {};
  const std::uint32_t at = tail_ & (bytes_ - 1);
  return {in_ + at, std::min(viewed_, bytes_ - at)};
}

void Ring::consume(std::size_t n) noexcept {
  assert(n != 0 && n <= viewed_);
  tail_ += static_cast<std::uint32_t>(n);
  note_read(viewed_, viewed_ - static_cast<std::uint32_t>(n));
}

// `there`: octets when the read began. `left`: of these, not read.
void Ring::note_read(std::uint32_t there, std::uint32_t left) noexcept {
  if (!may_look_later(there, bytes_)) return publish_tail(left);
  ours_->tail.store(tail_, std::memory_order_release);
  writer_unseen_ = true;
}

Result<std::size_t> Ring::receive(std::span<const Slice> slices) noexcept {
  if (broken_) return fail(Error::kProtocol);
  const std::uint32_t head = theirs_->head.load(std::memory_order_acquire);
  std::uint32_t there = head - tail_;
  if (there == 0) {
    if (writer_unseen_) publish_tail(0);
    return 0;
  }
  if (there > bytes_) {
    broken_ = true;
    return fail(Error::kProtocol);
  }
  const std::uint32_t before = there;
  std::size_t total = 0;
  std::uint32_t unpublished = 0;
  for (const Slice& slice : slices) {
    std::uint8_t* to = slice.data;
    std::size_t left = slice.size;
    while (left != 0 && there != 0) {
      const std::uint32_t at = tail_ & (bytes_ - 1);
      const std::size_t piece = std::min<std::size_t>({left, there, bytes_ - at, kPublishBytes});
      std::memcpy(to, in_ + at, piece);
      tail_ += static_cast<std::uint32_t>(piece);
      there -= static_cast<std::uint32_t>(piece);
      to += piece;
      left -= piece;
      total += piece;
      unpublished += static_cast<std::uint32_t>(piece);
      if (unpublished >= kPublishBytes) {
        ours_->tail.store(tail_, std::memory_order_release);
        unpublished = 0;
      }
    }
    if (there == 0) break;
  }
  assert(there == head - tail_);
  note_read(before, there);
  return total;
}

std::uint32_t Ring::unread_by_peer() const noexcept {
  const std::uint32_t unread = head_ - theirs_->tail.load(std::memory_order_acquire);
  return std::min(unread, bytes_);
}

// --- waking the peer ---

void Ring::publish_head() noexcept {
  ours_->head.store(head_, std::memory_order_seq_cst);
  if (must_wake_reader(theirs_->waiting.load(std::memory_order_seq_cst))) wake();
  fetch_ahead();
}

// The peer read these lines a lap ago, so they are in its cache. Asked for now, they are here when
// the next message is written; asked for then, it would wait for each of them.
void Ring::fetch_ahead() const noexcept {
  for (std::size_t i = 0; i < kFetchAhead; i += kCacheLine) {
    __builtin_prefetch(out_ + ((head_ + i) & (bytes_ - 1)), 1);
  }
}

void Ring::expect() const noexcept {
  for (std::size_t i = 0; i < kFetchAhead; i += kCacheLine) {
    __builtin_prefetch(in_ + ((tail_ + i) & (bytes_ - 1)));
  }
}

// `left`: octets that were there and have not been read, which is what the peer finds used.
void Ring::publish_tail(std::uint32_t left) noexcept {
  assert(left <= bytes_);
  ours_->tail.store(tail_, std::memory_order_seq_cst);
  writer_unseen_ = false;
  if (must_wake_writer(theirs_->waiting.load(std::memory_order_seq_cst), left, bytes_)) wake();
}

void Ring::wake() noexcept {
  assert(bell_);
  // Cleared, so that one sleep costs one system call, however much we write until the peer runs.
  if (theirs_->waiting.exchange(ring_wait::kNothing, std::memory_order_seq_cst) == 0) return;
  const char octet = 0;
  ssize_t sent = os::calls::send(bell_.get(), &octet, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR) {
    sent = os::calls::send(bell_.get(), &octet, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  // A bell that is full rings already. One that is broken: the peer is gone, and our side of the
  // connection learns it from TCP.
}

// --- going to sleep ---

bool Ring::prepare_sleep(bool for_room, bool for_data) noexcept {
  assert(bell_);
  // 0: what is left counts for nothing, since the reader does not come back before there is more.
  if (writer_unseen_) publish_tail(0);
  const std::uint32_t waiting = (for_data ? ring_wait::kData : ring_wait::kNothing) |
                                (for_room ? ring_wait::kRoom : ring_wait::kNothing);
  ours_->waiting.store(waiting, std::memory_order_seq_cst);
  const std::uint32_t readable = theirs_->head.load(std::memory_order_seq_cst) - tail_;
  const std::uint32_t unread = head_ - theirs_->tail.load(std::memory_order_seq_cst);
  if (!ready_now(waiting, readable, unread, bytes_)) return true;
  ours_->waiting.store(ring_wait::kNothing, std::memory_order_seq_cst);
  return false;
}

bool Ring::also_wait_for_room() noexcept {
  constexpr std::uint32_t kBoth = ring_wait::kData | ring_wait::kRoom;
  ours_->waiting.store(kBoth, std::memory_order_seq_cst);
  const std::uint32_t unread = head_ - theirs_->tail.load(std::memory_order_seq_cst);
  return !ready_now(ring_wait::kRoom, 0, unread, bytes_);
}

bool Ring::cancel_sleep() noexcept {
  assert(bell_);
  ours_->waiting.store(ring_wait::kNothing, std::memory_order_seq_cst);
  char octets[64];
  ssize_t n = sizeof octets;
  // Bounded: a peer that rings all the time must not keep us here.
  for (int turn = 0; turn < 4 && (n == sizeof octets || (n < 0 && errno == EINTR)); ++turn) {
    n = os::calls::recv(bell_.get(), octets, sizeof octets, MSG_DONTWAIT);
  }
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace weft::shm
