#include "roce/datagram.h"

#include <algorithm>
#include <cassert>

#include "roce/qp_number.h"

namespace weft::roce {

namespace {

constexpr std::array<std::uint8_t, 4> kDatagramMagic = {'W', 'F', 'U', 'D'};
constexpr std::uint8_t kDatagramVersion = 1;
constexpr std::uint8_t kImmediateFlag = 0x01;
constexpr std::uint8_t kSolicitedFlag = 0x02;

constexpr std::size_t kV4InGid = 12;
constexpr std::uint8_t kV4Version = 0x45;  // and five words of header
constexpr std::uint8_t kV6Version = 0x60;
constexpr std::uint8_t kV6VersionMask = 0xf0;
constexpr std::uint8_t kUdp = 17;

constexpr std::size_t kV4TosAt = 1;
constexpr std::size_t kV4LengthAt = 2, kV4TtlAt = 8, kV4ProtocolAt = 9, kV4ChecksumAt = 10;
constexpr std::size_t kV4FromAt = 12, kV4ToAt = 16;
constexpr std::size_t kV6LengthAt = 4, kV6NextAt = 6, kV6HopsAt = 7, kV6FromAt = 8, kV6ToAt = 24;

// RFC 1071. 0 over a header with a good one.
std::uint16_t checksum(std::span<const std::uint8_t> octets) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < octets.size(); i += 2) sum += load_be16(&octets[i]);
  while (sum >> 16U != 0) sum = (sum & 0xffffU) + (sum >> 16U);
  return static_cast<std::uint16_t>(~sum);
}

Gid gid_at(const std::uint8_t* octets) {
  Gid gid;
  std::copy_n(octets, gid.size(), gid.begin());
  return gid;
}

Gid gid_of_v4(const std::uint8_t* octets) {
  Gid gid{};
  gid[10] = gid[11] = 0xff;
  std::copy_n(octets, gid.size() - kV4InGid, gid.begin() + kV4InGid);
  return gid;
}

}  // namespace

Result<Datagram> decode_datagram(ByteReader& in) noexcept {
  if (in.remaining() < Datagram::kSize) return fail(Error::kTruncated);
  ByteReader r = in;  // commit only on success
  if (!std::ranges::equal(r.bytes(kDatagramMagic.size()), kDatagramMagic))
    return fail(Error::kBadKey);
  if (r.u8() != kDatagramVersion) return fail(Error::kBadRevision);
  const std::uint8_t flags = r.u8();
  const std::uint16_t reserved = r.be16();
  if ((flags & ~(kImmediateFlag | kSolicitedFlag)) != 0 || reserved != 0) {
    return fail(Error::kReservedBits);
  }
  Datagram h;
  h.with_immediate = (flags & kImmediateFlag) != 0;
  h.solicited = (flags & kSolicitedFlag) != 0;
  h.from = r.be32();
  h.to = r.be32();
  h.key = r.be32();
  h.immediate = r.be32();
  if (!h.with_immediate && h.immediate != 0) return fail(Error::kReservedBits);
  if (!is_number(h.from) || !is_number(h.to)) return fail(Error::kProtocol);
  in = r;
  return h;
}

void encode(const Datagram& h, ByteWriter& out) noexcept {
  assert(is_number(h.from) && is_number(h.to));
  out.bytes(kDatagramMagic);
  out.u8(kDatagramVersion);
  out.u8(static_cast<std::uint8_t>((h.with_immediate ? kImmediateFlag : 0) |
                                   (h.solicited ? kSolicitedFlag : 0)));
  out.be16(0);
  out.be32(h.from);
  out.be32(h.to);
  out.be32(h.key);
  out.be32(h.with_immediate ? h.immediate : 0);
}

bool is_ipv4(const Gid& gid) noexcept {
  return std::all_of(gid.begin(), gid.begin() + 10, [](std::uint8_t o) { return o == 0; }) &&
         gid[10] == 0xff && gid[11] == 0xff;
}

std::array<std::uint8_t, kGrhSize> encode_grh(const Grh& grh) noexcept {
  std::array<std::uint8_t, kGrhSize> out{};
  if (!is_ipv4(grh.from) || !is_ipv4(grh.to)) {
    store_be16(out.data(), static_cast<std::uint16_t>(kV6Version << 8U | grh.traffic_class << 4U));
    store_be16(&out[kV6LengthAt], grh.payload);
    out[kV6NextAt] = kUdp;
    out[kV6HopsAt] = grh.hop_limit;
    std::ranges::copy(grh.from, out.begin() + kV6FromAt);
    std::ranges::copy(grh.to, out.begin() + kV6ToAt);
    return out;
  }
  std::uint8_t* const header = out.data() + kGrhSize - kGrhSizeIpv4;
  header[0] = kV4Version;
  header[kV4TosAt] = grh.traffic_class;
  constexpr std::uint16_t kPayloadMax = 0xffff - kGrhSizeIpv4;
  store_be16(header + kV4LengthAt,
             static_cast<std::uint16_t>(std::min(grh.payload, kPayloadMax) + kGrhSizeIpv4));
  header[kV4TtlAt] = grh.hop_limit;
  header[kV4ProtocolAt] = kUdp;
  std::copy_n(grh.from.begin() + kV4InGid, grh.from.size() - kV4InGid, header + kV4FromAt);
  std::copy_n(grh.to.begin() + kV4InGid, grh.to.size() - kV4InGid, header + kV4ToAt);
  store_be16(header + kV4ChecksumAt, checksum({header, kGrhSizeIpv4}));
  return out;
}

Result<Grh> decode_grh(std::span<const std::uint8_t> octets) noexcept {
  if (octets.size() < kGrhSize) return fail(Error::kTruncated);
  const auto v4 = octets.subspan(kGrhSize - kGrhSizeIpv4, kGrhSizeIpv4);
  Grh grh;
  // The octets before an IPv4 header are anybody's, so they may look like IPv6.
  if (v4[0] == kV4Version && checksum(v4) == 0) {
    const std::uint16_t length = load_be16(&v4[kV4LengthAt]);
    if (length < kGrhSizeIpv4) return fail(Error::kBadVersion);
    grh.payload = static_cast<std::uint16_t>(length - kGrhSizeIpv4);
    grh.traffic_class = v4[kV4TosAt];
    grh.hop_limit = v4[kV4TtlAt];
    grh.from = gid_of_v4(&v4[kV4FromAt]);
    grh.to = gid_of_v4(&v4[kV4ToAt]);
    return grh;
  }
  if ((octets[0] & kV6VersionMask) != kV6Version) return fail(Error::kBadVersion);
  grh.payload = load_be16(&octets[kV6LengthAt]);
  grh.traffic_class = static_cast<std::uint8_t>(load_be16(octets.data()) >> 4U);
  grh.hop_limit = octets[kV6HopsAt];
  grh.from = gid_at(&octets[kV6FromAt]);
  grh.to = gid_at(&octets[kV6ToAt]);
  return grh;
}

}  // namespace weft::roce
