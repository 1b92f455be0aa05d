// Every way a stream can go wrong, and the one place that says what follows: the Terminate we send,
// what is attached to it, and the asynchronous event here. RFC 5040 4.8, 5041 7, 5044 8, 6580.
#pragma once

#include <weft/types.h>

#include <cstdint>
#include <string_view>

#include "wire/terminate.h"

namespace weft::proto {

enum class Violation : std::uint8_t {
  kNone,
  // MPA
  kCrc,
  kMarker,
  kShortUlpdu,
  kInsufficientIrd,
  kNoMatchingRtr,
  // headers
  kDdpVersionTagged,
  kDdpVersionUntagged,
  kRdmapVersion,
  kUnknownOpcode,
  kTagMismatch,  // T bit does not fit the opcode
  kBadLength,    // ULPDU length, or L = 0, that the opcode does not allow
  // untagged
  kWrongQueue,
  kMsnRange,
  kNoReceive,  // queue 0: no receive posted
  kNoSlot,     // queue 1: more than IRD requests; queue 2: a second Terminate
  kBadMo,
  kMessageTooLong,
  kUnaskedAtomicResponse,
  kUnaskedAck,  // of a message that was not sent
  // tagged
  kWriteStag,
  kWriteStream,
  kWriteRight,
  kWriteWrap,
  kWriteBounds,
  kWriteOtherStag,  // not a continuation of the open message
  kWriteOtherTo,
  kUnaskedReadResponse,
  kReadResponseStag,
  kReadResponseTo,
  kReadResponseLength,
  kReadSinkGone,  // the sink was deregistered meanwhile
  // Read and Atomic Requests
  kReadStag,
  kReadStream,
  kReadRight,
  kReadWrap,
  kReadBounds,
  kAtomicMisaligned,
  kAtomicUnknown,
  // Between queue pairs connected out of band, with the statuses of InfiniBand
  kAtomicMisalignedRoce,
  kNotServed,  // the queue pair itself gives the peer no such right
  // invalidation
  kInvalidateProtection,
  kInvalidateOperation,
  // our own side
  kReceiveProtection,  // an SGE of a posted receive is not valid
  kSendProtection,     // an SGE of a send-side request is not valid
  kLocalFault,         // memory went away under us, or the CQ overflowed
};

// The parts of the offending segment that a Terminate carries (RFC 5040 figure 10).
enum class Attach : std::uint8_t { kNothing, kDdp, kDdpAndRead };

// How a mistake of the peer, or a failure of our own, is answered.
struct Consequence {
  std::string_view name;  // for logs
  TerminateCode code;
  Attach attach;
  AsyncEventType event;
};
[[nodiscard]] const Consequence& consequence_of(Violation v) noexcept;

// Status of the work request that a received Terminate names (or the oldest unfinished one).
// `queue` is that of the attached DDP header, if there is one.
[[nodiscard]] WcStatus status_of_terminate(TerminateCode code, std::uint32_t queue) noexcept;

// layer << 16 | etype << 8 | code, for WorkCompletion::vendor_error.
[[nodiscard]] constexpr std::uint32_t vendor_error(TerminateCode c) noexcept {
  return std::uint32_t{c.layer} << 16U | std::uint32_t{c.etype} << 8U | c.code;
}

}  // namespace weft::proto
