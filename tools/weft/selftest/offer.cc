#include "weft/selftest/offer.h"

#include <algorithm>
#include <string_view>

namespace weft::selftest {
namespace {

using raw::Bytes;
using raw::View;
using raw::operator+=;

constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kWishBytes = 11, kOfferBytes = 86, kCommandBytes = 29, kReportBytes = 37;

Bytes begin(std::string_view magic) { return raw::text(magic); }

// True if `bytes` is such a message: its magic and its length.
bool is(View bytes, std::string_view magic, std::size_t length) {
  const Bytes expected = begin(magic);
  return bytes.size() == length && std::equal(expected.begin(), expected.end(), bytes.begin());
}

void put(Bytes& out, const Buffer& buffer) {
  raw::put32(out, buffer.stag);
  raw::put64(out, buffer.to);
}

class Reader {
 public:
  explicit Reader(View bytes) : bytes_(bytes), at_(kMagicBytes) {}
  std::uint8_t u8() { return bytes_[at_++]; }
  std::uint16_t u16() { return raw::get16(bytes_, step(2)); }
  std::uint32_t u32() { return raw::get32(bytes_, step(4)); }
  std::uint64_t u64() { return raw::get64(bytes_, step(8)); }
  Buffer buffer() {
    Buffer out;
    out.stag = u32();
    out.to = u64();
    return out;
  }

 private:
  std::size_t step(std::size_t count) {
    const std::size_t here = at_;
    at_ += count;
    return here;
  }
  View bytes_;
  std::size_t at_;
};

}  // namespace

Bytes encode(const Wish& wish) {
  Bytes out = begin("weftwish");
  out.push_back(static_cast<std::uint8_t>(wish.kind));
  raw::put16(out, wish.size);
  return out;
}

std::optional<Wish> decode_wish(View bytes) {
  if (!is(bytes, "weftwish", kWishBytes)) return std::nullopt;
  Reader in(bytes);
  const std::uint8_t kind = in.u8();
  if (kind > static_cast<std::uint8_t>(WishKind::kNoReceives)) return std::nullopt;
  return Wish{static_cast<WishKind>(kind), in.u16()};
}

Bytes encode(const Offer& offer) {
  Bytes out = begin("weftself");
  for (const Buffer& buffer : {offer.region, offer.read_only, offer.write_only, offer.foreign,
                               offer.revoked, offer.spare}) {
    put(out, buffer);
  }
  raw::put16(out, offer.private_bytes);
  raw::put32(out, offer.private_crc);
  return out;
}

std::optional<Offer> decode_offer(View bytes) {
  if (!is(bytes, "weftself", kOfferBytes)) return std::nullopt;
  Reader in(bytes);
  Offer offer;
  for (Buffer* buffer : {&offer.region, &offer.read_only, &offer.write_only, &offer.foreign,
                         &offer.revoked, &offer.spare}) {
    *buffer = in.buffer();
  }
  offer.private_bytes = in.u16();
  offer.private_crc = in.u32();
  return offer;
}

Bytes encode(const Command& command) {
  Bytes out = begin("weft do:");
  out.push_back(static_cast<std::uint8_t>(command.kind));
  raw::put32(out, command.size);
  raw::put32(out, command.count);
  put(out, command.target);
  return out;
}

std::optional<Command> decode_command(View bytes) {
  if (!is(bytes, "weft do:", kCommandBytes)) return std::nullopt;
  Reader in(bytes);
  const std::uint8_t kind = in.u8();
  if (kind > static_cast<std::uint8_t>(CommandKind::kDisconnect)) return std::nullopt;
  Command command;
  command.kind = static_cast<CommandKind>(kind);
  command.size = in.u32();
  command.count = in.u32();
  command.target = in.buffer();
  return command;
}

Bytes encode(const Report& report) {
  Bytes out = begin("weftdone");
  out.push_back(report.flags);
  raw::put32(out, report.bytes);
  raw::put32(out, report.crc);
  raw::put32(out, report.invalidated);
  raw::put64(out, report.immediate);
  raw::put32(out, report.damage);
  raw::put32(out, report.connections);
  return out;
}

std::optional<Report> decode_report(View bytes) {
  if (!is(bytes, "weftdone", kReportBytes)) return std::nullopt;
  Reader in(bytes);
  Report report;
  report.flags = in.u8();
  report.bytes = in.u32();
  report.crc = in.u32();
  report.invalidated = in.u32();
  report.immediate = in.u64();
  report.damage = in.u32();
  report.connections = in.u32();
  return report;
}

}  // namespace weft::selftest
