#include "roce/cm_header.h"

#include <algorithm>
#include <cassert>

namespace weft::roce {

namespace {

constexpr std::array<std::uint8_t, 8> kCmMagic = {'W', 'E', 'F', 'T', 'R', 'D', 'C', 'M'};
constexpr std::uint8_t kCmVersion = 1;
constexpr std::uint8_t kSharedQueueFlag = 0x01;
constexpr std::uint8_t kRetriesMax = 7;
constexpr std::uint32_t k24Bits = 0xff'ffff;

bool fields_in_range(const CmHeader& h) noexcept {
  return h.retry_count <= kRetriesMax && h.rnr_retry <= kRetriesMax && h.number <= k24Bits &&
         h.psn <= k24Bits;
}

}  // namespace

Result<CmHeader> decode_cm_header(ByteReader& in) noexcept {
  if (in.remaining() < CmHeader::kSize) return fail(Error::kTruncated);
  ByteReader r = in;  // commit only on success
  if (!std::ranges::equal(r.bytes(kCmMagic.size()), kCmMagic)) return fail(Error::kBadKey);
  if (r.u8() != kCmVersion) return fail(Error::kBadRevision);
  const std::uint8_t flags = r.u8();
  CmHeader h;
  h.shared_queue = (flags & kSharedQueueFlag) != 0;
  h.retry_count = r.u8();
  h.rnr_retry = r.u8();
  std::ranges::copy(r.bytes(h.gid.size()), h.gid.begin());
  h.number = r.be32();
  h.psn = r.be32();
  if ((flags & ~kSharedQueueFlag) != 0 || r.be32() != 0) return fail(Error::kReservedBits);
  if (!fields_in_range(h)) return fail(Error::kProtocol);
  in = r;
  return h;
}

void encode(const CmHeader& h, ByteWriter& out) noexcept {
  assert(fields_in_range(h));
  out.bytes(kCmMagic);
  out.u8(kCmVersion);
  out.u8(h.shared_queue ? kSharedQueueFlag : 0);
  out.u8(h.retry_count);
  out.u8(h.rnr_retry);
  out.bytes(h.gid);
  out.be32(h.number);
  out.be32(h.psn);
  out.be32(0);
}

}  // namespace weft::roce
