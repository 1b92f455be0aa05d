// RDMAP control octet, the table of operations, and the headers of fixed length:
// RFC 5040 section 4, RFC 7306 sections 5 and 6.
//
// Inline for the data path: no allocation, no I/O, any thread. The load_ and store_ forms work on
// memory whose size the caller has checked; decode_ and encode check it.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "base/seq.h"
#include "wire/ddp.h"
#include "wire/limits.h"

namespace weft {

enum class Opcode : std::uint8_t {
  kWrite = 0x0,
  kReadRequest = 0x1,
  kReadResponse = 0x2,
  kSend = 0x3,
  kSendInvalidate = 0x4,
  kSendSolicited = 0x5,
  kSendSolicitedInvalidate = 0x6,
  kTerminate = 0x7,
  kImmediate = 0x8,
  kImmediateSolicited = 0x9,
  kAtomicRequest = 0xa,
  kAtomicResponse = 0xb,
};
inline constexpr std::size_t kOpcodeCount = 12;

// The rules of the RFCs for one operation.
struct OpcodeInfo {
  std::string_view name;
  std::uint16_t ulpdu_min;  // octets of ULPDU with the DDP header
  std::uint16_t ulpdu_max;
  std::uint8_t queue;  // untagged only, else kNoQueue
  bool tagged;
  bool must_be_last;        // one segment only: L = 1, MO = 0
  bool consumes_receive;    // takes a posted receive buffer at the target
  bool carries_invalidate;  // octets 2-5 are an STag to invalidate
  bool solicited;           // may raise the solicited notification at the target
};

inline constexpr std::uint8_t kNoQueue = 0xff;

// clang-format off
inline constexpr std::array<OpcodeInfo, kOpcodeCount> kOpcodeTable{{
    // name                     min  max    queue     tagged last   recv   inval  solicited
    {"Write",                   14,  65535, kNoQueue, true,  false, false, false, false},
    {"ReadRequest",             46,  46,    1,        false, true,  false, false, false},
    {"ReadResponse",            14,  65535, kNoQueue, true,  false, false, false, false},
    {"Send",                    18,  65535, 0,        false, false, true,  false, false},
    {"SendInvalidate",          18,  65535, 0,        false, false, true,  true,  false},
    {"SendSolicited",           18,  65535, 0,        false, false, true,  false, true},
    {"SendSolicitedInvalidate", 18,  65535, 0,        false, false, true,  true,  true},
    {"Terminate",               22,  70,    2,        false, true,  false, false, false},
    {"Immediate",               26,  26,    0,        false, true,  true,  false, false},
    {"ImmediateSolicited",      26,  26,    0,        false, true,  true,  false, true},
    {"AtomicRequest",           70,  70,    1,        false, true,  false, false, false},
    {"AtomicResponse",          30,  30,    3,        false, true,  false, false, false},
}};
// clang-format on

// REQUIRES: a value of the enumeration, as every decoder here gives.
[[nodiscard]] constexpr const OpcodeInfo& info(Opcode op) noexcept {
  return kOpcodeTable[static_cast<std::size_t>(op)];
}
[[nodiscard]] constexpr bool ulpdu_length_ok(Opcode op, std::uint32_t ulpdu_len) noexcept {
  return ulpdu_len >= info(op).ulpdu_min && ulpdu_len <= info(op).ulpdu_max;
}

// Control octet: version 01, two reserved bits (sent as zero, ignored), opcode.
inline constexpr std::uint8_t kRdmapVersionMask = 0xc0;
inline constexpr std::uint8_t kRdmapVersion = 0x40;
inline constexpr std::uint8_t kRdmapOpcodeMask = 0x0f;

[[nodiscard]] constexpr std::uint8_t rdmap_control(Opcode op) noexcept {
  return static_cast<std::uint8_t>(kRdmapVersion | static_cast<std::uint8_t>(op));
}

//   kBadRdmapVersion  RV is not 1: Terminate 0/2/05
//   kUnknownOpcode    c to f: Terminate 0/2/06
[[nodiscard]] inline Result<Opcode> decode_rdmap_control(std::uint8_t octet) noexcept {
  if ((octet & kRdmapVersionMask) != kRdmapVersion) return fail(Error::kBadRdmapVersion);
  const std::uint8_t op = octet & kRdmapOpcodeMask;
  if (op >= kOpcodeCount) return fail(Error::kUnknownOpcode);
  return static_cast<Opcode>(op);
}

// All that the first two octets of a ULPDU can be wrong about, in the order a receiver checks them:
// DDP version, RDMAP version, opcode known, T bit fits the opcode.
//
//   kBadVersion       Terminate 1/1/04 if peek_tagged(first), else 1/2/06
//   kBadRdmapVersion  Terminate 0/2/05
//   kUnknownOpcode    Terminate 0/2/06
//   kTagged           untagged operation with T = 1: Terminate 0/2/06
//   kNotTagged        tagged operation with T = 0: Terminate 0/2/06
[[nodiscard]] inline Result<Opcode> check_segment_control(std::uint8_t first,
                                                          std::uint8_t second) noexcept {
  if (!ddp_version_ok(first)) return fail(Error::kBadVersion);
  if ((second & kRdmapVersionMask) != kRdmapVersion) return fail(Error::kBadRdmapVersion);
  const std::uint8_t op = second & kRdmapOpcodeMask;
  if (op >= kOpcodeCount) return fail(Error::kUnknownOpcode);
  const bool tagged = peek_tagged(first);
  if (kOpcodeTable[op].tagged != tagged) return fail(tagged ? Error::kTagged : Error::kNotTagged);
  return static_cast<Opcode>(op);
}

// On streams of wired queue pairs (docs/personality.md), and never on those of iWARP: the two
// reserved bits of the control octet, and an operation of its own.
inline constexpr std::uint8_t kAskBit = 0x20;        // an Ack is wanted once this message is placed
inline constexpr std::uint8_t kImmediateBit = 0x10;  // of a Send: octets 2-5 are immediate data;
                                                     // of a Write: Immediate Data follows it
inline constexpr std::uint8_t kAckBits = 0x0c;       // the opcode of an Ack
inline constexpr std::uint8_t kAckControl = kRdmapVersion | kAckBits;

// Ack: a tagged segment of no payload. STag: 0; TO: how many messages with kAskBit are placed.
[[nodiscard]] inline bool is_ack(std::uint8_t first, std::uint8_t second) noexcept {
  return second == kAckControl && peek_tagged(first) && peek_last(first) && ddp_version_ok(first);
}

// Body of a Read Request, behind the untagged header. Size 0: source STag and TO are not checked.
struct ReadRequest {
  static constexpr std::size_t kSize = kReadRequestSize;

