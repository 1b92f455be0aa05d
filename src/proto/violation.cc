#include "proto/violation.h"

#include <array>

#include "wire/ddp.h"

namespace weft::proto {

namespace {

using V = Violation;
using Event = AsyncEventType;

struct Row {
  Violation violation;
  Consequence info;
};

constexpr auto kNothing = Attach::kNothing;
constexpr auto kDdp = Attach::kDdp;
constexpr auto kRead = Attach::kDdpAndRead;
constexpr auto kFatal = Event::kQpFatal;
constexpr auto kRequest = Event::kQpRequestError;
constexpr auto kAccess = Event::kQpAccessError;

// clang-format off
constexpr Row kTerminateOf[] = {
    {V::kNone,                  {"no violation", {}, kNothing, kFatal}},
    {V::kCrc,                   {"CRC mismatch", term::kMpaCrc, kNothing, kFatal}},
    {V::kMarker,                {"marker and length disagree", term::kMpaMarker, kNothing, kFatal}},
    {V::kShortUlpdu,            {"ULPDU shorter than 2 octets", term::kMpaMarker, kNothing, kFatal}},
    {V::kInsufficientIrd,       {"insufficient IRD", term::kMpaInsufficientIrd, kNothing, kFatal}},
    {V::kNoMatchingRtr,         {"no matching RTR", term::kMpaNoMatchingRtr, kNothing, kFatal}},
    {V::kDdpVersionTagged,      {"DDP version of a tagged segment", term::kDdpTaggedVersion, kNothing, kFatal}},
    {V::kDdpVersionUntagged,    {"DDP version of an untagged segment", term::kDdpUntaggedVersion, kNothing, kFatal}},
    {V::kRdmapVersion,          {"RDMAP version", term::kRdmapVersionError, kNothing, kFatal}},
    {V::kUnknownOpcode,         {"unknown opcode", term::kRdmapUnexpectedOpcode, kDdp, kRequest}},
    {V::kTagMismatch,           {"T bit does not fit the opcode", term::kRdmapUnexpectedOpcode, kDdp, kRequest}},
    {V::kBadLength,             {"length does not fit the opcode", term::kRdmapOperationUnspecified, kDdp, kRequest}},
    {V::kWrongQueue,            {"wrong queue number", term::kDdpInvalidQueue, kDdp, kRequest}},
    {V::kMsnRange,              {"MSN out of range", term::kDdpMsnRange, kDdp, kRequest}},
    {V::kNoReceive,             {"no receive posted", term::kDdpNoBuffer, kDdp, kRequest}},
    {V::kNoSlot,                {"no slot for the request", term::kDdpNoBuffer, kDdp, kRequest}},
    {V::kBadMo,                 {"invalid MO", term::kDdpInvalidMo, kDdp, kRequest}},
    {V::kMessageTooLong,        {"message longer than the receive", term::kDdpTooLong, kDdp, kRequest}},
    {V::kUnaskedAtomicResponse, {"atomic response without request", term::kDdpNoBuffer, kDdp, kRequest}},
    {V::kUnaskedAck,            {"ack of what was not sent", term::kRdmapUnexpectedOpcode, kDdp, kRequest}},
    {V::kWriteStag,             {"write: invalid STag", term::kDdpInvalidStag, kDdp, kAccess}},
    {V::kWriteStream,           {"write: STag not of this stream", term::kDdpStagNotOfStream, kDdp, kAccess}},
    {V::kWriteRight,            {"write: no remote write right", term::kDdpInvalidStag, kDdp, kAccess}},
    {V::kWriteWrap,             {"write: TO wraps", term::kDdpToWrap, kDdp, kAccess}},
    {V::kWriteBounds,           {"write: outside the region", term::kDdpBounds, kDdp, kAccess}},
    {V::kWriteOtherStag,        {"write: STag changed within a message", term::kDdpInvalidStag, kDdp, kAccess}},
    {V::kWriteOtherTo,          {"write: TO does not continue the message", term::kDdpBounds, kDdp, kAccess}},
    {V::kUnaskedReadResponse,   {"read response without request", term::kRdmapUnexpectedOpcode, kDdp, kRequest}},
    {V::kReadResponseStag,      {"read response: wrong STag", term::kDdpInvalidStag, kDdp, kAccess}},
    {V::kReadResponseTo,        {"read response: wrong TO", term::kDdpBounds, kDdp, kAccess}},
    {V::kReadResponseLength,    {"read response: wrong length", term::kDdpBounds, kDdp, kAccess}},
    {V::kReadSinkGone,          {"read response: the sink is gone", term::kDdpInvalidStag, kDdp, kAccess}},
    {V::kReadStag,              {"read: invalid STag", term::kRdmapInvalidStag, kRead, kAccess}},
    {V::kReadStream,            {"read: STag not of this stream", term::kRdmapStagNotOfStream, kRead, kAccess}},
    {V::kReadRight,             {"read: no remote read right", term::kRdmapAccess, kRead, kAccess}},
    {V::kReadWrap,              {"read: TO wraps", term::kRdmapToWrap, kRead, kAccess}},
    {V::kReadBounds,            {"read: outside the region", term::kRdmapBounds, kRead, kAccess}},
    {V::kAtomicMisaligned,      {"atomic: target not 8-aligned", term::kRdmapStreamCatastrophic, kDdp, kFatal}},
    {V::kAtomicUnknown,         {"atomic: unknown operation", term::kRdmapUnexpectedOpcode, kDdp, kRequest}},
    {V::kAtomicMisalignedRoce,  {"atomic: target not 8-aligned (RoCE-like)", term::kRdmapUnexpectedOpcode, kDdp, kRequest}},
    {V::kNotServed,             {"the queue pair serves no such requests", term::kRdmapUnexpectedOpcode, kDdp, kRequest}},
    {V::kInvalidateProtection,  {"invalidate: STag not of this stream", term::kRdmapCannotInvalidateProtection, kDdp, kRequest}},
    {V::kInvalidateOperation,   {"invalidate: STag cannot be invalidated", term::kRdmapCannotInvalidateOperation, kDdp, kRequest}},
    {V::kReceiveProtection,     {"receive: local memory not valid", term::kDdpLocalCatastrophic, kDdp, kFatal}},
    {V::kSendProtection,        {"send: local memory not valid", term::kRdmapLocalCatastrophic, kNothing, kFatal}},
    {V::kLocalFault,            {"local fault", term::kRdmapLocalCatastrophic, kNothing, kFatal}},
};
// clang-format on

constexpr std::size_t kCount = std::size(kTerminateOf);
static_assert(kCount == static_cast<std::size_t>(V::kLocalFault) + 1);

constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (static_cast<std::size_t>(kTerminateOf[i].violation) != i) return false;
  }
  return true;
}
static_assert(rows_in_order());

