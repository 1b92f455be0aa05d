#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "exs/rdma/packet_flow.h"

namespace weft::exs {

int PacketFlow::open(Hello& mine) {
  ring_ = Pages(mine.ring_bytes);
  return 0;
}

void PacketFlow::start(const Hello& mine, const Hello& theirs) {
  assert(!out_ && !in_ && mine.ring_bytes != 0);
  out_.emplace(theirs);
  in_.emplace(mine);
  report_bytes_ = mine.ring_bytes / 4U;
}

const char* PacketFlow::pump() {
  if (const char* why = match(); why != nullptr) return why;
  port_.flush_control(*this);  // what matching has finished with
  pump_sends();
  return nullptr;
}

void PacketFlow::receives_posted() {
  if (finished_) finish_receives();
}

// ---- messages

const char* PacketFlow::on_message(const Message& message) {
  switch (message.header.type) {
    case Type::kData: return on_data(message);
    case Type::kSource: return on_source(message);
    case Type::kDone: return on_done(message.header);
    case Type::kWithdraw: return on_withdraw(message.header);
    default: return "a message for another type of socket";
  }
}

const char* PacketFlow::on_counters(const Header& header) {
  return out_->on_consumed(header.messages_consumed, header.ring_consumed);
}

// A sender waits for the answer to what it offers: nobody could fetch it any more.
const char* PacketFlow::on_finish() {
  assert(!finished_);
  if (std::ranges::any_of(incoming_, [](const Incoming& one) { return one.source; })) {
    return "the end before all messages are fetched";
  }
  finished_ = true;
  return nullptr;
}

void PacketFlow::tell(Header& header) {
  header.messages_consumed = in_->tell();
  header.ring_consumed = ring_told_ = in_->ring_consumed();
}

bool PacketFlow::has_to_tell() const {
  return in_->has_to_tell() || in_->ring_consumed() - ring_told_ >= report_bytes_;
}

bool PacketFlow::readable() const {
  const auto waits = [](const Incoming& one) { return !one.matched && !one.withdrawn; };
  return finished_ || std::ranges::any_of(incoming_, waits);
}

bool PacketFlow::writable() const { return out_ && out_->may_send() && out_->ring_free() != 0; }

// ---- sending

void PacketFlow::pump_sends() {
  for (auto it = s_.ops.sends.begin(); it != s_.ops.sends.end();) {
    Operation& op = *it;
    const auto next = std::next(it);
    if (!op.advertised) {
      if (!out_->may_send()) {
        if (!ring_stalled_) ++s_.stats.ring_stalls;
        ring_stalled_ = true;
        return;
      }
      if (!port_.can_send(0)) return;
      // The memory is the caller's again before it could be fetched.
      if (op.now && op.total > port_.immediate_bytes()) op.files.expect();
      if (op.files.expected() && !op.files.loaded() && op.total != 0 &&
          !port_.load_file(op, op.total)) {
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
bool PacketFlow::send_packet(Operation& op) {
  assert(!op.advertised && !op.complete);
  const std::size_t fits = port_.immediate_bytes();
  const bool persistent = (op.flags & EXS_PERSISTENT) != 0;
  if (op.total > fits || (persistent && op.total != 0)) return send_source(op);
  if (op.total > out_->ring_free()) {
    if (!ring_stalled_) ++s_.stats.ring_stalls;
    ring_stalled_ = true;
    return false;
  }
  ring_stalled_ = false;
  Header header;
  header.type = Type::kData;
  header.length = static_cast<std::uint32_t>(op.total);
  header.seq = out_->send(op.total);
  port_.send_message(*this, header, {}, &op, 0, false);
  s_.stats.immediate_sent += op.total;
  s_.stats.bytes_sent += op.total;
  op.complete = true;
  return true;
}

bool PacketFlow::send_source(Operation& op) {
  std::array<Segment, kSegmentsMax> segments;
  std::size_t count = 0;
  for (const Piece& piece : op.pieces) {
    if (piece.length == 0) continue;
    Mr mr = Mr::of_checked(port_.device(), piece.base, piece.length, IBV_ACCESS_REMOTE_READ);
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
  header.seq = op.seq = out_->send(0);
  op.advertised = true;
  ++s_.stats.adverts_sent;
  port_.send_message(*this, header, std::span(segments).first(count), nullptr, 0, false);
  return true;
}

const char* PacketFlow::on_done(const Header& header) {
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

void PacketFlow::cancel_sends() {
  for (auto it = s_.ops.sends.begin(); it != s_.ops.sends.end();) {
    const auto next = std::next(it);
    if (it->cancellation.wanted() && !it->advertised) {
      s_.finish(s_.ops.sends, it, ECANCELED, 0);
    } else if (it->now) {
      s_.let_go(*it);
    } else if (it->cancellation.wanted() && !it->withdrawing) {
      it->withdrawing = true;
      port_.queue_control(Type::kWithdraw, 0, it->seq, 0);
    }
    it = next;
  }
}

void PacketFlow::stop() {
  for (Operation& op : s_.ops.sends) {
    if ((op.flags & EXS_PERSISTENT) == 0 || !op.advertised || op.withdrawing) continue;
    op.withdrawing = true;
    port_.queue_control(Type::kWithdraw, 0, op.seq, 0);
  }
}

// ---- receiving

const char* PacketFlow::on_data(const Message& message) {
  const Header& h = message.header;
  assert(h.length == message.payload.size());
  const char* why = in_->on_message(h.seq, incoming_.size(), h.length);
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
    in_->consumed(h.length);
    ++s_.stats.copies;
    s_.stats.copied_bytes += take;
    s_.stats.indirect_received += take;
    finish_receives();
    return nullptr;
  }
  auto at = static_cast<std::size_t>(in_->ring_last(h.length));
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
  if (const char* problem = match(); problem != nullptr) return problem;
  s_.changed();
  return nullptr;
}

const char* PacketFlow::on_source(const Message& message) {
  const Header& h = message.header;
  const char* why = in_->on_message(h.seq, incoming_.size(), 0);
  if (why != nullptr) return why;
  Incoming incoming;
  incoming.seq = h.seq;
  incoming.source = true;
  incoming.persistent = (h.flags & kPersistent) != 0;
  incoming.length = h.length;
  incoming.segments.assign(message.segments.begin(), message.segments.begin() + h.segments);
  incoming_.push_back(std::move(incoming));
  if (const char* problem = match(); problem != nullptr) return problem;
  s_.changed();
  return nullptr;
}

const char* PacketFlow::on_withdraw(const Header& header) {
  const auto it = std::ranges::find_if(
      incoming_, [&](const Incoming& one) { return one.seq == header.seq && one.source; });
  // Not there: our kDone is under way. Being fetched: it will be.
  if (it == incoming_.end()) {
    return in_->has_come(header.seq) ? nullptr : "a message that was not sent is withdrawn";
  }
  if (!it->matched) it->withdrawn = true;
  prune_incoming();
  return nullptr;
}

OperationList::iterator PacketFlow::next_free_receive() {
  return std::ranges::find_if(s_.ops.receives,
                              [](const Operation& op) { return !op.fetching && !op.complete; });
}

void PacketFlow::receive_from_ring(Operation& op, std::deque<Incoming>::iterator it) {
  assert(it->length <= in_->ring_used() && !it->source);
  const std::size_t take = std::min<std::size_t>(it->length, op.total);
  const auto at = static_cast<std::size_t>(in_->ring_head());
  const std::size_t first = std::min(take, ring_.size() - at);
  copy_in(op, 0, ring_.data() + at, first);
  copy_in(op, first, ring_.data(), take - first);
  ++s_.stats.copies;
  s_.stats.copied_bytes += take;
  s_.stats.indirect_received += take;
  in_->consumed(it->length);
  op.done = take;
  op.truncated = take < it->length;
  op.complete = true;
}

const char* PacketFlow::match() {
  if (incoming_.empty() && !finished_) return nullptr;
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
    if (!port_.can_post(2 * kSegmentsMax)) break;
    if (!start_fetch(*receive, *it)) return "a message cannot be fetched";
    it->was_received = true;
    if (!it->persistent) it->matched = true;
  }
  // Those that had nothing to fetch have no completion to wait for.
  posts_done();
  return nullptr;
}

// False: it cannot be posted. A peer may take no Reads.
bool PacketFlow::start_fetch(Operation& op, Incoming& incoming) {
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
      ok = ok && port_.sink_key(op, piece, to, bytes, lkey);
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
  if (!port_.post_requests(wrs.data(), count, SendQueue::kNoSlot, true)) return false;
  op.serial = port_.last();
  return true;
}

void PacketFlow::posts_done() {
  for (Operation& op : s_.ops.receives) {
    if (!op.fetching) continue;
    if (!port_.done(op.serial)) break;
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
  finish_receives();
}

std::deque<PacketFlow::Incoming>::iterator PacketFlow::drop_incoming(
    std::deque<Incoming>::iterator it) {
  assert(it->source && it->fetching == 0);
  port_.queue_control(Type::kDone, it->was_received ? 0 : kDropped, it->seq, 0);
  in_->consumed(0);
  return incoming_.erase(it);
}

void PacketFlow::prune_incoming() {
  for (auto it = incoming_.begin(); it != incoming_.end();) {
    if (it->withdrawn && it->fetching == 0) {
      it = drop_incoming(it);
    } else {
      ++it;
    }
  }
}

// Receives end in the order in which they were posted.
void PacketFlow::finish_receives() {
  while (!s_.ops.receives.empty()) {
    Operation& op = s_.ops.receives.front();
    const bool at_end = finished_ && incoming_.empty() && !op.fetching;
    if (!op.complete && !at_end) return;
    const int error = op.error != 0 ? op.error : op.truncated ? EMSGSIZE : 0;
    s_.finish_front(s_.ops.receives, error, op.done);
  }
}

void PacketFlow::cancel() {
  cancel_sends();
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
