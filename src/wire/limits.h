// Numbers of the wire, each with its unit. Sizes are octets unless a name says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// MPA start-up, RFC 5044 section 7.1 and RFC 6581.
inline constexpr std::size_t kMpaFrameSize = 20;     // before the private data
inline constexpr std::size_t kMaxPrivateData = 512;  // with the enhanced words in it
inline constexpr std::size_t kEnhancedWordsSize = 4;
inline constexpr std::size_t kSafePrivateData = 251;  // application data every known peer takes
inline constexpr std::uint16_t kIrdOrdNotNegotiated = 0x3fff;
inline constexpr std::uint16_t kMaxIrdOrd = 0x3ffe;  // largest that means a number of reads

// FPDU, RFC 5044 section 4.
inline constexpr std::size_t kFpduLengthSize = 2;
inline constexpr std::size_t kCrcSize = 4;
inline constexpr std::size_t kMaxPad = 3;
inline constexpr std::size_t kMarkerSize = 4;
inline constexpr std::size_t kMarkerInterval = 512;        // counted with the markers themselves
inline constexpr std::uint32_t kMaxUlpdu = 64768;          // what we send
inline constexpr std::uint32_t kMaxUlpduAccepted = 65535;  // what a peer may send
inline constexpr std::uint32_t kMinMulpdu = 128;

// The mark by which Weft peers recognize each other: the TO of zero-length operations, which
// receivers do not check.
inline constexpr std::uint64_t kPeerMark = 0x5745'4654'0000'0001;

// DDP and RDMAP headers, RFC 5041 section 4, RFC 5040 section 4, RFC 7306.
inline constexpr std::size_t kDdpTaggedSize = 14;
inline constexpr std::size_t kDdpUntaggedSize = 18;
inline constexpr std::size_t kMaxDdpHeaderSize = 18;
inline constexpr std::size_t kReadRequestSize = 28;
inline constexpr std::size_t kAtomicRequestSize = 52;
inline constexpr std::size_t kAtomicResponseSize = 12;
inline constexpr std::size_t kImmediateDataSize = 8;
inline constexpr std::size_t kMinTerminateSize = 4;   // without its own DDP header
inline constexpr std::size_t kMaxTerminateSize = 52;  // likewise
inline constexpr std::uint32_t kMaxMessage = 0xffffffff;

static_assert(kMarkerInterval % 4 == 0 && kMarkerSize == 4, "markers keep every field 4-aligned");
static_assert(kMaxUlpdu + kFpduLengthSize + kMaxPad +
                      kMarkerSize * (kMaxUlpdu / (kMarkerInterval - kMarkerSize) + 2) <=
                  0xffff,
              "a FPDUPTR can always reach back to the length field");
static_assert(kDdpUntaggedSize + kAtomicRequestSize <= kMinMulpdu &&
                  kDdpUntaggedSize + kMaxTerminateSize <= kMinMulpdu,
              "operations of fixed length always fit one segment");
static_assert(kMaxTerminateSize == kMinTerminateSize + 2 + kDdpUntaggedSize + kReadRequestSize);
static_assert(kSafePrivateData + kEnhancedWordsSize <= kMaxPrivateData);

}  // namespace weft
