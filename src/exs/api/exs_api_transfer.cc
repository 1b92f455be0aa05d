// Sending and receiving.
#include <sys/stat.h>

#include "exs/api/exs_api.h"
#include "os/lock.h"

using namespace weft::exs;

namespace {

constexpr int kSendFlags = EXS_PERSISTENT | MSG_DONTWAIT | MSG_NOSIGNAL | MSG_WAITALL;
constexpr int kReceiveFlags = MSG_WAITALL | MSG_DONTWAIT;

struct Call {
  int fd = -1;
  int type = 0;
  int flags = 0;
  exs_qhandle_t queue = EXS_QHANDLE_INVALID;
  exs_ahandle_t ahandle = 0;
  bool sends() const {
    return type == EXS_EVT_SEND || type == EXS_EVT_SENDMSG || type == EXS_EVT_SENDFILE;
  }
};

// Returns 0, or the errno of a socket whose state does not allow this call.
int check_state(const Socket& socket, const Call& call) {
  if (socket.end.closing()) return EBADF;
  switch (socket.state) {
    case State::kNew:
    case State::kBound: return ENOTCONN;
    case State::kListening: return EOPNOTSUPP;
    case State::kFailed: return socket.error;
    case State::kClosed: return EBADF;
    // Operations may be posted before: they begin when the connection stands.
    case State::kConnecting:
    case State::kConnected: break;
  }
  if (call.sends() && (socket.end.shutting() || socket.peer_gone)) return EPIPE;
  if ((call.flags & EXS_PERSISTENT) != 0) {
    if (socket.kind != Kind::kPacket) return EINVAL;
    if (socket.state == State::kConnected && !socket.provider->is_rdma()) return EOPNOTSUPP;
  }
  return 0;
}

int check_total(const Socket& socket, const Operation& op) {
  if (socket.kind == Kind::kPacket && op.total > kTransferMax) return EMSGSIZE;
  return op.total > static_cast<std::size_t>(PTRDIFF_MAX) ? EINVAL : 0;
}

// For a call that may not block.
bool has_something_to_do(const Socket& socket, const Call& call, const OperationList& list) {
  if (socket.state != State::kConnected || (call.flags & EXS_PERSISTENT) != 0) return false;
  return call.sends() ? list.empty() && socket.provider->writable() : socket.provider->readable();
}

// Posts one operation. `fill` adds its pieces and returns 0 or an errno.
template <class Fill>
ssize_t transfer(const Call& call, Fill fill) {
  const auto socket = socket_of(call.fd);
  if (socket == nullptr) return -1;
  if ((call.flags & ~(call.sends() ? kSendFlags : kReceiveFlags)) != 0) return fail(EOPNOTSUPP);
  Outlet outlet(call.queue);
  if (outlet.queue == nullptr) return fail(EINVAL);
  Clock::duration limit{};
  bool now = false;
  {
    const Engine::Inside inside(Engine::instance());
    const weft::os::MutexLock lock(socket->mutex);
    if (const int error = check_state(*socket, call); error != 0) return fail(error);
    const bool may_block = !socket->nonblocking && (call.flags & MSG_DONTWAIT) == 0;
    OperationList& list = call.sends() ? socket->ops.sends : socket->ops.receives;
    now = outlet.blocking && !may_block;
    if (now && !has_something_to_do(*socket, call, list)) return fail(EAGAIN);
    if (!socket->wait_for_room(list, may_block)) return fail(EAGAIN);
    if (const int error = check_state(*socket, call); error != 0) return fail(error);
    Posting posting(*socket, list);
    Operation& op = posting.op;
    op.type = call.type;
    op.flags = call.flags;
    op.now = now;
    op.ahandle = call.ahandle;
    op.queue = outlet.give();
    int error = fill(op);
    if (error == 0) error = check_total(*socket, op);
    if (error != 0) return fail(error);
    posting.keep();
    limit = (call.sends() ? socket->send_limit : socket->receive_limit).after;
    if (call.sends() && socket->state == State::kConnected && !socket->peer_gone) {
      socket->guarded([&] { socket->provider->sends_posted(); });
    } else if (socket->state == State::kConnected || socket->peer_gone) {
      socket->guarded([&] { socket->provider->receives_posted(); });  // or finds the end
    }
    if (now) end_now(*socket, outlet);
  }
  posted();
  if (!outlet.blocking) return 0;
  const exs_event_t event = wait_for_event(socket, outlet, limit);
  // Taken back at once, or when its time limit had passed while some of it was under way.
  if (now && (event.error == ECANCELED || event.error == ETIMEDOUT)) {
    const auto part = static_cast<ssize_t>(exs_evt_length(&event));
    return part != 0 ? part : fail(EAGAIN);
  }
  if (event.error != 0) return fail(event.error);
  return static_cast<ssize_t>(exs_evt_length(&event));
}

int fill_vector(Operation& op, const exs_msghdr_t* msg) {
  if (msg == nullptr || (msg->msg_iov == nullptr && msg->msg_iovlen != 0)) return EFAULT;
  if (msg->msg_iovlen < 0 || msg->msg_iovlen > EXS_IOV_MAX) return EMSGSIZE;
  for (int i = 0; i < msg->msg_iovlen; ++i) {
    const exs_iovec_t& piece = msg->msg_iov[i];
    if (piece.iov_len > PTRDIFF_MAX - op.total) return EINVAL;
    const int error = add_piece(op, piece.iov_base, piece.iov_len, piece.iov_mhandle);
    if (error != 0) return error;
  }
  return 0;
}

int add_file(Operation& op, const exs_fdvec_t& file) {
  struct stat found {};
  if (::fstat(file.fd, &found) != 0) return EBADF;
  if (!S_ISREG(found.st_mode) || file.offset < 0) return EINVAL;
  if (file.offset > found.st_size ||
      file.length > static_cast<std::size_t>(found.st_size - file.offset)) {
    return EINVAL;
  }
  Piece piece;
  piece.fd = file.fd;
  piece.offset = file.offset;
  piece.length = file.length;
  op.total += file.length;
  if (file.length != 0) op.files.expect();
  op.pieces.push_back(std::move(piece));
  return 0;
}

}  // namespace

