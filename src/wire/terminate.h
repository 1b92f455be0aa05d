// Body of a Terminate message: RFC 5040 section 4.8, RFC 6581 section 8, RFC 6580.
//
// Pure functions over bytes: no allocation, no I/O, no clock, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/limits.h"
#include "wire/rdmap.h"

namespace weft {

// Layer, type and code of an error: "1/2/05". Any value can arrive; the named ones are the
// registry.
struct TerminateCode {
  std::uint8_t layer = 0;  // 4 bits: 0 RDMAP, 1 DDP, 2 LLP (MPA)
  std::uint8_t etype = 0;  // 4 bits, meaning depends on the layer
  std::uint8_t code = 0;

  constexpr bool operator==(const TerminateCode&) const = default;
};

namespace term {

inline constexpr TerminateCode kRdmapLocalCatastrophic{0, 0, 0x00};
inline constexpr TerminateCode kRdmapInvalidStag{0, 1, 0x00};
inline constexpr TerminateCode kRdmapBounds{0, 1, 0x01};
inline constexpr TerminateCode kRdmapAccess{0, 1, 0x02};
inline constexpr TerminateCode kRdmapStagNotOfStream{0, 1, 0x03};
inline constexpr TerminateCode kRdmapToWrap{0, 1, 0x04};
inline constexpr TerminateCode kRdmapCannotInvalidateProtection{0, 1, 0x09};
inline constexpr TerminateCode kRdmapProtectionUnspecified{0, 1, 0xff};
inline constexpr TerminateCode kRdmapVersionError{0, 2, 0x05};
inline constexpr TerminateCode kRdmapUnexpectedOpcode{0, 2, 0x06};
inline constexpr TerminateCode kRdmapStreamCatastrophic{0, 2, 0x07};
inline constexpr TerminateCode kRdmapGlobalCatastrophic{0, 2, 0x08};
inline constexpr TerminateCode kRdmapCannotInvalidateOperation{0, 2, 0x09};
inline constexpr TerminateCode kRdmapOperationUnspecified{0, 2, 0xff};
inline constexpr TerminateCode kDdpLocalCatastrophic{1, 0, 0x00};
inline constexpr TerminateCode kDdpInvalidStag{1, 1, 0x00};
inline constexpr TerminateCode kDdpBounds{1, 1, 0x01};
inline constexpr TerminateCode kDdpStagNotOfStream{1, 1, 0x02};
inline constexpr TerminateCode kDdpToWrap{1, 1, 0x03};
inline constexpr TerminateCode kDdpTaggedVersion{1, 1, 0x04};
inline constexpr TerminateCode kDdpInvalidQueue{1, 2, 0x01};
inline constexpr TerminateCode kDdpNoBuffer{1, 2, 0x02};
inline constexpr TerminateCode kDdpMsnRange{1, 2, 0x03};
inline constexpr TerminateCode kDdpInvalidMo{1, 2, 0x04};
inline constexpr TerminateCode kDdpTooLong{1, 2, 0x05};
inline constexpr TerminateCode kDdpUntaggedVersion{1, 2, 0x06};
inline constexpr TerminateCode kMpaConnectionLost{2, 0, 0x01};
inline constexpr TerminateCode kMpaCrc{2, 0, 0x02};
inline constexpr TerminateCode kMpaMarker{2, 0, 0x03};
inline constexpr TerminateCode kMpaBadStartup{2, 0, 0x04};
inline constexpr TerminateCode kMpaLocalCatastrophic{2, 0, 0x05};
inline constexpr TerminateCode kMpaInsufficientIrd{2, 0, 0x06};
inline constexpr TerminateCode kMpaNoMatchingRtr{2, 0, 0x07};

}  // namespace term

// A registered code in a few words, else "unassigned". The view is static.
[[nodiscard]] std::string_view describe(TerminateCode code) noexcept;

// How the control octets were laid out: by the RFC, or with nibbles and flag bits the other way
// round, as Linux siw sends them from little-endian hosts.
enum class TerminateLayout : std::uint8_t { kRfc, kSiw };

// The content of a Terminate. After decoding, the has_ flags tell what is really there, whatever
// the flag bits promised: headers that were missing, cut short or zero-filled are absent.
struct Terminate {
  static constexpr std::size_t kMinSize = kMinTerminateSize;
  static constexpr std::size_t kMaxSize = kMaxTerminateSize;

  std::uint8_t layer = 0;
  std::uint8_t etype = 0;
  std::uint8_t code = 0;
  bool has_length = false;           // M: segment_length is valid
  bool has_ddp = false;              // D: ddp_header holds the offending DDP header
  bool has_rdmap = false;            // R: read_request holds the offending Read Request
  std::uint16_t segment_length = 0;  // ULPDU_Length of the offending FPDU; siw: payload only
  std::array<std::uint8_t, kMaxDdpHeaderSize> ddp_header{};  // 14 or 18 octets as received
  ReadRequest read_request{};

  [[nodiscard]] TerminateCode reason() const noexcept { return {layer, etype, code}; }

  // The offending header's octets, empty if has_ddp is false. Nothing in it has been checked.
  [[nodiscard]] std::span<const std::uint8_t> ddp_bytes() const noexcept {
    if (!has_ddp) return {};
    return {ddp_header.data(), ddp_header_size(ddp_header[0])};
  }
  [[nodiscard]] std::size_t encoded_size() const noexcept;

  bool operator==(const Terminate&) const = default;
};

[[nodiscard]] inline Terminate make_terminate(TerminateCode reason) noexcept {
  Terminate t;
  t.layer = reason.layer;
  t.etype = reason.etype;
  t.code = reason.code;
  return t;
}

// Fills M and D from the first octets of an offending ULPDU of `ulpdu_len` octets. REQUIRES: the
// header its first octet announces is whole.
void attach_ddp(Terminate& t, std::span<const std::uint8_t> ddp_header, std::uint16_t ulpdu_len);

// Fills R as well. REQUIRES: attach_ddp with the untagged header of that Read Request came first.
void attach_read_request(Terminate& t, const ReadRequest& request);

struct DecodedTerminate {
  Terminate terminate{};
  TerminateLayout layout = TerminateLayout::kRfc;
};

// Reads the body, all of `in`: the payload of the one untagged segment on queue 2. On error `in`
// has not moved. `in_setup`: no FPDU of the peer has been accepted before this one; it settles the
// few octets that mean different things in the two layouts.
//
//   kTruncated   fewer than 4 octets
//   kBadLength   more than 52 octets
// Neither is answered: the stream ends as by an unreadable Terminate.
[[nodiscard]] Result<DecodedTerminate> decode_terminate(ByteReader& in, bool in_setup);

// Appends exactly t.encoded_size() octets in RFC order. REQUIRES: room for them; layer and etype
// below 16; R only together with D and an untagged header.
void encode(const Terminate& t, ByteWriter& out);

}  // namespace weft
