#include "exs/core/exs_messages.h"

#include <cassert>

#include "base/bytes.h"

namespace weft::exs {
namespace {

bool carries_segments(Type type) { return type == Type::kAdvert || type == Type::kSource; }

bool within_limits(const Hello& h) {
  return h.slots >= kSlotsMin && h.slots <= kSlotsMax && h.messages >= 1 &&
         h.immediate_bytes <= kImmediateMax && h.ring_bytes >= kRingMin &&
         h.ring_bytes <= kRingMax && h.ring_bytes / 4 >= h.immediate_bytes;
}

// The segments of an advert or source, and that they add up.
const char* decode_segments(ByteReader& in, Message& out) {
  const Header& h = out.header;
  if (h.segments > kSegmentsMax) return "too many memory segments";
  if (in.remaining() != h.segments * Segment::kSize) return "segments cut short";
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < h.segments; ++i) {
    Segment& s = out.segments[i];
    s.addr = in.be64();
    s.rkey = in.be32();
    s.length = in.be32();
    if (s.length > ~s.addr) return "a segment wraps";
    total += s.length;
  }
  if (total != h.length || h.length > kTransferMax) return "segments of another length";
  return nullptr;
}

}  // namespace

std::optional<Hello> decode_hello(std::span<const std::uint8_t> in) {
  ByteReader r(in);
  if (r.remaining() < 8 || r.be32() != kMagic) return std::nullopt;
  Hello h;
  h.version = r.be16();
  if (h.version != kProtocolVersion) return h;
  const std::uint8_t kind = r.u8();
  r.skip(1);
  if (in.size() < Hello::kSize || (kind != 1 && kind != 2)) return std::nullopt;
  h.kind = static_cast<Kind>(kind);
  h.slots = r.be16();
  h.messages = r.be16();
  h.immediate_bytes = r.be32();
  h.ring_bytes = r.be32();
  h.ring_rkey = r.be32();
  h.ring_addr = r.be64();
  if (!within_limits(h)) return std::nullopt;
  return h;
}

void encode(const Hello& h, std::span<std::uint8_t, Hello::kSize> out) {
  ByteWriter w(out);
  w.be32(kMagic);
  w.be16(h.version);
  w.u8(static_cast<std::uint8_t>(h.kind));
  w.u8(0);
  w.be16(h.slots);
  w.be16(h.messages);
  w.be32(h.immediate_bytes);
  w.be32(h.ring_bytes);
  w.be32(h.ring_rkey);
  w.be64(h.ring_addr);
  w.zeros(w.room());
}

std::optional<Reject> decode_reject(std::span<const std::uint8_t> in) {
  ByteReader r(in);
  if (in.size() < Reject::kSize || r.be32() != kMagic) return std::nullopt;
  Reject out;
  out.version = r.be16();
  out.reason = static_cast<Refusal>(r.u8());
  return out;
}

void encode(const Reject& reject, std::span<std::uint8_t, Reject::kSize> out) {
  ByteWriter w(out);
  w.be32(kMagic);
  w.be16(reject.version);
  w.u8(static_cast<std::uint8_t>(reject.reason));
  w.zeros(w.room());
}

const char* decode(std::span<const std::uint8_t> in, Message& out) {
  if (in.size() < Header::kSize) return "a message shorter than its header";
  ByteReader r(in);
  Header& h = out.header;
  const std::uint8_t type = r.u8();
  if (type < static_cast<std::uint8_t>(Type::kStart) ||
      type > static_cast<std::uint8_t>(Type::kFinished)) {
    return "a message of unknown type";
  }
  h.type = static_cast<Type>(type);
  h.flags = r.u8();
  h.segments = r.be16();
  h.length = r.be32();
  h.slots_returned = r.be32();
  h.messages_consumed = r.be32();
  h.ring_consumed = r.be64();
  h.seq = r.be64();
  h.aux = r.be32();
  r.skip(4);
  out.payload = {};
  if (carries_segments(h.type)) return decode_segments(r, out);
  if (h.segments != 0) return "memory segments where none belong";
  if (h.type == Type::kData) {
    if (r.remaining() != h.length) return "payload of another length";
    out.payload = r.rest();
    return nullptr;
  }
  return r.empty() ? nullptr : "bytes behind the message";
}

void encode(const Header& h, std::span<std::uint8_t, Header::kSize> out) {
  ByteWriter w(out);
  w.u8(static_cast<std::uint8_t>(h.type));
  w.u8(h.flags);
  w.be16(h.segments);
  w.be32(h.length);
  w.be32(h.slots_returned);
  w.be32(h.messages_consumed);
  w.be64(h.ring_consumed);
  w.be64(h.seq);
  w.be32(h.aux);
  w.be32(0);
  assert(w.room() == 0);
}

void encode(const Segment& s, std::span<std::uint8_t, Segment::kSize> out) {
  ByteWriter w(out);
  w.be64(s.addr);
  w.be32(s.rkey);
  w.be32(s.length);
  assert(w.room() == 0);
}

}  // namespace weft::exs