  Stag sink_stag{};           // where the requester wants the data: echoed, not interpreted
  std::uint64_t sink_to = 0;  // likewise
  std::uint32_t size = 0;     // octets to read
  Stag src_stag{};            // buffer at the responder
  std::uint64_t src_to = 0;   // offset in it

  bool operator==(const ReadRequest&) const = default;
};

[[nodiscard]] inline ReadRequest load_read_request(const std::uint8_t* p) noexcept {
  return {.sink_stag = Stag{load_be32(p)},
          .sink_to = load_be64(p + 4),
          .size = load_be32(p + 12),
          .src_stag = Stag{load_be32(p + 16)},
          .src_to = load_be64(p + 20)};
}
inline void store_read_request(const ReadRequest& h, std::uint8_t* p) noexcept {
  store_be32(p, h.sink_stag.value);
  store_be64(p + 4, h.sink_to);
  store_be32(p + 12, h.size);
  store_be32(p + 16, h.src_stag.value);
  store_be64(p + 20, h.src_to);
}

enum class AtomicOp : std::uint8_t { kFetchAdd = 0, kCompareSwap = 2 };

// Body of an Atomic Request, RFC 7306 section 5.
struct AtomicRequest {
  static constexpr std::size_t kSize = kAtomicRequestSize;

  AtomicOp op = AtomicOp::kFetchAdd;
  std::uint32_t request_id = 0;  // chosen by the requester, echoed in the response
  Stag stag{};                   // target; the memory address must be 8-aligned, not TO itself
  std::uint64_t to = 0;
  std::uint64_t add_swap = 0;       // what to add or to store
  std::uint64_t add_swap_mask = 0;  // FetchAdd: top bit of each field; CompareSwap: bits to store
  std::uint64_t compare = 0;        // FetchAdd: 0, ignored
  std::uint64_t compare_mask = ~std::uint64_t{0};  // bits compared; FetchAdd: all ones, ignored

  bool operator==(const AtomicRequest&) const = default;
};

// Body of an Atomic Response.
struct AtomicResponse {
  static constexpr std::size_t kSize = kAtomicResponseSize;

  std::uint32_t request_id = 0;
  std::uint64_t original = 0;  // the target before the operation

