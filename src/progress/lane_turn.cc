// A turn of a lane: what it receives and sends.
#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "io/path_transport.h"
#include "os/clock.h"
#include "progress/lane.h"
#include "progress/scratch.h"

namespace weft::progress {

namespace {

// Reads of one turn: a fast peer must not keep the thread from others for long.
constexpr int kReadsPerTurn = 16;
void fail(proto::Stream& stream, int error) {
  if (error == EFAULT) {
    stream.memory_fault();
  } else {
    stream.transport_lost(error == ETIMEDOUT);
  }
}

// For a transport that reads late.
void note_released(proto::Stream& stream, const io::Transport& transport) {
  const std::uint64_t done = transport.released();
  assert(done <= stream.tx_offset());
  if (done > stream.released_offset()) {
    stream.released(static_cast<std::size_t>(done - stream.released_offset()));
  }
}

void note_acknowledged(proto::Stream& stream, const io::Transport& transport) {
  const std::uint64_t sent = stream.tx_offset();
  stream.acked(sent - std::min(sent, transport.unacknowledged()));
}

// `both`: of a connection that has another way than TCP.
void note_way(trace::Trace& trace, const io::PathTransport& both) {
  constexpr auto kRing = io::PathTransport::Way::kRing;
  trace.by_ring(both.sends_by() == kRing, both.receives_by() == kRing);
}

// False: a Send waits for its receive.
bool plan_read(proto::Stream& stream, const io::Transport& transport,
               std::span<std::uint8_t> scratch, proto::RxPlan& plan) {
  stream.want(plan, scratch);
  if (plan.count != 0 && !plan.placed) {
    plan.slices[0].size = std::min(plan.slices[0].size, transport.read_ahead());
    plan.bytes = plan.slices[0].size;
  }
  return plan.count != 0;
}

enum class Small : std::uint8_t { kNone, kSome, kAll };

// Small FPDUs of a transport that shows its octets where they lie. kAll: nothing is left, and
// somebody looks again.
Small receive_small(proto::Stream& stream, io::Transport& transport) {
  const std::span<const std::uint8_t> seen = transport.view();
  if (seen.empty()) return Small::kNone;
  const std::size_t taken = stream.small().take(seen);
  if (taken == 0) return Small::kNone;
  transport.taken(taken);
  return taken == seen.size() && transport.short_read_is_all() ? Small::kAll : Small::kSome;
}

// Small requests, if they are next, on a transport that has room for them.
bool send_small(proto::Stream& stream, io::Transport& transport) {
  const std::span<std::uint8_t> room = transport.room();
  if (room.empty()) return false;
  const std::size_t laid = stream.small().lay(room);
  if (laid == 0) return false;
  transport.sent_there(laid);
  stream.small().laid(laid);
  return true;
}

}  // namespace

// `news`: what came, of kNews; 0: unknown.
Turn Lane::turn(Word news) {
  assert(is_held());
  Turn out;
  if (!live()) return out;
  if ((news & kReported) != 0) transport_->reported();
  const bool sends_only = news != 0 && (news & ~(kRoom | kPosted)) == 0 && !rx_.more &&
                          (!looks_.attended || (is_at_rest() && transport_->is_quiet()));
  // Posted requests go first: the peer works on them while we receive.
  const bool posted = (news & kPosted) != 0 && !blocked() && transmit();
  if (!sends_only && live()) {
    out = receive((news & kEnd) != 0);
    rx_.more = out.more;  // which nothing reports again
  }
  if (!sends_only) looks_.told = false;
  out.sent = posted;
  bool room = false;
  if (blocked() && live()) {
    room = tx_.rest || (news & kRoom) != 0 || transport_->may_have_room();
  }
  if (live() && !transport_->copies()) note_released(*stream_, *transport_);
  const bool due = live() && (room || !blocked()) && (stream_->tx_pending() || blocked());
  if (due && !(out.received && leaves_ack())) out.sent |= transmit();
  if (live() && tx_.rest) out.more = true;
  if (waits_for_acks()) note_acknowledged(*stream_, *transport_);
  return out;
}

// Nothing waits to be sent, to be acknowledged, or for a receive.
bool Lane::is_at_rest() const {
  assert(is_held());
  return live() && cheap_to_look_at() && !blocked() && !rx_.ended && !rx_.more &&
         !awaits_receive() && !waits_for_acks() && !ack_.waits();
}

// Where there was no room, the transport reports when there is.
void Lane::send_posted() {
  assert(is_held());
  if (live() && !blocked()) transmit();
}

Turn Lane::receive(bool until_end) {
  assert(is_held());
  Turn out;
  if (rx_.ended) return out;
  // Epoll says so once, perhaps while a held segment keeps us from reading on.
  rx_.end_reported |= until_end;
  until_end = rx_.end_reported;
  if (stream_->awaits_receive()) {
    if (!stream_->retry_receive()) return out;
    out.received = true;
    if (stream_->finished()) return out;
  }
  for (int reads = 0; reads < kReadsPerTurn; ++reads) {
    // A trace wants to see what is read.
    const Small small = trace_ == nullptr ? receive_small(*stream_, *transport_) : Small::kNone;
    if (small != Small::kNone) {
      calls_.rx.add(1);
      out.received = true;
      if (stream_->finished() || (small == Small::kAll && !until_end)) return out;
      continue;
    }
    const Scratch scratch;
    proto::RxPlan plan;
    if (!plan_read(*stream_, *transport_, scratch.get(), plan)) return out;
    const std::ptrdiff_t n = transport_->receive({plan.slices, plan.count});
    if (n > 0) {
      calls_.rx.add(1);
      const auto bytes = static_cast<std::size_t>(n);
      assert(bytes <= plan.bytes);
      if (trace_ != nullptr) {
        if (path_) note_way(*trace_, path_->transport());
        trace_->rx({plan.slices, plan.count}, bytes);
      }
      stream_->arrived(bytes);
      out.received = true;
      if (stream_->finished()) return out;
      // A short read has emptied the transport; if more has come since, it will be reported.
      if (bytes < plan.bytes && !until_end && transport_->short_read_is_all()) return out;
      continue;
    }
    stream_->arrived(0);
    if (n == 0) {
      if (trace_ != nullptr) trace_->rx_fin();
      rx_.ended = true;
      stream_->peer_closed();
      out.received = true;
      return out;
    }
    if (n == -EAGAIN || n == -ENOBUFS || n == -ENOMEM) {
      calls_.rx_empty.add(1);
      return out;
    }
    fail(*stream_, static_cast<int>(-n));
    out.received = true;
    return out;
  }
  out.more = true;
  return out;
}

bool Lane::transmit(std::uint64_t most) {
  assert(is_held());
  // Requests whose news came with the lane, by a read-modify-write, are seen by gather() below.
  ack_.clear();
  posts_.begin_flush();
  tx_.blocked.store(false, std::memory_order_relaxed);
  tx_.rest = false;
  bool moved = false;
  if (live() && trace_ == nullptr && send_small(*stream_, *transport_)) {
    calls_.tx.add(1);
    moved = true;
  }
  const std::uint64_t start = stream_ ? stream_->tx_offset() : 0;
  if (most == 0) {
    most = shard_->lanes() <= 1 ? kSentPerTurnAlone : kSentPerTurn;
  }
  while (live()) {
    if (stream_->tx_offset() - start >= most && stream_->tx_pending()) {
      tx_.leave_rest();
      break;
    }
    proto::TxBatch* batch = stream_->gather();
    if (batch == nullptr) {
      if (stream_->tx_pending()) without_batch();
      break;
    }
    moved = true;
    if (!send_batch(*batch)) break;
  }
  posts_.end_flush(shard_->owner().pace());
  if (live() && !tx_.rest && stream_->take_fin()) {
    if (trace_ != nullptr) trace_->tx_fin();
    transport_->shutdown_send();
  }
  return moved;
}

// False: the transport takes no more now.
bool Lane::send_batch(proto::TxBatch& batch) {
  assert(is_held());
  assert(batch.slice_next < batch.slice_count && batch.sent < batch.bytes);
  const std::span<const Slice> slices{batch.slices + batch.slice_next,
                                      batch.slice_count - batch.slice_next};
  const std::size_t left = batch.bytes - batch.sent;
  const std::ptrdiff_t n = transport_->send(slices);
  if (n >= 0) {
    calls_.tx.add(1);
    const auto bytes = static_cast<std::size_t>(n);
    assert(bytes <= left);
    if (trace_ != nullptr) {
      if (path_) note_way(*trace_, path_->transport());
      trace_->tx(slices, bytes);
    }
    stream_->sent(bytes);
    if (transport_->copies()) stream_->released(bytes);
    if (bytes == left) {
      stalled_.note(false);
      return true;
    }
    stalled_.note(true);
    tx_.blocked.store(true, std::memory_order_relaxed);
    // The time until there is room is good for the next one's checksums.
    stream_->prepare();
    return false;
  }
  stream_->sent(0);
  if (n == -EAGAIN || n == -ENOBUFS || n == -ENOMEM) {
    stalled_.note(true);
    tx_.blocked.store(true, std::memory_order_relaxed);
    calls_.tx_blocked.add(1);
    tx_.no_memory = n != -EAGAIN;  // which nothing reports
    return false;
  }
  // After a reset there may still be a Terminate to read, which says more.
  if (n == -EPIPE || n == -ECONNRESET) (void)receive(true);
  if (live() && !stream_->finished()) fail(*stream_, static_cast<int>(-n));
  return false;
}

// All batches are in use, most of them perhaps by peers that take nothing. Tried again soon.
void Lane::without_batch() {
  assert(is_held());
  tx_.no_memory = true;
  tx_.blocked.store(true, std::memory_order_relaxed);
  host_.note_without_batch();
}

bool Lane::waits_for_acks() const {
  return settings_.completions == CompletionMode::kAcked && live() && sq_.size() != 0;
}

}  // namespace weft::progress
