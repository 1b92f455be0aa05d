#include "io/path_transport.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "shm/ring_wait.h"

namespace weft::io {

namespace {

// A peer that is killed says nothing in the ring. Somebody who polls finds it on TCP, at a price of
// one system call in so many looks.
constexpr std::uint32_t kLooksPerTcpLook = 4096;

// Where it is not known yet where octets belong, they are copied twice: so many at once only.
// Enough for some hundred small FPDUs, or the header of a large one.
constexpr std::size_t kReadAhead = 8U << 10U;

// A poller waits for this part of the buffer.
constexpr std::uint32_t kRoomPart = 4;

}  // namespace

// --- the ring comes and goes ---

void PathTransport::add_ring(shm::Ring ring) {
  assert(!ring_.has_value() && tx_ == Way::kTcp && rx_ == Way::kTcp);
  ring_.emplace(std::move(ring));
}

bool PathTransport::secure_ring() noexcept {
  assert(ring_.has_value() && !unsafe_);
  if (ring_->secure()) return true;
  drop_ring();
  unsafe_ = true;
  return false;
}

void PathTransport::drop_ring() noexcept {
  tx_ = rx_ = Way::kTcp;
  // When a turn has two rings, the second was never registered.
  if (ring_ && !left_bell_) left_bell_ = ring_->take_bell();
  ring_.reset();
}

std::optional<shm::SpareRing> PathTransport::take_spare() noexcept {
  if (tx_ != Way::kRing || rx_ != Way::kRing) return {};
  assert(ring_.has_value());
  ring_->close_sending();
  auto spare = std::move(*ring_).spare();
  drop_ring();
  return spare;
}

// --- octets ---

std::ptrdiff_t PathTransport::send(std::span<const Slice> slices) {
  if (unsafe_) return -EPROTO;
  if (tx_ == Way::kTcp) {
    std::size_t all = 0;
    for (const Slice& s : slices) all += s.size;
    const std::ptrdiff_t n = tcp_.send(slices);
    blocked_ = n < static_cast<std::ptrdiff_t>(all);
    return n;
  }
  assert(ring_.has_value());
  std::size_t total = 0;
  std::size_t inside = 0;  // of the first slice, gone already
  while (!slices.empty()) {
    const Slice first{slices[0].data + inside, slices[0].size - inside};
    const bool whole = inside == 0;
    const auto sent = ring_->send(whole ? slices : std::span<const Slice>(&first, 1));
    if (!sent) return -EPROTO;
    total += *sent;
    inside += *sent;
    while (!slices.empty() && inside >= slices[0].size) {
      inside -= slices[0].size;
      slices = slices.subspan(1);
    }
    assert(slices.empty() ? inside == 0 : inside < slices[0].size);
    if (slices.empty()) break;
    if (!whole && inside == 0) continue;  // the first one is through: the rest as a list
    blocked_ = true;
    // Somebody polls: it sees the room. Nobody does: the peer has to wake us, and may have made
    // room before it could know.
    if (attended_ || ring_->also_wait_for_room()) {
      return total != 0 ? static_cast<std::ptrdiff_t>(total) : -EAGAIN;
    }
  }
  blocked_ = false;
  return static_cast<std::ptrdiff_t>(total);
}

std::span<std::uint8_t> PathTransport::room() noexcept {
  if (tx_ != Way::kRing || unsafe_ || blocked_) return {};
  return ring_->room();
}

std::span<const std::uint8_t> PathTransport::view() noexcept {
  if (rx_ != Way::kRing || unsafe_) return {};
  const std::span<const std::uint8_t> there = ring_->view();
  return there.first(std::min(there.size(), kReadAhead));
}

std::ptrdiff_t PathTransport::receive(std::span<const Slice> slices) {
  if (unsafe_) return -EPROTO;
  if (rx_ == Way::kTcp) {
    // Data that came before the ring was given up has been reported, and is not again.
    if (!ring_) tcp_reported_ = false;
    return tcp_.receive(slices);
  }
  assert(ring_.has_value());
  while (true) {
    const auto got = ring_->receive(slices);
    if (!got) return -EPROTO;
    if (*got != 0) return static_cast<std::ptrdiff_t>(*got);
    if (!attended_ && !announce()) {
      // Room is no reason to look again here: the sender sees it behind this call.
      if (ring_->maybe_readable() || !ring_->prepare_sleep(false)) continue;
    }
    if (!tcp_look_due()) return -EAGAIN;
    const std::ptrdiff_t end = look_at_tcp();
    // All that the peer sent before it went is in the ring by the time TCP says that it is gone.
    if (end == -EAGAIN || !ring_->maybe_readable()) return end;
    tcp_reported_ = true;
  }
}

// Counts as a look, so that TCP has its turn.
bool PathTransport::is_quiet() noexcept {
  if (!attended_ || rx_ != Way::kRing || ring_->maybe_readable()) return false;
  if (tcp_reported_ || empty_ + 1 >= kLooksPerTcpLook || ring_->peer_closed_hint()) return false;
  ++empty_;
  ring_->expect();
  return true;
}

// Epoll has reported something on it, or there was an end already. Somebody who polls may not hear
// of it.
bool PathTransport::tcp_look_due() noexcept {
  if (std::exchange(tcp_reported_, false) || tcp_end_) return true;
  if (!attended_ || (++empty_ < kLooksPerTcpLook && !ring_->peer_closed_hint())) return false;
  empty_ = 0;
  return true;
}

// -EAGAIN: the connection lives. Anything else is its end: the kernel reports an error once. Octets
// stay where they are: the peer may just have gone back to TCP, and has said so in the ring.
std::ptrdiff_t PathTransport::look_at_tcp() noexcept {
  assert(rx_ == Way::kRing && ring_.has_value());
  if (tcp_end_) return *tcp_end_;
  const std::ptrdiff_t n = tcp_.peek();
  if (n == -EAGAIN || n == -ENOBUFS || n == -ENOMEM) return -EAGAIN;
  if (n > 0 && ring_->maybe_readable()) return -EPROTO;  // see what that says first
  tcp_end_ = n > 0 ? -EPROTO : n;
  return *tcp_end_;
}

// --- readiness ---

std::uint32_t PathTransport::events(bool blocked) const noexcept {
  return tcp_.events(blocked && tx_ == Way::kTcp);
}

// Says that we sleep, for what. False: there is something already.
bool PathTransport::announce() noexcept {
  assert(ring_.has_value() && !attended_);
  if (ring_->was_rung()) static_cast<void>(ring_->cancel_sleep());  // empties the bell
  return ring_->prepare_sleep(blocked_ && tx_ == Way::kRing, rx_ == Way::kRing);
}

void PathTransport::attend() noexcept {
  if (attended_) return;
  attended_ = true;
  // A bell that is gone comes with the end of TCP; a peer that only closes it can't wake us any
  // more, which is its own loss.
  if (ring_) static_cast<void>(ring_->cancel_sleep());
}

bool PathTransport::settle() noexcept {
  attended_ = false;
  if (!ring_) return std::exchange(tcp_reported_, false);
  if (!announce()) return true;
  // An event of TCP that came meanwhile may have been taken by somebody who polled the ring.
  tcp_reported_ = rx_ == Way::kRing && look_at_tcp() != -EAGAIN;
  return tcp_reported_;
}

bool PathTransport::may_have_room() const noexcept {
  if (!ring_) return false;
  // Somebody who polls begins again sooner than a sleeper, so that the peer always has something.
  const std::uint32_t free = ring_->buffer_bytes() - ring_->unread_by_peer();
  return tx_ == Way::kTcp || free >= ring_->buffer_bytes() / kRoomPart;
}

std::size_t PathTransport::read_ahead() const noexcept {
  return rx_ == Way::kTcp ? tcp_.read_ahead() : kReadAhead;
}

// --- the rest ---

void PathTransport::shutdown_send() noexcept {
  if (ring_ && tx_ == Way::kRing) ring_->close_sending();
  tcp_.shutdown_send();
}

void PathTransport::close(bool reset) noexcept {
  if (ring_) ring_->close_sending();
  drop_ring();
  tcp_.close(reset);
}

// As with TCP, what the peer could have taken counts only when there is no room for more: a kernel
// acknowledges what it keeps for a process that sleeps.
PeerLiveness PathTransport::liveness() const {
  PeerLiveness out = tcp_.liveness();
  if (tx_ != Way::kRing || !blocked_) return out;
  assert(ring_.has_value());
  const std::uint32_t unread = ring_->unread_by_peer();
  out.unacknowledged += unread;
  out.acknowledged += ring_->sent() - unread;
  return out;
}

std::uint64_t PathTransport::unacknowledged() const {
  // Octets that went by TCP before the change may be on their way still.
  const std::uint64_t in_ring = tx_ == Way::kRing ? ring_->unread_by_peer() : 0;
  return in_ring + tcp_.unacknowledged();
}

const char* PathTransport::path() const noexcept {
  return tx_ == Way::kRing && rx_ == Way::kRing ? "ring" : "tcp";
}

}  // namespace weft::io
