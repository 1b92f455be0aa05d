#include "wire/terminate.h"

#include <algorithm>
#include <cassert>

namespace weft {
namespace {

// Flag bits of octet 2 in RFC order, then as siw sends them.
constexpr std::uint8_t kLengthBit = 0x80;
constexpr std::uint8_t kDdpBit = 0x40;
constexpr std::uint8_t kRdmapBit = 0x20;
constexpr std::uint8_t kRfcFlags = kLengthBit | kDdpBit | kRdmapBit;
constexpr std::uint8_t kSiwLengthBit = 0x01;
constexpr std::uint8_t kSiwDdpBit = 0x02;
constexpr std::uint8_t kSiwRdmapBit = 0x04;
constexpr std::uint8_t kSiwFlags = kSiwLengthBit | kSiwDdpBit | kSiwRdmapBit;

constexpr std::size_t kSegmentLengthSize = 2;

// Without any flag only the first octet can tell, and for three values of it the code and the time
// of arrival. Every code siw can send and every registered code comes out right: siw's 1/2/06,
// 0/2/xx and 2/0/xx share their first octets with 2/1, 2/0 and 0/2 of the RFC.
TerminateLayout layout_of(std::uint8_t first, std::uint8_t code, std::uint8_t flags,
                          bool in_setup) {
  if ((flags & kRfcFlags) != 0) return TerminateLayout::kRfc;
  if ((flags & kSiwFlags) != 0) return TerminateLayout::kSiw;
  bool siw = false;
  if (first == 0x21) siw = true;
  if (first == 0x20) siw = !in_setup && (code == 0x05 || code == 0x06);
  if (first == 0x02) {
    siw = (code >= 0x02 && code <= 0x04) || (in_setup && (code == 0x06 || code == 0x07));
  }
  return siw ? TerminateLayout::kSiw : TerminateLayout::kRfc;
}

// siw's bits, moved to where the RFC has them.
std::uint8_t rfc_flags(std::uint8_t flags, TerminateLayout layout) {
  if (layout == TerminateLayout::kRfc) return flags & kRfcFlags;
  return static_cast<std::uint8_t>(((flags & kSiwLengthBit) != 0 ? kLengthBit : 0) |
                                   ((flags & kSiwDdpBit) != 0 ? kDdpBit : 0) |
                                   ((flags & kSiwRdmapBit) != 0 ? kRdmapBit : 0));
}

bool all_zero(std::span<const std::uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; });
}

// The offending DDP header, if it is whole and not just zeros. False leaves `t` without one.
bool take_ddp_header(ByteReader& in, Terminate& t) {
  if (in.empty()) return false;
  const std::size_t size = ddp_header_size(in.rest()[0]);
  if (in.remaining() < size) return false;
  const std::span<const std::uint8_t> header = in.bytes(size);
  if (all_zero(header)) return false;
  std::copy(header.begin(), header.end(), t.ddp_header.begin());
  return true;
}

// Finds the parts that the flags promise, as far as they are there. Whatever is missing ends the
// search: nothing behind it can be found reliably.
void take_attachments(ByteReader& in, std::uint8_t flags, Terminate& t) {
  if ((flags & (kLengthBit | kDdpBit)) == 0 || in.remaining() < kSegmentLengthSize) return;
  const std::uint16_t segment_length = in.be16();
  if ((flags & kLengthBit) != 0) {
    t.has_length = true;
    t.segment_length = segment_length;
  }
  if ((flags & kDdpBit) == 0) return;
  t.has_ddp = take_ddp_header(in, t);
  if (!t.has_ddp || peek_tagged(t.ddp_header[0]) || (flags & kRdmapBit) == 0) return;
  if (in.remaining() < ReadRequest::kSize || all_zero(in.rest().first(ReadRequest::kSize))) return;
  t.has_rdmap = true;
  t.read_request = load_read_request(in.rest().data());
}

}  // namespace

std::size_t Terminate::encoded_size() const noexcept {
  return kMinSize + (has_length || has_ddp ? kSegmentLengthSize : 0) + ddp_bytes().size() +
         (has_rdmap ? ReadRequest::kSize : 0);
}

void attach_ddp(Terminate& t, std::span<const std::uint8_t> ddp_header, std::uint16_t ulpdu_len) {
  assert(!ddp_header.empty() && ddp_header.size() >= ddp_header_size(ddp_header[0]));
  const std::size_t size = ddp_header_size(ddp_header[0]);
  t.has_length = true;
  t.segment_length = ulpdu_len;
  t.has_ddp = true;
  t.ddp_header.fill(0);
  std::copy_n(ddp_header.begin(), size, t.ddp_header.begin());
}