extern "C" {

ssize_t exs_send(int fd, const void* buf, size_t len, int flags, exs_qhandle_t q, exs_ahandle_t ah,
                 exs_mhandle_t mh) try {
  return transfer({fd, EXS_EVT_SEND, flags, q, ah},
                  [&](Operation& op) { return add_piece(op, const_cast<void*>(buf), len, mh); });
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

ssize_t exs_recv(int fd, void* buf, size_t len, int flags, exs_qhandle_t q, exs_ahandle_t ah,
                 exs_mhandle_t mh) try {
  return transfer({fd, EXS_EVT_RECV, flags, q, ah},
                  [&](Operation& op) { return add_piece(op, buf, len, mh); });
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

ssize_t exs_sendmsg(int fd, const exs_msghdr_t* msg, int flags, exs_qhandle_t q,
                    exs_ahandle_t ah) try {
  return transfer({fd, EXS_EVT_SENDMSG, flags, q, ah},
                  [&](Operation& op) { return fill_vector(op, msg); });
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

ssize_t exs_recvmsg(int fd, exs_msghdr_t* msg, int flags, exs_qhandle_t q, exs_ahandle_t ah) try {
  return transfer({fd, EXS_EVT_RECVMSG, flags, q, ah},
                  [&](Operation& op) { return fill_vector(op, msg); });
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

ssize_t exs_sendfile(int fd, const exs_xferfile_t* vec, int count, int flags, exs_qhandle_t q,
                     exs_ahandle_t ah) try {
  if ((flags & EXS_PERSISTENT) != 0) return fail(EOPNOTSUPP);
  return transfer({fd, EXS_EVT_SENDFILE, flags, q, ah}, [&](Operation& op) {
    if (vec == nullptr) return EFAULT;
    if (count < 1 || count > EXS_IOV_MAX) return EINVAL;
    for (int i = 0; i < count; ++i) {
      int error = EINVAL;
      if (vec[i].tag == EXS_FDVEC) error = add_file(op, vec[i].u.fdvec);
      if (vec[i].tag == EXS_IOVEC) {
        const exs_iovec_t& piece = vec[i].u.iovec;
        error = add_piece(op, piece.iov_base, piece.iov_len, piece.iov_mhandle);
      }
      if (error != 0) return error;
    }
    return 0;
  });
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

}  // extern "C"
