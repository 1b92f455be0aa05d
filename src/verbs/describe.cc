// Words for the enumerators of the public API.
#include <weft/connection.h>
#include <weft/device.h>
#include <weft/types.h>

#include "base/crc32c.h"

namespace weft {

std::string_view describe(WcStatus status) {
  switch (status) {
    case WcStatus::kSuccess: return "success";
    case WcStatus::kLocalLength: return "local length error";
    case WcStatus::kLocalQpOperation: return "local QP operation error";
    case WcStatus::kLocalProtection: return "local protection error";
    case WcStatus::kFlushed: return "flushed: the QP left full operation";
    case WcStatus::kWindowBind: return "memory window bind error";
    case WcStatus::kBadResponse: return "bad response error";
    case WcStatus::kLocalAccess: return "local access error";
    case WcStatus::kRemoteInvalidRequest: return "remote invalid request error";
    case WcStatus::kRemoteAccess: return "remote access error";
    case WcStatus::kRemoteOperation: return "remote operation error";
    case WcStatus::kRetryExceeded: return "the connection timed out";
    case WcStatus::kRnrRetryExceeded: return "the peer had no receive posted";
    case WcStatus::kFatal: return "fatal error";
    case WcStatus::kGeneral: return "general error";
  }
  return "unknown status";
}

std::string_view describe(WcOp op) {
  switch (op) {
    case WcOp::kSend: return "Send";
    case WcOp::kWrite: return "RDMA Write";
    case WcOp::kRead: return "RDMA Read";
    case WcOp::kFetchAdd: return "FetchAdd";
    case WcOp::kCmpSwap: return "CmpSwap";
    case WcOp::kBindWindow: return "window bind";
    case WcOp::kLocalInvalidate: return "local invalidate";
    case WcOp::kRecv: return "receive";
    case WcOp::kRecvWithImm: return "receive with immediate";
  }
  return "unknown operation";
}

std::string_view describe(QpState state) {
  switch (state) {
    case QpState::kReset: return "RESET";
    case QpState::kInit: return "INIT";
    case QpState::kRtr: return "RTR";
    case QpState::kRts: return "RTS";
    case QpState::kSqd: return "SQD";
    case QpState::kSqe: return "SQE";
    case QpState::kError: return "ERROR";
  }
  return "unknown state";
}

std::string_view describe(AsyncEventType type) {
  switch (type) {
    case AsyncEventType::kCqError: return "completion queue overflow";
    case AsyncEventType::kQpFatal: return "QP fatal error";
    case AsyncEventType::kQpRequestError: return "QP request error";
    case AsyncEventType::kQpAccessError: return "QP access error";
    case AsyncEventType::kCommEstablished: return "communication established";
    case AsyncEventType::kSqDrained: return "send queue drained";
    case AsyncEventType::kQpLastWqeReached: return "last receive of an SRQ reached";
    case AsyncEventType::kSrqLimitReached: return "SRQ limit reached";
    case AsyncEventType::kSrqError: return "SRQ error";
    case AsyncEventType::kDeviceFatal: return "device fatal error";
  }
  return "unknown event";
}

std::string_view describe(ConnectionEvent::Type type) {
  using Type = ConnectionEvent::Type;
  switch (type) {
    case Type::kConnectRequest: return "connect request";
    case Type::kResponse: return "response";
    case Type::kEstablished: return "established";
    case Type::kRejected: return "rejected";
    case Type::kUnreachable: return "unreachable";
    case Type::kConnectError: return "connect error";
    case Type::kDisconnected: return "disconnected";
  }
  return "unknown event";
}

std::string_view version() { return WEFT_VERSION; }
std::string_view crc_method() { return crc32c_method(); }

}  // namespace weft
