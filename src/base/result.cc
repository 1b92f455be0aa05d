#include "base/result.h"

#include <weft/system_error.h>

#include <cerrno>

namespace weft {
namespace {

// Those that a user of Weft can do something about.
std::string_view describe_errno(int number) noexcept {
  switch (number) {
    case EMFILE:
      return "out of file descriptors (EMFILE): raise this process's limit, see ulimit -n";
    case ENFILE:
      return "the machine is out of file descriptors (ENFILE): raise fs.file-max, see sysctl";
    case ENOSPC: return "no space left (ENOSPC)";
    case EACCES: return "permission denied (EACCES)";
    case EPERM: return "operation not permitted (EPERM)";
    case ENOSYS: return "this kernel does not have the call (ENOSYS)";
    case ENODEV: return "no such device (ENODEV)";
    case EINTR: return "interrupted by a signal (EINTR)";
    case EFAULT: return "memory that is not mapped, or not for this kind of access (EFAULT)";
    default: return "operating system error";
  }
}

}  // namespace

std::string_view describe(Error error) noexcept {
  switch (error) {
    case Error::kTruncated: return "not enough bytes";
    case Error::kBadLength: return "length not allowed";
    case Error::kBadVersion: return "DDP version is not 1";
    case Error::kNotTagged: return "untagged segment where a tagged one is required";
    case Error::kTagged: return "tagged segment where an untagged one is required";
    case Error::kBadKey: return "not an MPA start-up frame of the expected kind";
    case Error::kBadRevision: return "MPA revision not supported";
    case Error::kPrivateDataTooLong: return "private data longer than 512 octets";
    case Error::kReservedBits: return "a reserved bit is set";
    case Error::kBadRdmapVersion: return "RDMAP version is not 1";
    case Error::kUnknownOpcode: return "RDMAP opcode not assigned";
    case Error::kUnknownAtomicOp: return "atomic operation not assigned";
    case Error::kBadCrc: return "CRC does not match";
    case Error::kBadMarker: return "marker and FPDU length disagree";
    case Error::kProtocol: return "protocol violated by the peer";
    case Error::kInvalidArgument: return "invalid argument";
    case Error::kNoSpace: return "queue is full";
    case Error::kBadState: return "not allowed in this state";
    case Error::kNotFound: return "not found";
    case Error::kPermission: return "not permitted";
    case Error::kNoMemory: return "out of memory";
    case Error::kLimitExceeded: return "limit exceeded";
    case Error::kBusy: return "still in use";
    case Error::kUnsupported: return "not supported";
    case Error::kBadTransition: return "no such state transition";
    case Error::kTimedOut: return "timed out";
    case Error::kConnectionLost: return "connection lost";
    case Error::kRefused: return "connection refused";
    case Error::kAddressInUse: return "address in use";
    case Error::kUnreachable: return "peer not reachable";
    case Error::kAborted: return "aborted";
    case Error::kSystem: return "operating system error";
    case Error::kNotConnected: return "not connected";
  }
  const int number = system_errno(error);
  return number != 0 ? describe_errno(number) : "unknown error";
}

}  // namespace weft