struct StatusRow {
  TerminateCode code;
  WcStatus status;
};

constexpr auto kRemoteAccess = WcStatus::kRemoteAccess;
constexpr auto kInvalid = WcStatus::kRemoteInvalidRequest;
constexpr auto kOperation = WcStatus::kRemoteOperation;
constexpr auto kFlushed = WcStatus::kFlushed;

// A Terminate that is not listed is a remote operation error: 0/0/any, 1/3/any, all that is
// unassigned.
constexpr StatusRow kStatuses[] = {
    {term::kRdmapInvalidStag, kRemoteAccess},
    {term::kRdmapBounds, kRemoteAccess},
    {term::kRdmapAccess, kRemoteAccess},
    {term::kRdmapStagNotOfStream, kRemoteAccess},
    {term::kRdmapToWrap, kRemoteAccess},
    {term::kRdmapCannotInvalidateProtection, kInvalid},
    {term::kRdmapProtectionUnspecified, kRemoteAccess},
    {term::kRdmapVersionError, kInvalid},
    {term::kRdmapUnexpectedOpcode, kInvalid},
    {term::kRdmapStreamCatastrophic, kOperation},
    {term::kRdmapGlobalCatastrophic, kOperation},
    {term::kRdmapCannotInvalidateOperation, kInvalid},
    {term::kRdmapOperationUnspecified, kOperation},
    {term::kDdpLocalCatastrophic, kOperation},
    {term::kDdpInvalidStag, kRemoteAccess},
    {term::kDdpBounds, kRemoteAccess},
    {term::kDdpStagNotOfStream, kRemoteAccess},
    {term::kDdpToWrap, kRemoteAccess},
    {term::kDdpTaggedVersion, kInvalid},
    {term::kDdpInvalidQueue, kInvalid},
    {term::kDdpMsnRange, kInvalid},
    {term::kDdpInvalidMo, kInvalid},
    {term::kDdpTooLong, kInvalid},
    {term::kDdpUntaggedVersion, kInvalid},
    {term::kMpaConnectionLost, kFlushed},
    {term::kMpaCrc, kOperation},
    {term::kMpaMarker, kOperation},
    // The set-up has failed, no single request of the application has.
    {term::kMpaBadStartup, kFlushed},
    {term::kMpaLocalCatastrophic, kFlushed},
    {term::kMpaInsufficientIrd, kFlushed},
    {term::kMpaNoMatchingRtr, kFlushed},
};

}  // namespace

const Consequence& consequence_of(Violation v) noexcept {
  return kTerminateOf[static_cast<std::size_t>(v)].info;
}

WcStatus status_of_terminate(TerminateCode code, std::uint32_t queue) noexcept {
  if (code == term::kDdpNoBuffer) {
    // Adapters that attach no header mean a Send: nothing else can lack a buffer of the
    // application.
    const bool request = queue == kQueueReadRequest || queue == kQueueAtomicResponse;
    return request ? WcStatus::kRemoteInvalidRequest : WcStatus::kRnrRetryExceeded;
  }
  for (const StatusRow& row : kStatuses) {
    if (row.code == code) return row.status;
  }
  return WcStatus::kRemoteOperation;
}

}  // namespace weft::proto
