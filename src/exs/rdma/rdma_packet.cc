// SOCK_SEQPACKET over RDMA: small messages inside a message of the protocol, others fetched by the
// receiver from the sender's memory.
#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "exs/rdma/rdma_socket.h"

namespace weft::exs {

// ---- sending

void RdmaSocket::pump_packets() {
  for (auto it = s_.ops.sends.begin(); it != s_.ops.sends.end();) {
    Operation& op = *it;
    const auto next = std::next(it);
    if (!op.advertised) {
      if (!packets_out_->may_send()) {
        if (!ring_stalled_) ++s_.stats.ring_stalls;
        ring_stalled_ = true;
        return;
      }
      if (!can_send(0)) return;
      if (op.files.expected() && !op.files.loaded() && op.total != 0 && !load_file(op)) {
        s_.finish(s_.ops.sends, it, op.error, 0);
        it = next;
        continue;
      }
      if (!send_packet(op)) return;
      if (op.error != 0 || op.complete) {
        s_.finish(s_.ops.sends, it, op.error, op.error != 0 ? 0 : op.total);
        s_.changed();
      }
    }
    it = next;
  }
}

// False: it has to wait. Afterwards the operation is complete, advertised, or has an error.
bool RdmaSocket::send_packet(Operation& op) {
  assert(!op.advertised && !op.complete);
  const std::size_t fits = std::min(mine_.immediate_bytes, theirs_.immediate_bytes);
  const bool persistent = (op.flags & EXS_PERSISTENT) != 0;
  if (op.total > fits || (persistent && op.total != 0)) return send_source(op);
  if (op.total > packets_out_->ring_free()) {
    if (!ring_stalled_) ++s_.stats.ring_stalls;
    ring_stalled_ = true;
    return false;
  }
  ring_stalled_ = false;
  Header header;
  header.type = Type::kData;
  header.length = static_cast<std::uint32_t>(op.total);
  header.seq = packets_out_->send(op.total);
  send_message(header, {}, &op, 0, false);
  s_.stats.immediate_sent += op.total;
  s_.stats.bytes_sent += op.total;
  op.complete = true;
  return true;
}

bool RdmaSocket::send_source(Operation& op) {
  std::array<Segment, kSegmentsMax> segments;
  std::size_t count = 0;
  for (const Piece& piece : op.pieces) {
    if (piece.length == 0) continue;
    Mr mr = Mr::of_checked(device(), piece.base, piece.length, IBV_ACCESS_REMOTE_READ);
    if (!mr) {
      op.error = errno;
      op.grants.clear();
      return true;
    }
    assert(count < segments.size());
    segments[count++] = {reinterpret_cast<std::uintptr_t>(piece.base), mr.rkey(),
                         static_cast<std::uint32_t>(piece.length)};
    op.grants.push_back(std::move(mr));
  }
  Header header;
  header.type = Type::kSource;
  header.flags = (op.flags & EXS_PERSISTENT) != 0 ? kPersistent : 0;
  header.length = static_cast<std::uint32_t>(op.total);
  header.seq = op.seq = packets_out_->send(0);
  op.advertised = true;
  ++s_.stats.adverts_sent;
  send_message(header, std::span(segments).first(count), nullptr, 0, false);
  return true;
}

const char* RdmaSocket::on_done(const Header& header) {
  const auto it = std::ranges::find_if(
      s_.ops.sends, [&](const Operation& op) { return op.advertised && op.seq == header.seq; });
  if (it == s_.ops.sends.end()) return "an answer to a message that does not wait for one";
  const bool dropped = (header.flags & kDropped) != 0;
  if (dropped && !it->withdrawing) return "a message dropped that was not withdrawn";
  const bool persistent = (it->flags & EXS_PERSISTENT) != 0;
  // Taken back by the application; or by the end of the socket, which persistent sends wait for.
  const int error = it->cancellation.wanted() && (dropped || persistent) ? ECANCELED : 0;
  if (!dropped && !persistent) {
    s_.stats.direct_sent += it->total;
    s_.stats.bytes_sent += it->total;
  }
  s_.finish(s_.ops.sends, it, error, error == 0 ? it->total : 0);
  s_.changed();
  return nullptr;
}

void RdmaSocket::cancel_packet_sends() {
  for (auto it = s_.ops.sends.begin(); it != s_.ops.sends.end();) {
    const auto next = std::next(it);
    if (it->cancellation.wanted() && !it->advertised) {
      s_.finish(s_.ops.sends, it, ECANCELED, 0);
    } else if (it->cancellation.wanted() && !it->withdrawing) {
      it->withdrawing = true;
      queue_control(Type::kWithdraw, 0, it->seq, 0);
    }
    it = next;
  }
}

void RdmaSocket::withdraw_persistent() {
  for (Operation& op : s_.ops.sends) {
    if ((op.flags & EXS_PERSISTENT) == 0 || !op.advertised || op.withdrawing) continue;
    op.withdrawing = true;
    queue_control(Type::kWithdraw, 0, op.seq, 0);
  }
}

// ---- receiving

const char* RdmaSocket::on_packet_data(const Message& message) {
  const Header& h = message.header;
  assert(h.length == message.payload.size());
  const char* why = packets_in_->on_message(h.seq, incoming_.size(), h.length);
  if (why != nullptr) return why;
  Incoming incoming;
  incoming.seq = h.seq;
  incoming.length = h.length;
  s_.stats.bytes_received += h.length;
  const auto receive = incoming_.empty() ? next_free_receive() : s_.ops.receives.end();
  if (receive != s_.ops.receives.end()) {
    // Straight to the receive that waits for it.
    Operation& op = *receive;
    const std::size_t take = std::min<std::size_t>(h.length, op.total);
    copy_in(op, 0, message.payload.data(), take);
    op.done = take;
    op.truncated = take < h.length;
    op.complete = true;
    packets_in_->consumed(h.length);
    ++s_.stats.copies;
    s_.stats.copied_bytes += take;
    s_.stats.indirect_received += take;
    finish_packet_receives();
    return nullptr;
  }
  auto at = static_cast<std::size_t>(packets_in_->ring_last(h.length));
  std::span<const std::uint8_t> left = message.payload;
  while (!left.empty()) {
    const std::size_t here = std::min(left.size(), ring_.size() - at);
    std::memcpy(ring_.data() + at, left.data(), here);
    left = left.subspan(here);
    at = 0;
  }
  ++s_.stats.copies;
  s_.stats.copied_bytes += h.length;
  incoming_.push_back(std::move(incoming));
  match_packets();
  s_.changed();
  return nullptr;
}

const char* RdmaSocket::on_source(const Message& message) {
  const Header& h = message.header;
  const char* why = packets_in_->on_message(h.seq, incoming_.size(), 0);
  if (why != nullptr) return why;
  Incoming incoming;
  incoming.seq = h.seq;
  incoming.source = true;
  incoming.persistent = (h.flags & kPersistent) != 0;
  incoming.length = h.length;
  incoming.segments.assign(message.segments.begin(), message.segments.begin() + h.segments);
  incoming_.push_back(std::move(incoming));
  match_packets();
  s_.changed();
  return nullptr;
}

const char* RdmaSocket::on_withdraw(const Header& header) {
  const auto it = std::ranges::find_if(
      incoming_, [&](const Incoming& one) { return one.seq == header.seq && one.source; });
  // Not there: our kDone is under way. Being fetched: it will be.
  if (it == incoming_.end()) {
    return packets_in_->has_come(header.seq) ? nullptr : "a message that was not sent is withdrawn";
  }
  if (!it->matched) it->withdrawn = true;
  prune_incoming();
  return nullptr;
}

OperationList::iterator RdmaSocket::next_free_receive() {
  return std::ranges::find_if(s_.ops.receives,
                              [](const Operation& op) { return !op.fetching && !op.complete; });
}

void RdmaSocket::receive_from_ring(Operation& op, std::deque<Incoming>::iterator it) {
  assert(it->length <= packets_in_->ring_used() && !it->source);
  const std::size_t take = std::min<std::size_t>(it->length, op.total);
  const auto at = static_cast<std::size_t>(packets_in_->ring_head());
  const std::size_t first = std::min(take, ring_.size() - at);
  copy_in(op, 0, ring_.data() + at, first);
  copy_in(op, first, ring_.data(), take - first);
  ++s_.stats.copies;
  s_.stats.copied_bytes += take;
  s_.stats.indirect_received += take;
  packets_in_->consumed(it->length);
  op.done = take;
  op.truncated = take < it->length;
  op.complete = true;
}

void RdmaSocket::match_packets() {
  if (incoming_.empty() && !peer_finished_) return;
  for (auto it = incoming_.begin(); it != incoming_.end();) {
    const bool last = std::next(it) == incoming_.end();
    // A later message takes the place of a persistent one that has been received.
    if (it->persistent && it->was_received && !last) it->withdrawn = true;
    if (it->matched || it->withdrawn) {
      ++it;
      continue;
    }
    const auto receive = next_free_receive();
    if (receive == s_.ops.receives.end()) break;
    if (!it->source) {
      receive_from_ring(*receive, it);
      it = incoming_.erase(it);
      continue;
    }
    if (!start_fetch(*receive, *it)) break;
    if (gone_) return;
    it->was_received = true;
    if (!it->persistent) it->matched = true;
  }
  // Those that had nothing to fetch have no completion to wait for.
  finish_fetches();
}

bool RdmaSocket::sink_key(Operation& op, const Piece& piece, std::size_t at, std::size_t length,
                          std::uint32_t& out) {
  if (!device()->read_sink_is_remote()) return local_key(op, piece, out);
  Mr mr = Mr::of_checked(device(), piece.base + at, length,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!mr) return false;
  out = mr.lkey();
  op.grants.push_back(std::move(mr));
  return true;
}

// False: the send queue is full. True: also where the connection has ended over it.
bool RdmaSocket::start_fetch(Operation& op, Incoming& incoming) {
  if (!can_post(2 * kSegmentsMax)) return false;
  std::array<ibv_send_wr, 2 * kSegmentsMax> wrs{};
  std::array<ibv_sge, 2 * kSegmentsMax> sges;
  std::size_t count = 0;
  std::size_t at = 0;
  bool ok = true;
  for (const Segment& segment : incoming.segments) {
    const std::size_t length = std::min<std::size_t>(segment.length, op.total - at);
    std::uint64_t from = segment.addr;
    each_piece(op, at, length, [&](const Piece& piece, std::size_t to, std::size_t bytes) {
      std::uint32_t lkey = 0;
      assert(count < wrs.size());
      ok = ok && sink_key(op, piece, to, bytes, lkey);
      if (!ok) return;
      sges[count] = {reinterpret_cast<std::uintptr_t>(piece.base + to),
                     static_cast<std::uint32_t>(bytes), lkey};
      wrs[count].opcode = IBV_WR_RDMA_READ;
      wrs[count].sg_list = &sges[count];
      wrs[count].num_sge = 1;
      wrs[count].wr.rdma = {from, segment.rkey};
      from += bytes;
      ++count;
    });
    at += length;
  }
  assert(at <= op.total && at <= incoming.length);
  op.done = at;
  op.seq = incoming.seq;
  op.truncated = at < incoming.length;
  op.fetching = true;
  ++incoming.fetching;
  if (!ok) {
    op.error = ENOMEM;  // the message is lost to this receive, and its sender is told
    op.done = 0;
    count = 0;
  }
  if (count == 0) {
    op.serial = 0;
    return true;
  }
  if (post_requests(wrs.data(), count, SendQueue::kNoSlot, true)) {
    op.serial = queue_.last();
  } else {
    broke(ECONNRESET, "a message cannot be fetched");  // a peer may take no Reads
  }
  return true;
}

void RdmaSocket::finish_fetches() {
  for (Operation& op : s_.ops.receives) {
    if (!op.fetching) continue;
    if (!queue_.done(op.serial)) break;
    op.fetching = false;
    op.complete = true;
    op.grants.clear();
    const auto it =
        std::ranges::find_if(incoming_, [&](const Incoming& one) { return one.seq == op.seq; });
    assert(it != incoming_.end() && it->fetching > 0 && it->was_received);
    --it->fetching;
    s_.stats.bytes_received += op.done;
    s_.stats.direct_received += op.done;
    if (it->persistent) {
      ++s_.stats.persistent_read;
    } else {
      drop_incoming(it);
    }
  }
  prune_incoming();
  finish_packet_receives();
}

std::deque<RdmaSocket::Incoming>::iterator RdmaSocket::drop_incoming(
    std::deque<Incoming>::iterator it) {
  assert(it->source && it->fetching == 0);
  queue_control(Type::kDone, it->was_received ? 0 : kDropped, it->seq, 0);
  packets_in_->consumed(0);
  return incoming_.erase(it);
}

void RdmaSocket::prune_incoming() {
  for (auto it = incoming_.begin(); it != incoming_.end();) {
    if (it->withdrawn && it->fetching == 0) {
      it = drop_incoming(it);
    } else {
      ++it;
    }
  }
}

// Receives end in the order in which they were posted.
void RdmaSocket::finish_packet_receives() {
  while (!s_.ops.receives.empty()) {
    Operation& op = s_.ops.receives.front();
    const bool at_end = peer_finished_ && incoming_.empty() && !op.fetching;
    if (!op.complete && !at_end) return;
    const int error = op.error != 0 ? op.error : op.truncated ? EMSGSIZE : 0;
    s_.finish_front(s_.ops.receives, error, op.done);
  }
}

void RdmaSocket::cancel_packets() {
  cancel_packet_sends();
  for (auto it = s_.ops.receives.begin(); it != s_.ops.receives.end();) {
    const auto next = std::next(it);
    // One that is being filled ends as it would have.
    if (it->cancellation.wanted() && !it->fetching && !it->complete) {
      s_.finish(s_.ops.receives, it, ECANCELED, 0);
    }
    it = next;
  }
}

}  // namespace weft::exs
