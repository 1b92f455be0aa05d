// Messages that are lost, between unreliable wired queue pairs (StreamParams::unreliable). As
// between adapters, a message that its target cannot take is dropped whole, nobody is told, and
// what is behind it arrives: a Send without a receive, or longer than its receive (which the next
// one gets), a Write without the right to it, the Immediate behind such a Write.
//
// A Send may wait a moment for its receive (stream_hold.cc): TCP holds the sender back, where an
// adapter's peer is as fast as its sender. Behind one that waited without success none waits until
// a receive is there again.
//
// The rights of a Write are looked at once more when it is placed. Should they be revoked in
// between, the connection ends as a reliable one does.
#include <utility>

#include "proto/stream.h"

namespace weft::proto {

// Whether this ULPDU, a whole one, is part of a message that is lost.
bool StreamLoss::loses(Stream& s, std::span<const std::uint8_t> ulpdu) {
  if (!is_lost(s, ulpdu)) return false;
  if (!std::exchange(s.hold_.seen_before, false)) s.counters_.rx_fpdus.add(1);
  return true;
}

// A segment that breaks a rule is not lost: open_segment() refuses it.
bool StreamLoss::is_lost(Stream& s, std::span<const std::uint8_t> ulpdu) {
  if (s.machine_.state() != StreamState::kRts || ulpdu.size() < 2) return false;
  const Result<Opcode> op = check_segment_control(ulpdu[0], ulpdu[1]);
  if (!op || ulpdu.size() < weft::info(*op).ulpdu_min) return false;
  const auto payload = static_cast<std::uint32_t>(ulpdu.size() - ddp_header_size(ulpdu[0]));
  if (*op == Opcode::kWrite) return loses_write(s, load_ddp_tagged(ulpdu.data()), payload);
  if (!weft::info(*op).consumes_receive) return false;
  return loses_send(s, *op, load_ddp_untagged(ulpdu.data()), payload, peek_last(ulpdu[0]));
}

bool StreamLoss::loses_write(Stream& s, const DdpTagged& h, std::uint32_t payload) {
  if (!s.write_.open && !losing_write_) lost_write_ = false;  // a new message
  Pin pin;
  std::uint8_t* at = nullptr;
  if (!losing_write_ && payload != 0 &&
      s.tell(s.resolve_remote(h.stag, h.to, payload, Access::kRemoteWrite, pin, at), h.stag, h.to,
             payload, Access::kRemoteWrite, true) != MemoryFault::kNone) {
    losing_write_ = lost_write_ = true;
    s.write_.open = false;
    s.write_.bytes = 0;
    s.counters_.messages_dropped.add(1);
  }
  if (!losing_write_) return false;
  losing_write_ = !h.last;
  return true;
}

bool StreamLoss::loses_send(Stream& s, Opcode op, const DdpUntagged& h, std::uint32_t payload,
                            bool last) {
  if (h.queue != kQueueSend || h.msn != s.rx_msn_[kQueueSend]) return false;
  if (!losing_send_) {
    if (!cannot_take(s, op, h, payload)) return false;
    losing_send_ = true;
    s.counters_.messages_dropped.add(1);
  }
  if (last) {
    losing_send_ = lost_write_ = false;
    s.write_.last_bytes = 0;
    s.rx_msn_[kQueueSend] = h.msn.next();
  }
  return true;
}

bool StreamLoss::cannot_take(Stream& s, Opcode op, const DdpUntagged& h, std::uint32_t payload) {
  const bool whole = weft::info(op).must_be_last;
  if (whole && lost_write_) return true;
  if (!s.receive_.open) {
    const bool open = s.open_receive();
    if (!open && starved_) s.host_.receive_late(LateReceive::kLost, s.params_.recv_wait);
    if (!open) return starved_;  // the first one waits
    starved_ = false;
  }
  if (whole || std::uint64_t{h.mo} + payload <= s.receive_.wqe.length) return false;
  s.begin_receive();  // for the next message
  return true;
}

}  // namespace weft::proto
