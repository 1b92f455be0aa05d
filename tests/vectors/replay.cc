#include "replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"

namespace weft::testing {

namespace {

Opcode op_of(const Fpdu& f) { return static_cast<Opcode>(f.ulpdu[1] & kRdmapOpcodeMask); }
bool last_of(const Fpdu& f) { return peek_last(f.ulpdu[0]); }
DdpTagged tagged(const Fpdu& f) { return load_ddp_tagged(f.ulpdu.data()); }
DdpUntagged untagged(const Fpdu& f) { return load_ddp_untagged(f.ulpdu.data()); }
ReadRequest request_of(const Fpdu& f) {
  return load_read_request(f.ulpdu.data() + DdpUntagged::kSize);
}
std::size_t payload_of(const Fpdu& f) { return f.ulpdu.size() - ddp_header_size(f.ulpdu[0]); }

// The largest ULPDU of a segment that is not the last of its message: how this side cut.
std::uint32_t mulpdu_of(const Direction& d) {
  std::size_t most = 0;
  std::size_t any = 1442;
  for (const Fpdu& f : d.fpdus) {
    if (!last_of(f)) most = std::max(most, f.ulpdu.size());
    any = std::max(any, f.ulpdu.size());
  }
  return static_cast<std::uint32_t>(most != 0 ? most : any);
}

constexpr std::uint32_t kReceiveBytes = 70000;

}  // namespace

Replay::Replay(const Decoded& decoded, int side, const proto::Negotiated& negotiated)
    : mine_(decoded.from[side]),
      theirs_(decoded.from[1 - side]),
      crc_(decoded.crc),
      negotiated_(negotiated),
      endpoint_({.arena_bytes = 4U << 20U}) {
  survey();
  make_regions();
  // A receive for each message; they may share memory, nobody looks at it.
  std::uint8_t* const buffer = endpoint_.take(kReceiveBytes);
  for (std::size_t i = 0; i < theirs_.fpdus.size(); ++i) {
    endpoint_.post_recv(i, buffer, kReceiveBytes);
  }
  endpoint_.on_invalidate = [](Stag) { return proto::Violation::kNone; };
  proto::StreamParams p;
  p.initiator = negotiated.initiator;
  p.crc = crc_;
  p.rtr = negotiated.initiator ? negotiated.rtr : RtrKind::kNone;
  p.ird = p.ord = 128;  // more than siw ever uses: the script decides what is outstanding
  p.max_ulpdu = mulpdu_of(mine_);
  endpoint_.start(p);
}

// --- our memory, as the capture shows it ---

void Replay::note(Stag stag, std::uint64_t to, std::uint64_t size) {
  if (size == 0) return;
  Extent& e = extents_[stag.value];
  e.low = std::min(e.low, to);
  e.high = std::max(e.high, to + size);
}

void Replay::survey() {
  for (const Fpdu& f : theirs_.fpdus) {
    const bool placed = op_of(f) == Opcode::kWrite || op_of(f) == Opcode::kReadResponse;
    if (placed) note(tagged(f).stag, tagged(f).to, payload_of(f));
    if (op_of(f) == Opcode::kReadRequest) {
      const ReadRequest r = request_of(f);
      note(r.src_stag, r.src_to, r.size);
    }
  }
  for (const Fpdu& f : mine_.fpdus) {
    if (op_of(f) != Opcode::kReadRequest) continue;
    const ReadRequest r = request_of(f);
    note(r.sink_stag, r.sink_to, r.size);
  }
}

void Replay::make_regions() {
  for (auto& [stag, e] : extents_) {
    e.at = endpoint_.take(static_cast<std::size_t>(e.high - e.low));
    e.ours =
        endpoint_.add_region(e.at, static_cast<std::size_t>(e.high - e.low), Endpoint::kAll, e.low);
  }
}

Stag Replay::ours(Stag captured) const {
  const auto it = extents_.find(captured.value);
  return it == extents_.end() ? captured : it->second.ours;
}

// --- octets with the STags exchanged ---

std::vector<std::uint8_t> Replay::reframed(std::vector<std::uint8_t> ulpdu) const {
  std::vector<std::uint8_t> out(fpdu_size(static_cast<std::uint32_t>(ulpdu.size())), 0);
  store_ulpdu_length(out.data(), static_cast<std::uint16_t>(ulpdu.size()));
  std::copy(ulpdu.begin(), ulpdu.end(), out.begin() + kFpduLengthSize);
  const std::size_t covered = out.size() - kCrcSize;
  store_crc(out.data() + covered, crc_ ? crc32c({out.data(), covered}) : 0);
  return out;
}

std::vector<std::uint8_t> Replay::inbound(const Fpdu& fpdu) {
  std::vector<std::uint8_t> ulpdu = fpdu.ulpdu;
  const Opcode op = op_of(fpdu);
  if (op == Opcode::kWrite || op == Opcode::kReadResponse) {
    store_be32(ulpdu.data() + 2, ours(tagged(fpdu).stag).value);
  }
  if (op == Opcode::kReadRequest) {
    store_be32(ulpdu.data() + DdpUntagged::kSize + 16, ours(request_of(fpdu).src_stag).value);
  }
  return reframed(std::move(ulpdu));
}

// siw's pad octets are not always zero, as they must be (RFC 5044 section 4.1): ours are, and the
// CRC changes with them.
std::vector<std::uint8_t> Replay::outbound(const Fpdu& fpdu) const {
  std::vector<std::uint8_t> ulpdu = fpdu.ulpdu;
  if (op_of(fpdu) == Opcode::kReadRequest) {
    // siw's RTR names sink STag 0, ours names 1.
    const ReadRequest r = request_of(fpdu);
    const std::uint32_t sink = r.size == 0 ? 1 : ours(r.sink_stag).value;
    store_be32(ulpdu.data() + DdpUntagged::kSize, sink);
  }
  return reframed(std::move(ulpdu));
}

// --- the peer's part ---

// Our memory holds what the captured side answered to this request.
void Replay::fill_source(const ReadRequest& request) {
  if (request.size == 0) return;
  const Extent& e = extents_.at(request.src_stag.value);
  std::uint8_t* to = e.at + (request.src_to - e.low);
  std::size_t left = request.size;
  while (left != 0 && answers_found_ < mine_.fpdus.size()) {
    const Fpdu& f = mine_.fpdus[answers_found_++];
    if (op_of(f) != Opcode::kReadResponse) continue;
    std::memcpy(to, f.ulpdu.data() + DdpTagged::kSize, payload_of(f));
    to += payload_of(f);
    left -= payload_of(f);
  }
}

void Replay::feed_next() {
  const Fpdu& f = theirs_.fpdus[fed_++];
  if (op_of(f) == Opcode::kReadRequest) {
    ++requests_fed_;
    fill_source(request_of(f));
  }
  std::vector<std::uint8_t> octets = inbound(f);
  endpoint_.stream().feed(octets);
  drain();
}

void Replay::feed_until_request(std::size_t count) {
  while (requests_fed_ < count && fed_ < theirs_.fpdus.size()) feed_next();
}

void Replay::receive_rest() {
  while (fed_ < theirs_.fpdus.size() && op_of(theirs_.fpdus[fed_]) != Opcode::kTerminate) {
    feed_next();
  }
}

// --- our part ---

// The work request whose first segment is our FPDU number `index`.
void Replay::post(std::size_t index) {
  const Fpdu& first = mine_.fpdus[index];
  const Opcode op = op_of(first);
  std::vector<std::uint8_t> payload;
  bool whole = false;
  for (std::size_t i = index; i < mine_.fpdus.size() && !whole; ++i) {
    const Fpdu& f = mine_.fpdus[i];
    if (op_of(f) != op) continue;
    const std::size_t header = ddp_header_size(f.ulpdu[0]);
    payload.insert(payload.end(), f.ulpdu.begin() + static_cast<std::ptrdiff_t>(header),
                   f.ulpdu.end());
    whole = last_of(f);
  }
  if (!whole) {  // cut off by the peer's reset: there was more
    payload.push_back(0);
    cut_off_ = true;
  }
  if (op == Opcode::kReadRequest) {
    const ReadRequest r = request_of(first);
    proto::SendWqe* wqe = endpoint_.new_send(SendOp::kRead, SendFlags::kSignaled, next_id_++);
    ASSERT_NE(wqe, nullptr);
    endpoint_.add_sge(*wqe, ours(r.sink_stag), reinterpret_cast<const void*>(r.sink_to), r.size);
    wqe->remote_stag = r.src_stag;
    wqe->remote_to = r.src_to;
    endpoint_.commit_send();
    return;
  }
  std::uint8_t* const at = endpoint_.take(payload.size());
  if (!payload.empty()) std::memcpy(at, payload.data(), payload.size());
  const auto size = static_cast<std::uint32_t>(payload.size());
  if (op == Opcode::kWrite) {
    endpoint_.post_send(SendOp::kWrite, SendFlags::kSignaled, next_id_++, at, size,
                        tagged(first).stag, tagged(first).to);
    return;
  }
  const OpcodeInfo& rule = info(op);
  endpoint_.post_send(
      rule.carries_invalidate ? SendOp::kSendInvalidate : SendOp::kSend,
      rule.solicited ? SendFlags::kSignaled | SendFlags::kSolicited : SendFlags::kSignaled,
      next_id_++, at, size, Stag{untagged(first).rsvd_ulp});
}

// Moves what our Stream sends into out_.
void Replay::drain() {
  proto::Stream& stream = endpoint_.stream();
  while (proto::TxBatch* batch = stream.gather()) {
    const std::size_t left = batch->bytes - batch->sent;
    for (std::size_t i = batch->slice_next; i < batch->slice_count; ++i) {
      const Slice& s = batch->slices[i];
      out_.insert(out_.end(), s.data, s.data + s.size);
    }
    stream.sent(left);
    stream.released(left);
  }
}

void Replay::send_all(bool compare) {
  bool message_open = false;
  // A responder may send once it has heard something.
  if (!negotiated_.initiator && !theirs_.fpdus.empty() && !mine_.fpdus.empty()) feed_next();
  for (std::size_t i = 0; i < mine_.fpdus.size(); ++i) {
    const Fpdu& f = mine_.fpdus[i];
    if (op_of(f) == Opcode::kTerminate) return;
    const bool rtr = i == 0 && negotiated_.initiator && negotiated_.rtr != RtrKind::kNone;
    if (!message_open && op_of(f) == Opcode::kReadResponse) {
      feed_until_request(++responses_);
    } else if (!message_open && !rtr) {
      post(i);
    }
    drain();
    message_open = !last_of(f);
    if (!compare) {
      out_.clear();
      continue;
    }
    const std::vector<std::uint8_t> expected = outbound(f);
    ASSERT_GE(out_.size(), expected.size()) << "FPDU " << i << " was not sent";
    const auto end = out_.begin() + static_cast<std::ptrdiff_t>(expected.size());
    ASSERT_EQ(std::vector<std::uint8_t>(out_.begin(), end), expected) << "FPDU " << i;
    out_.erase(out_.begin(), end);
  }
  EXPECT_TRUE(out_.empty() || cut_off_) << "more was sent than captured";
}

}  // namespace weft::testing