  bool operator==(const AtomicResponse&) const = default;
};

// The eight octets of immediate data as one big-endian number. The 32-bit immediate of verbs is
// the first four of them: value >> 32.
struct ImmediateData {
  static constexpr std::size_t kSize = kImmediateDataSize;

  std::uint64_t value = 0;

  bool operator==(const ImmediateData&) const = default;
};

// Each reads one body and leaves `in` behind it; on error `in` has not moved.
//
//   kTruncated        fewer than kSize octets remain
//   kUnknownAtomicOp  AOpCode other than 0 and 2: Terminate 0/2/06. The 28 bits above are ignored
[[nodiscard]] inline Result<ReadRequest> decode_read_request(ByteReader& in) noexcept {
  if (in.remaining() < ReadRequest::kSize) return fail(Error::kTruncated);
  return load_read_request(in.bytes(ReadRequest::kSize).data());
}

[[nodiscard]] inline Result<AtomicRequest> decode_atomic_request(ByteReader& in) noexcept {
  if (in.remaining() < AtomicRequest::kSize) return fail(Error::kTruncated);
  ByteReader r = in;  // commit only on success
  const std::uint32_t op = r.be32() & 0x0fU;
  if (op != static_cast<std::uint32_t>(AtomicOp::kFetchAdd) &&
      op != static_cast<std::uint32_t>(AtomicOp::kCompareSwap)) {
    return fail(Error::kUnknownAtomicOp);
  }
  AtomicRequest h;
  h.op = static_cast<AtomicOp>(op);
  h.request_id = r.be32();
  h.stag = Stag{r.be32()};
  h.to = r.be64();
  h.add_swap = r.be64();
  h.add_swap_mask = r.be64();
  h.compare = r.be64();
  h.compare_mask = r.be64();
  in = r;
  return h;
}

[[nodiscard]] inline Result<AtomicResponse> decode_atomic_response(ByteReader& in) noexcept {
  if (in.remaining() < AtomicResponse::kSize) return fail(Error::kTruncated);
  AtomicResponse h;
  h.request_id = in.be32();
  h.original = in.be64();
  return h;
}

[[nodiscard]] inline Result<ImmediateData> decode_immediate_data(ByteReader& in) noexcept {
  if (in.remaining() < ImmediateData::kSize) return fail(Error::kTruncated);
  return ImmediateData{in.be64()};
}

// Each appends exactly kSize octets. REQUIRES: room for them.
inline void encode(const ReadRequest& h, ByteWriter& out) noexcept {
  store_read_request(h, out.claim(ReadRequest::kSize));
}
inline void encode(const AtomicRequest& h, ByteWriter& out) noexcept {
  out.be32(static_cast<std::uint32_t>(h.op));
  out.be32(h.request_id);
  out.be32(h.stag.value);
  out.be64(h.to);
  out.be64(h.add_swap);
  out.be64(h.add_swap_mask);
  out.be64(h.compare);
  out.be64(h.compare_mask);
}
inline void encode(const AtomicResponse& h, ByteWriter& out) noexcept {
  out.be32(h.request_id);
  out.be64(h.original);
}
inline void encode(const ImmediateData& h, ByteWriter& out) noexcept { out.be64(h.value); }

// The value that an atomic leaves in the target, RFC 7306 section 5, as numbers of the target's own
// byte order. FetchAdd: each mask bit is the top bit of a field, carries out of a field are
// dropped.
[[nodiscard]] constexpr std::uint64_t fetch_add_result(std::uint64_t old, std::uint64_t add,
                                                       std::uint64_t mask) noexcept {
  return ((old & ~mask) + (add & ~mask)) ^ ((old ^ add) & mask);
}
[[nodiscard]] constexpr std::uint64_t compare_swap_result(std::uint64_t old, std::uint64_t compare,
                                                          std::uint64_t compare_mask,
                                                          std::uint64_t swap,
                                                          std::uint64_t swap_mask) noexcept {
  if (((old ^ compare) & compare_mask) != 0) return old;
  return (old & ~swap_mask) | (swap & swap_mask);
}
[[nodiscard]] constexpr std::uint64_t atomic_result(const AtomicRequest& r,
                                                    std::uint64_t old) noexcept {
  return r.op == AtomicOp::kFetchAdd
             ? fetch_add_result(old, r.add_swap, r.add_swap_mask)
             : compare_swap_result(old, r.compare, r.compare_mask, r.add_swap, r.add_swap_mask);
}

}  // namespace weft
