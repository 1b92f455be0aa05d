// The calls of RFC 4296 and what they share.
#include <weft/limits.h>

#include "rddp/api.h"

using weft::Access;

namespace {

bool is_message(const ddp_message_t& m) { return m.data != nullptr || m.length == 0; }

weft::Sge sge_of(const ddp_message_t& m) {
  return {reinterpret_cast<std::uintptr_t>(m.data), m.length, 0};
}

Access rights(rdma_mode mode) {
  Access access = Access::kNone;
  if ((static_cast<unsigned>(mode) & RDMA_READ) != 0) access = access | Access::kRemoteRead;
  if ((static_cast<unsigned>(mode) & RDMA_WRITE) != 0) access = access | Access::kRemoteWrite;
  return access;
}

int untagged(rddp_socket* socket, const ddp_message_t& message) {
  weft::proto::DdpMessage m;
  m.data = static_cast<const std::uint8_t*>(message.data);
  m.length = message.length;
  return socket->send(m);
}

}  // namespace

extern "C" {

const char* rddp_describe(int status) {
  switch (status) {
    case RDDP_OK: return "done";
    case RDDP_AGAIN: return "nothing yet: poll, then try again";
    case RDDP_TIMED_OUT: return "the time limit has passed";
    case RDDP_INVALID: return "an argument that can never work";
    case RDDP_NO_MEMORY: return "no memory, or a limit of the options has been reached";
    case RDDP_FULL: return "as many buffers are posted as the options allow";
    case RDDP_BAD_STATE: return "not connected, or a call for another kind of socket";
    case RDDP_DOWN: return "the connection has ended";
    case RDDP_REFUSED: return "nobody listens there, or the peer's program said no";
    case RDDP_UNREACHABLE: return "no such host, or no route to it";
    case RDDP_IN_USE: return "the port is taken, or the memory is being sent";
    case RDDP_NOT_FOUND: return "no such registration";
    case RDDP_UNSUPPORTED: return "not possible on this machine";
    case RDDP_SYSTEM: return "the operating system refused";
    case RDDP_PENDING: return "under way: its memory is still in use";
    default: return "unknown status";
  }
}

const char* ddp_describe_error(ddp_error error) {
  switch (error) {
    case DDP_ERROR_NONE: return "no error";
    case DDP_ERROR_LOST: return "the connection was lost";
    case DDP_ERROR_STAG: return "an STag that is not registered on this connection";
    case DDP_ERROR_RIGHT: return "memory registered without the right that was needed";
    case DDP_ERROR_BOUNDS: return "outside the registered buffer";
    case DDP_ERROR_NO_BUFFER: return "a message for which no buffer was posted";
    case DDP_ERROR_TOO_LONG: return "a message longer than its buffer";
    case DDP_ERROR_OVERRUN: return "more notifications than the options allow";
    case DDP_ERROR_PROTOCOL: return "a violation of the protocol";
  }
  return "unknown error";
}

void rddp_set_timeout(rddp_socket* socket, int timeout_ms) { socket->timeout_ms = timeout_ms; }
void rddp_set_context(rddp_socket* socket, void* context) { socket->context = context; }
void* rddp_context(const rddp_socket* socket) { return socket->context; }
std::uint32_t rddp_pending(const rddp_socket* socket) { return socket->pending(); }
int rddp_flush(rddp_socket* socket) { return socket->flush(); }

void rddp_close(rddp_socket* socket) {
  socket->close();
  delete socket;
}

void rddp_abort(rddp_socket* socket) { delete socket; }

// --- DDP ---

int ddp_send(rddp_socket* socket, ddp_message_t message) {
  if (socket->kind != RDDP_DDP) return RDDP_BAD_STATE;
  if (!is_message(message)) return RDDP_INVALID;
  return untagged(socket, message);
}

int ddp_send_ddp(rddp_socket* socket, ddp_message_t message, ddp_addr_t to, ddp_notify_t notify) {
  if (socket->kind != RDDP_DDP) return RDDP_BAD_STATE;
  if (!is_message(message) || (notify.wanted != 0 && notify.id >= RDDP_DDP_IDS)) {
    return RDDP_INVALID;
  }
  weft::proto::DdpMessage m;
  m.tagged = true;
  m.stag = weft::Stag{to.stag};
  m.to = to.offset;
  m.data = static_cast<const std::uint8_t*>(message.data);
  m.length = message.length;
  if (notify.wanted != 0) {
    m.control = static_cast<std::uint8_t>(weft::rddp::DdpEndpoint::kNotify | notify.id);
  }
  return socket->send(m);
}

int ddp_post_recv(rddp_socket* socket, ddp_posted_t* buffer) {
  return socket->kind == RDDP_DDP ? socket->post(*buffer) : RDDP_BAD_STATE;
}

ddp_ind_t ddp_recv(rddp_socket* socket) { return socket->receive(); }

int ddp_register(rddp_socket* socket, const ddp_buffer_t* buffer, ddp_bdesc_t* description) {
  if (socket->kind != RDDP_DDP) return RDDP_BAD_STATE;
  return socket->add_region(*buffer, Access::kRemoteWrite, *description);
}

int ddp_deregister(rddp_socket* socket, std::uint32_t handle) {
  return socket->remove_region(handle);
}

ddp_msizes_t ddp_max_msizes(const rddp_socket* socket) {
  if (socket->kind != RDDP_RDMA) {
    return {socket->ddp->segment_max(false), socket->ddp->segment_max(true)};
  }
  if (socket->rdma->stream() == nullptr) return {0, 0};
  const std::uint32_t ulpdu = socket->rdma->stream()->max_ulpdu();
  return {ulpdu - static_cast<std::uint32_t>(weft::kDdpUntaggedSize),
          ulpdu - static_cast<std::uint32_t>(weft::kDdpTaggedSize)};
}

// --- RDMA ---

int rdma_send(rddp_socket* socket, ddp_message_t message) {
  if (socket->kind != RDDP_RDMA) return RDDP_BAD_STATE;
  if (!is_message(message)) return RDDP_INVALID;
  const weft::Sge sge = sge_of(message);
  weft::SendWr wr;
  wr.op = weft::SendOp::kSend;
  wr.flags = weft::SendFlags::kSignaled;
  wr.sges = {&sge, 1};
  return socket->send(wr);
}

int rdma_write(rddp_socket* socket, ddp_message_t message, ddp_addr_t to, ddp_notify_t notify) {
  if (socket->kind != RDDP_RDMA) return RDDP_BAD_STATE;
  if (!is_message(message)) return RDDP_INVALID;
  const weft::Sge sge = sge_of(message);
  weft::SendWr wr;
  wr.op = notify.wanted != 0 ? weft::SendOp::kWriteImm : weft::SendOp::kWrite;
  wr.flags = weft::SendFlags::kSignaled;
  wr.sges = {&sge, 1};
  wr.rkey = to.stag;
  wr.remote_addr = to.offset;
  wr.imm_data = notify.id;
  return socket->send(wr);
}

int rdma_read(rddp_socket* socket, ddp_addr_t from, std::uint32_t length, ddp_addr_t to) {
  return socket->kind == RDDP_RDMA ? socket->read(from, length, to) : RDDP_BAD_STATE;
}

int rdma_post_recv(rddp_socket* socket, ddp_posted_t* buffer) {
  return socket->kind == RDDP_RDMA ? socket->post(*buffer) : RDDP_BAD_STATE;
}

ddp_ind_t rdma_recv(rddp_socket* socket) { return socket->receive(); }

int rdma_register(rddp_socket* socket, const ddp_buffer_t* buffer, rdma_mode mode,
                  ddp_bdesc_t* description) {
  if (socket->kind != RDDP_RDMA) return RDDP_BAD_STATE;
  if (rights(mode) == Access::kNone) return RDDP_INVALID;
  return socket->add_region(*buffer, rights(mode), *description);
}

int rdma_deregister(rddp_socket* socket, std::uint32_t handle) {
  return socket->remove_region(handle);
}

ddp_msizes_t rdma_max_msizes(const rddp_socket* socket) { return ddp_max_msizes(socket); }

// --- the transport by itself ---

int xpt_send(rddp_socket* socket, ddp_message_t message) {
  if (socket->kind != RDDP_XPT) return RDDP_BAD_STATE;
  if (message.data == nullptr) return RDDP_INVALID;
  return untagged(socket, message);
}

int xpt_post_recv(rddp_socket* socket, ddp_posted_t* buffer) {
  return socket->kind == RDDP_XPT ? socket->post(*buffer) : RDDP_BAD_STATE;
}

ddp_ind_t xpt_recv(rddp_socket* socket) { return socket->receive(); }

std::uint32_t xpt_max_msize(const rddp_socket* socket) {
  return socket->kind == RDDP_XPT ? socket->ddp->segment_max(false) : 0;
}

}  // extern "C"
