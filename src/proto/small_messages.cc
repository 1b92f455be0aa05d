#include "proto/small_messages.h"

#include <cassert>
#include <cstring>

#include "proto/stream.h"

namespace weft::proto {

namespace {

constexpr std::size_t kSmallFpdu = fpdu_size(FpduWriter::kCopyBelow + kMaxDdpHeaderSize);

constexpr std::size_t header_size(const SendWqe& wqe) noexcept {
  return wqe.op == SendOp::kWrite ? DdpTagged::kSize : DdpUntagged::kSize;
}

}  // namespace

// --- send ---

bool SmallMessages::is_small(const SendWqe& wqe) const {
  if (wqe.op != SendOp::kWrite && wqe.op != SendOp::kSend) return false;
  if (wqe.length >= FpduWriter::kCopyBelow || s_.params_.tx_markers) return false;
  if (wqe.length + kMaxDdpHeaderSize > s_.max_ulpdu()) return false;
  return wqe.is_inline() || wqe.length == 0 || wqe.sge_count == 1;
}

bool SmallMessages::emit(SendWqe& wqe) {
  const std::size_t header_len = header_size(wqe);
  const std::uint32_t size = wqe.length;
  if (!s_.writer_.room_small(header_len + size)) return false;
  const std::uint8_t* from = wqe.inline_data();
  if (!wqe.is_inline() && size != 0) {
    const Sge& sge = wqe.sges()[0];
    if (s_.source(Stag{sge.lkey}, sge.addr, size, Access::kNone, from) != MemoryFault::kNone ||
        has(s_.source_entry_->spec.access, kByMethod)) {
      return false;
    }
  }
  std::uint8_t* ulpdu = s_.writer_.begin_small(static_cast<std::uint32_t>(header_len + size));
  const Header header = store_ulpdu(wqe, from, ulpdu);
  s_.writer_.end_small();
  built(wqe, header);
  return true;
}

SmallMessages::Header SmallMessages::store_ulpdu(const SendWqe& wqe, const std::uint8_t* from,
                                                 std::uint8_t* at) {
  Header out{Opcode::kWrite, s_.acks_.ask_bit(wqe, s_.sq_.capacity())};
  const auto control = [&out] {
    return static_cast<std::uint8_t>(rdmap_control(out.op) | out.bits);
  };
  if (wqe.op == SendOp::kWrite) {
    store_ddp(DdpTagged{true, control(), wqe.remote_stag, wqe.remote_to}, at);
  } else {
    out.op = wqe.has_flag(SendFlags::kSolicited) ? Opcode::kSendSolicited : Opcode::kSend;
    store_ddp(DdpUntagged{true, control(), 0, kQueueSend, s_.take_msn(kQueueSend), 0}, at);
  }
  if (wqe.length != 0) std::memcpy(at + header_size(wqe), from, wqe.length);
  return out;
}

// Its FPDU is behind those before it.
void SmallMessages::built(SendWqe& wqe, const Header& header) {
  s_.counters_.tx_fpdus.add(1);
  s_.counters_.tx_messages[static_cast<std::size_t>(header.op)].add(1);
  wqe.end_offset = s_.writer_.offset();
  if (s_.params_.steps) tell_built(wqe);
  s_.acks_.number(wqe, header.bits);
  ++s_.work_.next;
}

void SmallMessages::tell_built(const SendWqe& wqe) {
  Step step{.what = Step::What::kBegun, .request = s_.work_.next, .offset = wqe.end_offset};
  step.offset -= fpdu_size(static_cast<std::uint32_t>(header_size(wqe) + wqe.length));
  s_.host_.step(step);
  s_.tell_request(Step::What::kBuilt);
}

// Nothing else is to be sent before the requests in the queue, and an FPDU is framed by its length
// alone.
bool SmallMessages::may_lay() const noexcept {
  const Stream& s = s_;
  if (!s.queue_.empty() || s.out_.from != StreamTx::Outbound::From::kNobody) return false;
  if (!s.writer_.is_bare() || s.machine_.state() != StreamState::kRts) return false;
  if (s.ending_.terminate_due() || s.path_.holds() || s.path_.has_messages()) return false;
  if (!s.greeting_.may_send || s.greeting_.rtr_due() || s.greeting_.mark_due) return false;
  if (s.requests_.wait() || s.acks_.ack_due() || s.refusal_.has_news() || s.may_ask()) return false;
  return !s.work_.paused && !s.work_.doomed && !s.refusal_.backed_off();
}

std::size_t SmallMessages::lay(std::span<std::uint8_t> room) {
  if (!may_lay()) return 0;
  std::size_t laid = 0;
  Pin pin;
  while (s_.work_.next != s_.sq_.tail()) {
    SendWqe& wqe = s_.sq_.at(s_.work_.next);
    if (s_.work_stalled(wqe) || !is_small(wqe)) break;
    const std::size_t size = lay_one(wqe, room.subspan(laid), pin);
    if (size == 0) break;
    laid += size;
  }
  if (laid != 0) s_.path_.note_messages(true);
  return laid;
}

// Octets of the FPDU. 0: no room, or the memory is not valid or by method; the long way says so.
std::size_t SmallMessages::lay_one(SendWqe& wqe, std::span<std::uint8_t> room, Pin& pin) {
  const std::size_t header_len = header_size(wqe);
  const auto ulpdu_len = static_cast<std::uint32_t>(header_len + wqe.length);
  const std::size_t size = fpdu_size(ulpdu_len);
  if (size > room.size()) return 0;
  const std::uint8_t* from = wqe.inline_data();
  if (!wqe.is_inline() && wqe.length != 0) {
    const Sge& sge = wqe.sges()[0];
    std::uint8_t* found = nullptr;
    const MemoryFault fault = s_.table_.resolve(Stag{sge.lkey}, sge.addr, wqe.length, Access::kNone,
                                                s_.params_.id, pin, found, &s_.tx_hint_);
    if (fault != MemoryFault::kNone || has(pin.entry()->spec.access, kByMethod)) return 0;
    from = found;
  }
  std::uint8_t* const at = room.data();
  std::memset(at + size - (kMaxPad + kCrcSize), 0, kMaxPad + kCrcSize);  // before what is not 0
  store_ulpdu_length(at, static_cast<std::uint16_t>(ulpdu_len));
  const Header header = store_ulpdu(wqe, from, at + kFpduLengthSize);
  s_.writer_.note_laid(size);
  built(wqe, header);
  return size;
}

void SmallMessages::laid(std::size_t n) {
  StreamTx::Offsets& offsets = s_.offsets_;
  assert(s_.queue_.empty() && offsets.released == offsets.sent);
  s_.counters_.tx_bytes.add(n);
  offsets.released = offsets.sent += n;
  if (s_.params_.steps) s_.host_.step({.what = Step::What::kSent, .offset = offsets.sent});
  if (!s_.params_.hold_completions) offsets.completable = offsets.released;
  s_.retire_work();
}

// --- receive ---

std::size_t SmallMessages::take(std::span<const std::uint8_t> seen) {
  if (s_.awaits_receive()) return 0;
  FpduReader& reader = s_.reader_;
  std::uint8_t fpdu[kSmallFpdu];
  std::size_t taken = 0;
  bool alive = true;
  s_.moved_ = false;
  while (alive && !s_.discarding_ && !s_.moved_ && reader.takes_bare()) {
    const std::span<const std::uint8_t> rest = seen.subspan(taken);
    if (rest.size() < kFpduLengthSize) break;
    std::memcpy(fpdu, rest.data(), kFpduLengthSize);  // once: the peer may change it meanwhile
    const std::uint32_t ulpdu_len = load_ulpdu_length(fpdu);
    const std::size_t size = fpdu_size(ulpdu_len);
    if (size > sizeof fpdu || size > rest.size()) break;
    std::memcpy(fpdu, rest.data() + kFpduLengthSize, ulpdu_len);
    taken += size;
    s_.counters_.rx_bytes.add(size);
    reader.note_bare(size);
    const MarkedOctets ulpdu{std::span<const std::uint8_t>(fpdu, ulpdu_len)};
    alive = s_.on_ulpdu(ulpdu);
    if (!alive && s_.hold_.why != StreamRx::Waits::kForNothing) {
      s_.hold(ulpdu);
      return taken;
    }
  }
  s_.pin_.release();
  if (!alive) reader.drop_all();
  return taken;
}

}  // namespace weft::proto