void attach_read_request(Terminate& t, const ReadRequest& request) {
  assert(t.has_ddp && !peek_tagged(t.ddp_header[0]));
  t.has_rdmap = true;
  t.read_request = request;
}

Result<DecodedTerminate> decode_terminate(ByteReader& in, bool in_setup) {
  if (in.remaining() < Terminate::kMinSize) return fail(Error::kTruncated);
  if (in.remaining() > Terminate::kMaxSize) return fail(Error::kBadLength);

  const std::uint8_t first = in.u8();
  const std::uint8_t code = in.u8();
  const std::uint8_t flags = in.u8();
  in.skip(1);  // reserved

  DecodedTerminate d;
  d.layout = layout_of(first, code, flags, in_setup);
  const auto high = static_cast<std::uint8_t>(first >> 4);
  const auto low = static_cast<std::uint8_t>(first & 0x0fU);
  const bool rfc = d.layout == TerminateLayout::kRfc;
  d.terminate.layer = rfc ? high : low;
  d.terminate.etype = rfc ? low : high;
  d.terminate.code = code;
  take_attachments(in, rfc_flags(flags, d.layout), d.terminate);
  in.skip(in.remaining());
  return d;
}

void encode(const Terminate& t, ByteWriter& out) {
  assert(t.layer < 16 && t.etype < 16);
  assert(!t.has_rdmap || (t.has_ddp && !peek_tagged(t.ddp_header[0])));
  assert(out.room() >= t.encoded_size());
  out.u8(static_cast<std::uint8_t>((t.layer << 4) | t.etype));
  out.u8(t.code);
  out.u8(static_cast<std::uint8_t>((t.has_length ? kLengthBit : 0) | (t.has_ddp ? kDdpBit : 0) |
                                   (t.has_rdmap ? kRdmapBit : 0)));
  out.u8(0);
  if (t.has_length || t.has_ddp) out.be16(t.has_length ? t.segment_length : std::uint16_t{0});
  out.bytes(t.ddp_bytes());
  if (t.has_rdmap) encode(t.read_request, out);
}

std::string_view describe(TerminateCode code) noexcept {
  struct Row {
    TerminateCode code;
    std::string_view text;
  };
  static constexpr Row kRows[] = {
      {term::kRdmapInvalidStag, "invalid STag"},
      {term::kRdmapBounds, "base or bounds violation"},
      {term::kRdmapAccess, "access rights violation"},
      {term::kRdmapStagNotOfStream, "STag not associated with this stream"},
      {term::kRdmapToWrap, "TO wrap"},
      {term::kRdmapCannotInvalidateProtection, "STag cannot be invalidated (protection)"},
      {term::kRdmapProtectionUnspecified, "unspecified remote protection error"},
      {term::kRdmapVersionError, "invalid RDMAP version"},
      {term::kRdmapUnexpectedOpcode, "unexpected opcode"},
      {term::kRdmapStreamCatastrophic, "catastrophic error of this stream"},
      {term::kRdmapGlobalCatastrophic, "catastrophic error, global"},
      {term::kRdmapCannotInvalidateOperation, "STag cannot be invalidated (operation)"},
      {term::kRdmapOperationUnspecified, "unspecified remote operation error"},
      {term::kDdpLocalCatastrophic, "DDP local catastrophic error"},
      {term::kDdpInvalidStag, "invalid STag"},
      {term::kDdpBounds, "base or bounds violation"},
      {term::kDdpStagNotOfStream, "STag not associated with this stream"},
      {term::kDdpToWrap, "TO wrap"},
      {term::kDdpTaggedVersion, "invalid DDP version, tagged"},
      {term::kDdpInvalidQueue, "invalid queue number"},
      {term::kDdpNoBuffer, "invalid MSN: no buffer available"},
      {term::kDdpMsnRange, "invalid MSN: out of range"},
      {term::kDdpInvalidMo, "invalid MO"},
      {term::kDdpTooLong, "message too long for the buffer"},
      {term::kDdpUntaggedVersion, "invalid DDP version, untagged"},
      {term::kMpaConnectionLost, "TCP connection lost"},
      {term::kMpaCrc, "CRC does not match"},
      {term::kMpaMarker, "marker and FPDU length disagree"},
      {term::kMpaBadStartup, "invalid MPA start-up frame"},
      {term::kMpaLocalCatastrophic, "local catastrophic error in set-up"},
      {term::kMpaInsufficientIrd, "insufficient IRD"},
      {term::kMpaNoMatchingRtr, "no matching RTR"},
  };
  if (code.layer == 0 && code.etype == 0) return "RDMAP local catastrophic error";
  if (code.layer == 1 && code.etype == 3) return "reserved for the layer below DDP";
  for (const Row& row : kRows) {
    if (row.code == code) return row.text;
  }
  return "unassigned";
}

}  // namespace weft
