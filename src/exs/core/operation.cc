#include "exs/core/operation.h"

#include <cstring>

namespace weft::exs {

void Operation::reset() {
  queue.reset();
  pieces.clear();
  files.reset();
  grants.clear();
  locals.clear();
  type = flags = error = 0;
  total = done = handed = 0;
  serial = seq = 0;
  addresses = {};
  remote = {};
  cancellation = {};
  now = complete = advertised = fetching = withdrawing = truncated = false;
}

bool fills_memory(int type) {
  switch (type) {
    case EXS_EVT_RECV:
    case EXS_EVT_RECVMSG:
    case EXS_EVT_READ:
    case EXS_EVT_FETCHADD:
    case EXS_EVT_CMPSWAP: return true;
    default: return false;
  }
}

void copy_out(const Operation& op, std::size_t from, std::uint8_t* to, std::size_t length) {
  each_piece(op, from, length, [&to](const Piece& piece, std::size_t at, std::size_t bytes) {
    std::memcpy(to, piece.base + at, bytes);
    to += bytes;
  });
}

void copy_in(Operation& op, std::size_t at, const std::uint8_t* from, std::size_t length) {
  each_piece(op, at, length, [&from](const Piece& piece, std::size_t to, std::size_t bytes) {
    std::memcpy(piece.base + to, from, bytes);
    from += bytes;
  });
}

exs_event_t event_of(const Operation& op, int fd, int error, std::size_t length) {
  exs_event_t event{};
  event.type = op.type;
  event.error = error;
  event.ahandle = op.ahandle;
  event.fd = fd;
  switch (op.type) {
    case EXS_EVT_SENDMSG:
    case EXS_EVT_RECVMSG:
      event.u.xfermsg.length = length;
      event.u.xfermsg.flags = op.truncated ? MSG_TRUNC : 0;
      break;
    case EXS_EVT_FETCHADD:
    case EXS_EVT_CMPSWAP: event.u.value = op.remote.value; break;
    case EXS_EVT_SENDFILE: event.u.xferfile.length = length; break;
    default: event.u.xfer.length = length; break;
  }
  return event;
}

}  // namespace weft::exs
