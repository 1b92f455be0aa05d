// Posting: messages, Writes, credits, one-sided work, and what the send queue has done.

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>

#include "exs/rdma/rdma_socket.h"

namespace weft::exs {
namespace {

constexpr std::size_t kFileChunk = 256UL * 1024UL;
constexpr std::size_t kInlineMax = 1024;

ibv_sge piece_of(const void* addr, std::size_t length, std::uint32_t lkey) {
  return {reinterpret_cast<std::uintptr_t>(addr), static_cast<std::uint32_t>(length), lkey};
}

}  // namespace

bool RdmaSocket::can_post(std::size_t requests) const {
  return up_ && heard_ && !gone_ && queue_.has_room(requests);
}

// The last credit is kept for kCredit: two ends that wait for each other's credits would wait for
// ever.
bool RdmaSocket::can_send(std::size_t requests) {
  if (!can_post(requests + 1)) return false;
  const bool ok = credits_.left(theirs_.slots) >= 2 && slots_.any_free();
  if (!ok && !stalled_) ++s_.stats.credit_stalls;
  stalled_ = !ok;
  return ok;
}

bool RdmaSocket::local_key(Operation& op, const Piece& piece, std::uint32_t& out) {
  if (piece.region != nullptr) return piece.region->lkey(device(), out);
  // Unregistered memory is registered once, for this operation.
  const auto index = static_cast<std::size_t>(&piece - op.pieces.data());
  assert(index < op.pieces.size());
  if (op.locals.size() <= index) op.locals.resize(op.pieces.size());
  Mr& mr = op.locals[index];
  if (!mr) mr = Mr::of_checked(device(), piece.base, piece.length, IBV_ACCESS_LOCAL_WRITE);
  // Memory that may only be read, as constants are, can still be sent.
  if (!mr) mr = Mr::of_checked(device(), piece.base, piece.length, 0);
  if (!mr) return false;
  out = mr.lkey();
  return true;
}

bool RdmaSocket::post_requests(ibv_send_wr* first, std::size_t count, int slot, bool signaled) {
  const bool report = queue_.post(count, slot, signaled);
  const std::uint64_t serial = queue_.last() & SendQueue::kSerialBits;
  for (std::size_t i = 0; i < count; ++i) {
    first[i].next = i + 1 < count ? &first[i + 1] : nullptr;
    first[i].wr_id = static_cast<std::uint64_t>(cm_.number()) << 32U | serial;
  }
  if (report) first[count - 1].send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  // Refused only by a queue pair that is broken; its completions say so.
  return ibv_post_send(cm_.qp(), first, &bad) == 0;
}

bool RdmaSocket::send_message(Header header, std::span<const Segment> segments,
                              const Operation* payload, std::size_t from, bool signaled) {
  assert(up_ && heard_ && credits_.left(theirs_.slots) != 0);
  header.segments = static_cast<std::uint16_t>(segments.size());
  header.slots_returned = credits_.tell();
  if (packets_in_) {
    header.messages_consumed = packets_in_->tell();
    ring_told_ = packets_in_->ring_consumed();
  } else if (in_ && in_->may_report_ring()) {
    ring_told_ = in_->ring_consumed();
  }
  header.ring_consumed = ring_told_;
  const std::size_t data = payload != nullptr ? header.length : 0;
  const std::size_t size = Header::kSize + segments.size() * Segment::kSize + data;
  const bool fits_inline = size <= std::min(inline_bytes_, kInlineMax);
  std::array<std::uint8_t, kInlineMax> here;
  int slot = SendQueue::kNoSlot;
  std::uint8_t* at = here.data();
  if (!fits_inline) {
    assert(size <= slots_.bytes());
    slot = slots_.take();
    at = slots_.to_send(slot);
  }
  encode(header, std::span<std::uint8_t, Header::kSize>(at, Header::kSize));
  std::uint8_t* next = at + Header::kSize;
  for (const Segment& segment : segments) {
    encode(segment, std::span<std::uint8_t, Segment::kSize>(next, Segment::kSize));
    next += Segment::kSize;
  }
  if (data != 0) {
    copy_out(*payload, from, next, data);
    ++s_.stats.copies;
    s_.stats.copied_bytes += data;
  }
  ibv_sge sge = piece_of(at, size, slots_.lkey());
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = fits_inline ? IBV_SEND_INLINE : 0;
  credits_.sent();
  ++s_.stats.messages_sent;
  return post_requests(&wr, 1, slot, signaled);
}

bool RdmaSocket::post_writes(Operation& op, std::size_t from, std::span<const RemotePiece> to) {
  std::array<ibv_send_wr, 2 * kSegmentsMax> wrs{};
  std::array<ibv_sge, 2 * kSegmentsMax> sges;
  std::size_t count = 0;
  bool ok = true;
  for (const RemotePiece& remote : to) {
    std::uint64_t addr = remote.addr;
    each_piece(op, from, remote.length,
               [&](const Piece& piece, std::size_t at, std::size_t length) {
                 std::uint32_t lkey = 0;
                 assert(count < wrs.size());
                 if (!ok || !local_key(op, piece, lkey)) {
                   ok = false;
                   return;
                 }
                 sges[count] = piece_of(piece.base + at, length, lkey);
                 wrs[count].opcode = IBV_WR_RDMA_WRITE;
                 wrs[count].sg_list = &sges[count];
                 wrs[count].num_sge = 1;
                 wrs[count].wr.rdma = {addr, remote.rkey};
                 addr += length;
                 ++count;
               });
    from += remote.length;
  }
  return ok && post_requests(wrs.data(), count, SendQueue::kNoSlot, false);
}

void RdmaSocket::queue_control(Type type, std::uint8_t flags, std::uint64_t seq,
                               std::uint32_t aux) {
  control_.push_back({type, flags, seq, aux});
}

void RdmaSocket::flush_control() {
  while (!control_.empty() && can_send(0)) {
    const Control next = control_.front();
    control_.pop_front();
    Header header;
    header.type = next.type;
    header.flags = next.flags;
    header.seq = next.seq;
    header.aux = next.aux;
    const bool last = next.type == Type::kFinished || next.type == Type::kFinish;
    if (!send_message(header, {}, nullptr, 0, last)) return;
    if (last) last_serial_ = queue_.last();
  }
}

// Sends the credits that the peer waits for, when no other message has carried them.
void RdmaSocket::flush_credits() {
  const bool slots = credits_.untold() >= mine_.slots / 2U;
  const bool messages = packets_in_ && packets_in_->has_to_tell();
  bool ring = false;
  if (packets_in_) {
    ring = packets_in_->ring_consumed() - ring_told_ >= mine_.ring_bytes / 4U;
  } else if (in_) {
    ring = in_->may_report_ring() && in_->ring_consumed() - ring_told_ >= mine_.ring_bytes / 4U;
  }
  if (!slots && !messages && !ring) return;
  // The last credit may go only for returning slots: the peer's answer will bring it back.
  if (credits_.left(theirs_.slots) < (slots ? 1U : 2U) || !can_post(1)) return;
  // Without inline data it needs a buffer. One that comes back brings us here again.
  if (inline_bytes_ < Header::kSize && !slots_.any_free()) return;
  send_message(Header{}, {}, nullptr, 0, false);
}

void RdmaSocket::flush() {
  if (gone_ || !up_) return;
  flush_control();
  if (s_.kind == Kind::kStream) {
    advertise();
    pump_stream();
  } else {
    match_packets();
    flush_control();  // what matching has finished with
    pump_packets();
  }
  pump_one_sided();
  advance_end();
  flush_control();
  flush_credits();
}

// ---- files

// Brings the next bytes of the operation's files into its buffer. False: an error, which ends the
// operation.
bool RdmaSocket::load_file(Operation& op) {
  assert(op.handed < op.total);
  const bool whole = s_.kind == Kind::kPacket;
  const std::size_t want = whole ? op.total : std::min(kFileChunk, op.total - op.handed);
  op.locals.clear();
  if (const int error = op.files.load(op.pieces, op.handed, want); error != 0) op.error = error;
  s_.stats.copied_bytes += want;
  ++s_.stats.copies;
  return op.error == 0;
}

// ---- one-sided

void RdmaSocket::one_sided_posted() { flush(); }

void RdmaSocket::pump_one_sided() {
  for (Operation& op : s_.ops.one_sided) {
    if (op.handed != 0) continue;
    if (!can_post(op.pieces.size() + 1)) return;
    if (!post_one_sided(op)) return broke(ECONNRESET, "one-sided work cannot be posted");
  }
}

bool RdmaSocket::post_one_sided(Operation& op) {
  assert(op.handed == 0 && op.pieces.size() == 1);
  const NamedMemory::Remote* to = names_.remote(op.remote.memory);
  std::uint32_t lkey = 0;
  if (to == nullptr || !local_key(op, op.pieces.front(), lkey)) return false;
  const std::uint64_t addr = to->addr + op.remote.offset;
  const Piece& piece = op.pieces.front();
  ibv_sge sge = piece_of(piece.base, piece.length, lkey);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  if (op.type == EXS_EVT_WRITE || op.type == EXS_EVT_READ) {
    wr.opcode = op.type == EXS_EVT_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    wr.wr.rdma = {addr, to->rkey};
  } else {
    wr.opcode =
        op.type == EXS_EVT_FETCHADD ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic = {addr, op.remote.operand, op.remote.swap, to->rkey};
  }
  if (!post_requests(&wr, 1, SendQueue::kNoSlot, true)) return false;
  op.handed = 1;
  op.serial = queue_.last();
  return true;
}

void RdmaSocket::finish_one_sided() {
  while (!s_.ops.one_sided.empty()) {
    Operation& op = s_.ops.one_sided.front();
    if (op.handed == 0 || !queue_.done(op.serial)) return;
    if (op.remote.before != nullptr) *op.remote.before = op.remote.value;
    s_.finish_front(s_.ops.one_sided, 0, op.total);
  }
}

}  // namespace weft::exs
