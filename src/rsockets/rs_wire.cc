#include "rsockets/rs_wire.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bytes.h"

namespace weft::rsockets {
namespace {

constexpr std::uint8_t kBigEndian = 1U << 0U;
constexpr std::uint8_t kIomapValid = 1U << 1U;
// Free in rsockets' format; a peer that sets it counts IOMAP messages as read.
constexpr std::uint8_t kFromWeft = 1U << 7U;
constexpr std::uint8_t kHostOrder = std::endian::native == std::endian::big ? kBigEndian : 0;

constexpr std::uint32_t kOpShift = 29;
constexpr std::uint32_t kOpData = 0;
constexpr std::uint32_t kOpCredit = 4;
constexpr std::uint32_t kOpIomap = 6;
constexpr std::uint32_t kOpControl = 7;
constexpr std::uint32_t kControlDisconnect = 0;
constexpr std::uint32_t kControlShutdown = 2;

constexpr std::uint32_t kScale = 8;  // of counts above 128
constexpr std::uint32_t kUnscaledMax = 128;

std::uint8_t scale(std::uint16_t count) {
  return static_cast<std::uint8_t>(count <= kUnscaledMax ? count
                                                         : kUnscaledMax + (count >> kScale));
}

std::uint16_t unscale(std::uint8_t value) {
  return static_cast<std::uint16_t>(value <= kUnscaledMax ? value : (value & 127U) << kScale);
}

void put_be(ByteWriter& out, const RsSge& sge) {
  out.be64(sge.addr);
  out.be32(sge.key);
  out.be32(sge.length);
}

RsSge take_be(ByteReader& in) {
  RsSge sge;
  sge.addr = in.be64();
  sge.key = in.be32();
  sge.length = in.be32();
  return sge;
}

}  // namespace

RsSge load_sge(const std::uint8_t* at) {
  RsSge sge;
  std::memcpy(&sge.addr, at, 8);
  std::memcpy(&sge.key, at + 8, 4);
  std::memcpy(&sge.length, at + 12, 4);
  return sge;
}

void store_sge(std::uint8_t* at, const RsSge& sge) {
  std::memcpy(at, &sge.addr, 8);
  std::memcpy(at + 8, &sge.key, 4);
  std::memcpy(at + 12, &sge.length, 4);
}

RsIomap load_iomap(const std::uint8_t* at) {
  RsIomap entry;
  std::memcpy(&entry.offset, at, 8);
  entry.sge = load_sge(at + 8);
  return entry;
}

void store_iomap(std::uint8_t* at, const RsIomap& entry) {
  std::memcpy(at, &entry.offset, 8);
  store_sge(at + 8, entry.sge);
}

void encode(const RsConnect& value, std::span<std::uint8_t, RsConnect::kSize> out) {
  ByteWriter w(out);
  w.u8(RsConnect::kVersion);
  w.u8(static_cast<std::uint8_t>(kHostOrder | kIomapValid | (value.from_weft ? kFromWeft : 0)));
  w.be16(value.credits);
  w.u8(0);
  w.u8(0);
  w.u8(0);
  w.u8(scale(value.iomap_count));
  put_be(w, value.target_sgl);
  put_be(w, value.data_buffer);
}

Result<RsConnect> decode_connect(std::span<const std::uint8_t> in) {
  if (in.size() < RsConnect::kSize) return fail(Error::kTruncated);
  ByteReader r(in);
  if (r.u8() != RsConnect::kVersion) return fail(Error::kBadVersion);
  const std::uint8_t flags = r.u8();
  if ((flags & kBigEndian) != kHostOrder) return fail(Error::kUnsupported);
  RsConnect value;
  value.from_weft = (flags & kFromWeft) != 0;
  value.credits = r.be16();
  r.skip(3);
  const std::uint8_t iomap = r.u8();
  value.iomap_count = (flags & kIomapValid) != 0 ? unscale(iomap) : 0;
  value.target_sgl = take_be(r);
  value.data_buffer = take_be(r);
  constexpr std::uint32_t kSglMax = 1U << 16U;
  if (value.credits == 0 || value.target_sgl.length == 0 || value.target_sgl.length > kSglMax) {
    return fail(Error::kBadLength);
  }
  return value;
}

std::uint16_t round_iomap_count(std::uint32_t wanted) {
  if (wanted <= kUnscaledMax) return static_cast<std::uint16_t>(wanted);
  const std::uint32_t units = std::min<std::uint32_t>((wanted + 255) >> kScale, 127);
  return static_cast<std::uint16_t>(units << kScale);
}

std::array<std::uint8_t, RsMessage::kSize> encode(const RsMessage& message) {
  std::uint32_t word = 0;
  switch (message.op) {
    case RsOp::kData: word = kOpData << kOpShift | message.data; break;
    case RsOp::kCredit: word = kOpCredit << kOpShift | message.data; break;
    case RsOp::kIomap: word = kOpIomap << kOpShift | message.data; break;
    case RsOp::kDisconnect: word = kOpControl << kOpShift | kControlDisconnect; break;
    case RsOp::kShutdown: word = kOpControl << kOpShift | kControlShutdown; break;
  }
  std::array<std::uint8_t, RsMessage::kSize> out;
  std::memcpy(out.data(), &word, sizeof word);  // host order: so rdma-core sends it over iWARP
  return out;
}

std::optional<RsMessage> decode_message(std::span<const std::uint8_t, 4> in) {
  std::uint32_t word = 0;
  std::memcpy(&word, in.data(), sizeof word);
  const std::uint32_t data = word & RsMessage::kMaxData;
  switch (word >> kOpShift) {
    case kOpData: return RsMessage{RsOp::kData, data};
    case kOpCredit: return RsMessage{RsOp::kCredit, data};
    case kOpIomap: return RsMessage{RsOp::kIomap, data};
    case kOpControl:
      if (data == kControlDisconnect) return RsMessage{RsOp::kDisconnect, 0};
      if (data == kControlShutdown) return RsMessage{RsOp::kShutdown, 0};
      return std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace weft::rsockets
