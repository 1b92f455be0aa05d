#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <new>

#include "exs/rdma/rdma_port.h"

namespace weft::exs {
namespace {

constexpr int kSendRequests = 256;
constexpr std::uint32_t kInlineWanted = 512;
constexpr std::size_t kInlineMax = 1024;

ibv_sge piece_of(const void* addr, std::size_t length, std::uint32_t lkey) {
  return {reinterpret_cast<std::uintptr_t>(addr), static_cast<std::uint32_t>(length), lkey};
}

}  // namespace

int RdmaPort::make_qp() {
  const Settings& settings = s_.settings;
  if (cm_.find_device() == nullptr) return errno;
  const int depth = std::min(kSendRequests, device()->attributes().max_qp_wr);
  queue_.open(static_cast<std::size_t>(depth));
  queue_.report_every(settings.slots / 2U);
  CmConnection::Sizes sizes{static_cast<std::uint32_t>(depth), settings.slots, kInlineWanted};
  if (const int error = cm_.make_qp(sizes); error != 0) return error;
  inline_bytes_ = sizes.inline_bytes;
  const int error = slots_.create(device(), settings.slots, settings.immediate_bytes);
  if (error != 0) return error;
  return slots_.post_all(cm_.qp(), cm_.number()) ? 0 : ENOMEM;
}

void RdmaPort::end() {
  advance(Life::kGone);
  cm_.end();
}

void RdmaPort::release() {
  assert(gone());
  slots_.release();
  cm_.dismiss();
}

void RdmaPort::retire(std::uint32_t serial_bits) {
  queue_.retire(serial_bits, [&](int slot) { slots_.give_back(slot); });
}

bool RdmaPort::slot_read(std::uint32_t slot) {
  return !slots_.read(slot) || slots_.post_read(cm_.qp(), cm_.number(), credits_);
}

bool RdmaPort::can_post(std::size_t requests) const {
  return life_ == Life::kOpen && queue_.has_room(requests);
}

// The last credit is kept for kCredit: two ends that wait for each other's credits would wait for
// ever.
bool RdmaPort::can_send(std::size_t requests) {
  if (!can_post(requests + 1)) return false;
  const bool ok = credits_.left(theirs_.slots) >= 2 && slots_.any_free();
  if (!ok && !stalled_) ++s_.stats.credit_stalls;
  stalled_ = !ok;
  return ok;
}

bool RdmaPort::local_key(Operation& op, const Piece& piece, std::uint32_t& out) {
  const bool fills = fills_memory(op.type);
  if (piece.region != nullptr && piece.region->lkey(device(), fills, out)) return true;
  // Unregistered memory is registered once, for this operation. So is a part that may be written of
  // a whole that may not.
  const auto index = static_cast<std::size_t>(&piece - op.pieces.data());
  assert(index < op.pieces.size());
  if (op.locals.size() <= index) op.locals.resize(op.pieces.size());
  Mr& mr = op.locals[index];
  if (!mr) mr = Mr::of_checked(device(), piece.base, piece.length, IBV_ACCESS_LOCAL_WRITE);
  // Memory that may only be read, as constants are, can still be sent.
  if (!mr && !fills) mr = Mr::of_checked(device(), piece.base, piece.length, 0);
  if (!mr) return false;
  out = mr.lkey();
  return true;
}

bool RdmaPort::sink_key(Operation& op, const Piece& piece, std::size_t at, std::size_t length,
                        std::uint32_t& out) {
  if (!device()->read_sink_is_remote()) return local_key(op, piece, out);
  Mr mr = Mr::of_checked(device(), piece.base + at, length,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!mr) return false;
  out = mr.lkey();
  op.grants.push_back(std::move(mr));
  return true;
}

bool RdmaPort::post_requests(ibv_send_wr* first, std::size_t count, int slot, bool signaled) {
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

bool RdmaPort::send_message(Flow& flow, Header header, std::span<const Segment> segments,
                            const Operation* payload, std::size_t from, bool signaled) {
  assert(life_ == Life::kOpen && credits_.left(theirs_.slots) != 0);
  header.segments = static_cast<std::uint16_t>(segments.size());
  header.slots_returned = credits_.tell();
  flow.tell(header);
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

bool RdmaPort::post_writes(Operation& op, std::size_t from, std::span<const RemotePiece> to) {
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

void RdmaPort::flush_control(Flow& flow) {
  while (!control_.empty() && can_send(0)) {
    const Control next = control_.front();
    control_.pop_front();
    Header header;
    header.type = next.type;
    header.flags = next.flags;
    header.seq = next.seq;
    header.aux = next.aux;
    const bool last = next.type == Type::kFinished || next.type == Type::kFinish;
    if (!send_message(flow, header, {}, nullptr, 0, last)) return;
    if (last) last_serial_ = queue_.last();
  }
}

void RdmaPort::flush_credits(Flow& flow) {
  const bool slots = credits_.untold() >= mine_.slots / 2U;
  if (!slots && !flow.has_to_tell()) return;
  // The last credit may go only for returning slots: the peer's answer will bring it back.
  if (credits_.left(theirs_.slots) < (slots ? 1U : 2U) || !can_post(1)) return;
  // Without inline data it needs a buffer. One that comes back brings us here again.
  if (inline_bytes_ < Header::kSize && !slots_.any_free()) return;
  send_message(flow, Header{}, {}, nullptr, 0, false);
}

// ---- files

bool RdmaPort::load_file(Operation& op, std::size_t most) {
  assert(op.handed < op.total);
  const std::size_t want = std::min(most, op.total - op.handed);
  op.locals.clear();
  try {
    if (const int error = op.files.load(op.pieces, op.handed, want); error != 0) op.error = error;
  } catch (const std::bad_alloc&) {
    op.error = ENOMEM;
  }
  s_.stats.copied_bytes += want;
  ++s_.stats.copies;
  return op.error == 0;
}

}  // namespace weft::exs
