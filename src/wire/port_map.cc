#include "wire/port_map.h"

#include <algorithm>
#include <array>

namespace weft {

namespace {

constexpr std::array<std::uint8_t, 8> kPortMapMagic = {'W', 'E', 'F', 'T', 'P', 'O', 'R', 'T'};
constexpr std::uint8_t kPortMapVersion = 1;
constexpr std::size_t kReservedBytes = 3;

}  // namespace

Result<PortMapMessage> decode_port_map(ByteReader& in) noexcept {
  if (in.remaining() < PortMapMessage::kSize) return fail(Error::kTruncated);
  ByteReader r = in;  // commit only on success
  if (!std::ranges::equal(r.bytes(kPortMapMagic.size()), kPortMapMagic)) {
    return fail(Error::kBadKey);
  }
  if (r.u8() != kPortMapVersion) return fail(Error::kBadRevision);
  const std::uint8_t kind = r.u8();
  PortMapMessage m;
  m.port = r.be16();
  const std::uint8_t device = r.u8();
  const auto reserved = r.bytes(kReservedBytes);
  m.nonce = r.be64();
  if (!std::ranges::all_of(reserved, [](std::uint8_t o) { return o == 0; })) {
    return fail(Error::kReservedBits);
  }
  if (kind != 1 && kind != 2) return fail(Error::kProtocol);
  m.kind = static_cast<PortMapKind>(kind);
  if (m.port == 0 || device > 1 || (m.kind == PortMapKind::kQuestion && device != 0)) {
    return fail(Error::kProtocol);
  }
  m.roce_like = device == 1;
  in = r;
  return m;
}

void encode(const PortMapMessage& m, ByteWriter& out) noexcept {
  out.bytes(kPortMapMagic);
  out.u8(kPortMapVersion);
  out.u8(static_cast<std::uint8_t>(m.kind));
  out.be16(m.port);
  out.u8(m.roce_like ? 1 : 0);
  for (std::size_t i = 0; i < kReservedBytes; ++i) out.u8(0);
  out.be64(m.nonce);
}

}  // namespace weft
