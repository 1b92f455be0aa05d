#include "proto/ddp_stream.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

namespace weft::proto {

DdpEnd ddp_end(MemoryFault fault) noexcept {
  switch (fault) {
    case MemoryFault::kNone: return DdpEnd::kOpen;
    case MemoryFault::kInvalidStag: return DdpEnd::kInvalidStag;
    case MemoryFault::kNotOfStream: return DdpEnd::kNotOfStream;
    case MemoryFault::kNoRight: return DdpEnd::kNoRight;
    case MemoryFault::kWrap: return DdpEnd::kWrap;
    case MemoryFault::kBounds: return DdpEnd::kBounds;
  }
  return DdpEnd::kInvalidStag;
}

DdpStream::DdpStream(const DdpParams& params, DdpHost& host)
    : params_(params),
      host_(host),
      reader_(params.crc, params.rx_markers, true, host),
      writer_(params.crc, params.tx_markers),
      tx_(host),
      messages_(new (std::nothrow) Posted[params.send_depth]),
      may_send_(params.may_send) {
  assert(params.queues <= kDdpQueuesMax && params.send_depth != 0);
}

// --- receive ---

void DdpStream::feed(std::span<std::uint8_t> bytes) {
  while (!bytes.empty() && end_ == DdpEnd::kOpen) {
    if (reader_.at_border()) {
      reader_.feed(bytes);
      drain();
      return;
    }
    // The rest of an FPDU goes where its beginning is.
    const Slice place = reader_.want({});
    const std::size_t n = std::min(place.size, bytes.size());
    std::memcpy(place.data, bytes.data(), n);
    bytes = bytes.subspan(n);
    (void)reader_.filled(n);
    drain();
  }
}

void DdpStream::drain() {
  while (end_ == DdpEnd::kOpen) {
    const Inbound in = reader_.next();
    switch (in.kind) {
      case Inbound::Kind::kNone:
        if (!reader_.park()) end_with(DdpEnd::kLost);
        return;
      case Inbound::Kind::kDirect: reader_.keep(); break;
      case Inbound::Kind::kUlpdu:
        may_send_ = true;
        if (const DdpEnd bad = params_.bare ? on_bare(in.ulpdu) : on_ulpdu(in.ulpdu);
            bad != DdpEnd::kOpen) {
          end_with(bad);
        }
        break;
      default: end_with(DdpEnd::kFraming); break;
    }
  }
}

DdpEnd DdpStream::on_ulpdu(MarkedOctets ulpdu) {
  const std::span<const std::uint8_t> header = ulpdu.front();
  if (header.empty() || header.size() < ddp_header_size(header[0])) return DdpEnd::kFraming;
  if (!ddp_version_ok(header[0])) return DdpEnd::kVersion;
  ulpdu.drop(ddp_header_size(header[0]));
  if (peek_tagged(header[0])) return on_tagged(load_ddp_tagged(header.data()), ulpdu);
  return on_untagged(load_ddp_untagged(header.data()), ulpdu);
}

DdpEnd DdpStream::on_bare(MarkedOctets ulpdu) {
  DdpUntagged header;
  header.last = true;
  header.msn = queues_[0].next_in;
  return on_untagged(header, ulpdu);
}

DdpEnd DdpStream::on_tagged(const DdpTagged& h, MarkedOctets payload) {
  // RFC 5041 5.2: the STag and TO of a segment without payload are not checked.
  if (!payload.empty()) {
    const MemoryFault fault = host_.place(h.stag, h.to, payload);
    if (fault != MemoryFault::kNone) return ddp_end(fault);
  }
  tagged_open_ = !h.last;
  if (h.last && !host_.tagged_delivered(h)) return DdpEnd::kRefused;
  return DdpEnd::kOpen;
}

// The order of RFC 5041 section 7.1: queue, MSN, buffer, offset, length.
DdpEnd DdpStream::on_untagged(const DdpUntagged& h, MarkedOctets payload) {
  if (h.queue >= params_.queues) return DdpEnd::kNoQueue;
  Queue& q = queues_[h.queue];
  if (h.msn != q.next_in) return DdpEnd::kMsn;
  if (!q.open) {
    if (!host_.take_buffer(h.queue, q.buffer)) return DdpEnd::kNoBuffer;
    q.open = true;
    q.filled = 0;
  }
  if (h.mo != q.filled) return DdpEnd::kBadOffset;
  if (payload.size() > q.buffer.size() - q.filled) return DdpEnd::kTooLong;
  const std::size_t size = payload.size();
  if (size != 0) payload.move_to(q.buffer.data() + q.filled, size);
  q.filled += static_cast<std::uint32_t>(size);
  if (!h.last) return DdpEnd::kOpen;
  q.open = false;
  q.next_in = q.next_in.next();
  host_.untagged_delivered(h, q.filled);
  return DdpEnd::kOpen;
}

bool DdpStream::mid_message() const noexcept {
  if (!reader_.at_border() || tagged_open_) return true;
  return std::any_of(std::begin(queues_), std::end(queues_), [](const Queue& q) { return q.open; });
}

void DdpStream::peer_closed() {
  peer_fin_ = true;
  if (end_ != DdpEnd::kOpen) return;
  if (mid_message()) return end_with(DdpEnd::kLost);
  // Messages that are queued still go out, unless the peer must speak first and never will.
  close();
  if (head_ == tail_ || !may_send_) end_with(DdpEnd::kOrderly);
}

void DdpStream::transport_lost() {
  if (end_ == DdpEnd::kOpen) end_with(DdpEnd::kLost);
  reset_ = true;
}

// --- send ---

std::uint32_t DdpStream::segment_max(bool tagged) const noexcept {
  if (params_.bare) return params_.max_ulpdu;
  return params_.max_ulpdu - static_cast<std::uint32_t>(tagged ? kDdpTaggedSize : kDdpUntaggedSize);
}

Status DdpStream::post(const DdpMessage& m) {
  if (end_ != DdpEnd::kOpen || closing_) return weft::fail(Error::kBadState);
  if (!m.tagged && m.queue >= params_.queues) return weft::fail(Error::kInvalidArgument);
  if (params_.bare && (m.tagged || m.length > params_.max_ulpdu || m.length == 0)) {
    return weft::fail(Error::kInvalidArgument);
  }
  if (tail_ - head_ == params_.send_depth) return weft::fail(Error::kNoSpace);
  at(tail_++) = {m, 0};
  return {};
}

bool DdpStream::tx_pending() const noexcept {
  return tx_.under_way() != nullptr || (build_ != tail_ && may_send_);
}

TxBatch* DdpStream::gather() {
  if (tx_.under_way() != nullptr) return tx_.under_way();
  if (!tx_pending()) return nullptr;
  TxBatch* batch = tx_.append();
  if (batch == nullptr) return nullptr;
  writer_.attach(batch);
  while (build_ != tail_ && emit_segment(at(build_))) {
  }
  return tx_.under_way();
}

// One FPDU of this message. False: the batch is full.
bool DdpStream::emit_segment(Posted& posted) {
  const DdpMessage& m = posted.message;
  const std::uint32_t payload = std::min(m.length - built_, segment_max(m.tagged));
  const bool last = built_ + payload == m.length;
  std::uint8_t header[kMaxDdpHeaderSize];
  std::size_t header_len = 0;
  if (params_.bare) {
    header_len = 0;
  } else if (m.tagged) {
    header_len = DdpTagged::kSize;
    store_ddp(DdpTagged{last, m.control, m.stag, m.to + built_}, header);
  } else {
    header_len = DdpUntagged::kSize;
    const Msn msn = queues_[m.queue].next_out;
    store_ddp(DdpUntagged{last, m.control, m.rsvd_ulp, m.queue, msn, built_}, header);
  }
  if (!writer_.room(header_len, payload, 1)) return false;
  writer_.begin(header, header_len, payload);
  if (payload != 0) writer_.payload(m.data + built_, payload, true);
  writer_.end();
  built_ += payload;
  if (!last) return true;
  if (!m.tagged) queues_[m.queue].next_out = queues_[m.queue].next_out.next();
  posted.end = writer_.offset();
  built_ = 0;
  ++build_;
  return true;
}

void DdpStream::sent(std::size_t n) {
  if (tx_.under_way() == nullptr || n == 0) return;
  taken_ += n;
  tx_.taken(n);
}

void DdpStream::released(std::size_t n) {
  assert(n <= taken_ - released_);
  released_ += n;
  tx_.released(n);
  retire(released_);
  if (end_ == DdpEnd::kOpen && closing_ && peer_fin_ && head_ == tail_) {
    end_with(DdpEnd::kOrderly);
  }
}

// Messages all of whose octets are no longer read. After the end also those that were not built,
// once nothing is in flight.
void DdpStream::retire(StreamOffset released) {
  while (head_ != tail_) {
    const bool built = head_ != build_;
    if (built && at(head_).end > released && (end_ == DdpEnd::kOpen || tx_.in_flight())) return;
    if (!built && (end_ == DdpEnd::kOpen || tx_.in_flight())) return;
    const bool whole = built && at(head_).end <= released;
    if (!built) ++build_;
    ++head_;
    host_.message_released(whole);
  }
}

void DdpStream::transport_closed() {
  released(static_cast<std::size_t>(taken_ - released_));
  if (end_ == DdpEnd::kOpen) end_with(DdpEnd::kLost);
  retire(released_);
}

// --- ending ---

void DdpStream::close() { closing_ = true; }

void DdpStream::abort() {
  if (end_ == DdpEnd::kOpen) end_with(DdpEnd::kAborted);
}

void DdpStream::end_with(DdpEnd how) {
  end_ = how;
  closing_ = true;
  reset_ = how != DdpEnd::kOrderly;
  reader_.drop_all();
  (void)tx_.drop_untaken();
  writer_.attach(nullptr);
  retire(released_);
  host_.stream_ended(how);
}

bool DdpStream::take_fin() {
  if (fin_taken_ || !closing_ || reset_ || tx_.under_way() != nullptr) return false;
  if (end_ == DdpEnd::kOpen && build_ != tail_) return false;  // what is posted goes first
  return fin_taken_ = true;
}

bool DdpStream::finished() const noexcept {
  return reset_ || (end_ != DdpEnd::kOpen && fin_taken_) || (fin_taken_ && peer_fin_);
}

}  // namespace weft::proto
