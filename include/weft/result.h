// The one error type of Weft and the Result that carries it.
//
// Pure values: no allocation, no I/O, any thread. Nothing in Weft throws; every fallible function
// returns Result<T> and says at its declaration which errors it gives and what the caller does.
#pragma once

#include <cstdint>
#include <string_view>
#include <tl/expected.hpp>

#pragma GCC visibility push(default)
namespace weft {

// Values are stable: they appear in logs and in compiled programs. Append, never renumber.
enum class Error : std::uint16_t {
  // Wire-level: what a peer sent could not be read. The connection ends; which Terminate, if any,
  // goes out is decided by the protocol core from the place where the error was found.
  kTruncated = 1,           // fewer bytes than the header needs; with a stream: read more
  kBadLength = 2,           // a length that the format or the operation does not allow
  kBadVersion = 3,          // DDP version is not 1
  kNotTagged = 4,           // T bit clear where a tagged segment was required
  kTagged = 5,              // T bit set where an untagged segment was required
  kBadKey = 6,              // MPA start-up key is not the one expected
  kBadRevision = 7,         // MPA revision that is not spoken here
  kPrivateDataTooLong = 8,  // MPA PD_Length above 512
  kReservedBits = 9,        // a reserved bit that must be zero is set
  kBadRdmapVersion = 10,    // RDMAP version is not 1
  kUnknownOpcode = 11,      // RDMAP opcode that is not assigned
  kUnknownAtomicOp = 12,    // atomic operation code that is not assigned
  kBadCrc = 13,             // FPDU checksum does not match
  kBadMarker = 14,          // marker and FPDU length disagree
  kProtocol = 15,           // any other violation of the protocol by the peer

  // API-level: nothing was changed by the call.
  kInvalidArgument = 32,  // the caller passed something that can never work
  kNoSpace = 33,          // a queue is full: back-pressure, reap completions and try again
  kBadState = 34,         // not allowed in the present state of the object
  kNotFound = 35,         // no such object, key, address or setting
  kPermission = 36,       // the rights needed are not there
  kNoMemory = 37,         // the allocation failed
  kLimitExceeded = 38,    // a documented limit would be passed
  kBusy = 39,             // still in use: release what depends on it first
  kUnsupported = 40,      // a feature this build or this peer does not have
  kBadTransition = 41,    // a state machine has no arrow for this event

  // Connection-level: the connection is gone or never came to be.
  kTimedOut = 64,        // a deadline passed
  kConnectionLost = 65,  // the transport died: reset, or closed in the middle of something
  kRefused = 66,         // the peer does not listen, or its application said no
  kAddressInUse = 67,    // the local address or port is taken
  kUnreachable = 68,     // no route to the peer
  kAborted = 69,         // ended by this side before it was finished
  kSystem = 70,          // the operating system refused; see system_error.h for its errno
  kNotConnected = 71,    // there is no connection to act on
};

// One short English phrase, without a full stop. The view is static and lives forever; a value
// outside the list gives "unknown error".
#pragma GCC visibility push(default)
[[nodiscard]] std::string_view describe(Error error) noexcept;
#pragma GCC visibility pop

template <class T>
using Result = tl::expected<T, Error>;

using Status = Result<void>;

// `return fail(Error::kBusy);` works in any function that returns a Result.
[[nodiscard]] inline constexpr tl::unexpected<Error> fail(Error error) noexcept {
  return tl::unexpected<Error>(error);
}

}  // namespace weft
#pragma GCC visibility pop
