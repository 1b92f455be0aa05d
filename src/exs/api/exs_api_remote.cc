// One-sided work: memory that a peer reaches by name.
#include "exs/api/exs_api.h"
#include "os/lock.h"

namespace weft::exs {
namespace {

struct RemoteCall {
  int fd = -1;
  int type = 0;
  exs_rhandle_t remote = -1;
  std::uint64_t offset = 0;
  std::size_t length = 0;
  exs_qhandle_t queue = EXS_QHANDLE_INVALID;
  exs_ahandle_t ahandle = 0;
};

template <class Fill>
ssize_t post(const RemoteCall& call, Fill fill) {
  const auto socket = socket_of(call.fd);
  if (socket == nullptr) return -1;
  Outlet outlet(call.queue);
  if (outlet.queue == nullptr) return fail(EINVAL);
  {
    const Engine::Inside inside(Engine::instance());
    const os::MutexLock lock(socket->mutex);
    if (socket->end.closing() || socket->end.shutting()) return fail(EPIPE);
    if (!socket->wait_for_room(socket->ops.one_sided, !socket->nonblocking)) return fail(EAGAIN);
    RdmaSocket* rdma = rdma_of(*socket);
    if (rdma == nullptr) return -1;
    const NamedMemory::Remote* to = rdma->names().remote(call.remote);
    if (to == nullptr || call.length == 0 || call.length > kTransferMax) return fail(EINVAL);
    if (call.offset > to->length || call.length > to->length - call.offset) return fail(EFAULT);
    const bool atomic = call.type == EXS_EVT_FETCHADD || call.type == EXS_EVT_CMPSWAP;
    if (atomic && (to->addr + call.offset) % sizeof(std::uint64_t) != 0) return fail(EINVAL);
    Posting posting(*socket, socket->ops.one_sided);
    Operation& op = posting.op;
    op.type = call.type;
    op.ahandle = call.ahandle;
    op.queue = outlet.give();
    op.remote.memory = call.remote;
    op.remote.offset = call.offset;
    if (const int error = fill(op); error != 0) return fail(error);
    posting.keep();
    socket->guarded([&] { rdma->one_sided_posted(); });
  }
  posted();
  if (!outlet.blocking) return 0;
  const exs_event_t event = wait_for_end(outlet);
  if (event.error != 0) return fail(event.error);
  return static_cast<ssize_t>(call.length);
}

int fill_atomic(Operation& op, std::uint64_t operand, std::uint64_t swap, std::uint64_t* before) {
  op.remote.operand = operand;
  op.remote.swap = swap;
  op.remote.before = before;
  return add_piece(op, &op.remote.value, sizeof op.remote.value, EXS_MHANDLE_UNREGISTERED);
}

// Calls `change` with the names of a socket over RDMA, with its mutex. As that returns: below 0 is
// an errno.
template <class Change>
int with_names(int fd, const exs_mname_t* name, Change change) {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  if (name == nullptr) return fail(EFAULT);
  const os::MutexLock lock(socket->mutex);
  RdmaSocket* rdma = rdma_of(*socket);
  if (rdma == nullptr) return -1;
  const int result = change(rdma->names());
  return result >= 0 ? result : fail(-result);
}

}  // namespace
}  // namespace weft::exs

using namespace weft::exs;

extern "C" {

int exs_mexport(int fd, exs_mhandle_t mh, void* addr, size_t len, int rights,
                exs_mname_t* name) try {
  constexpr int kRights = EXS_MEXPORT_READ | EXS_MEXPORT_WRITE | EXS_MEXPORT_ATOMIC;
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  if (name == nullptr) return fail(EFAULT);
  if (rights == 0 || (rights & ~kRights) != 0 || len == 0) return fail(EINVAL);
  const auto region = Engine::instance().regions.find(mh, [](Region& found) { found.attach(); });
  if (region == nullptr) return fail(EINVAL);
  const weft::os::MutexLock lock(socket->mutex);
  RdmaSocket* rdma = rdma_of(*socket);
  int error = rdma != nullptr ? 0 : errno;
  if (error == 0 && !region->covers(addr, len)) error = EFAULT;
  if (error == 0)
    error = rdma->names().export_memory(rdma->device(), region, addr, len, rights, *name);
  if (error == 0) return 0;
  region->detach();
  return fail(error);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_munexport(int fd, const exs_mname_t* name) try {
  return with_names(fd, name, [=](NamedMemory& names) { return -names.unexport(*name); });
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

exs_rhandle_t exs_mimport(int fd, const exs_mname_t* name) try {
  return with_names(fd, name, [=](NamedMemory& names) { return names.import_name(*name); });
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_munimport(int fd, exs_rhandle_t remote) try {
  const auto socket = socket_of(fd);
  if (socket == nullptr) return -1;
  const weft::os::MutexLock lock(socket->mutex);
  // Work that has not begun names it.
  if (!socket->ops.one_sided.empty()) return fail(EBUSY);
  RdmaSocket* rdma = rdma_of(*socket);
  if (rdma == nullptr) return -1;
  const int error = rdma->names().unimport(remote);
  return error == 0 ? 0 : fail(error);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

ssize_t exs_write(int fd, const void* buf, size_t len, exs_rhandle_t remote, uint64_t offset,
                  exs_qhandle_t q, exs_ahandle_t ah, exs_mhandle_t mh) try {
  return post({fd, EXS_EVT_WRITE, remote, offset, len, q, ah},
              [&](Operation& op) { return add_piece(op, const_cast<void*>(buf), len, mh); });
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

ssize_t exs_read(int fd, void* buf, size_t len, exs_rhandle_t remote, uint64_t offset,
                 exs_qhandle_t q, exs_ahandle_t ah, exs_mhandle_t mh) try {
  return post({fd, EXS_EVT_READ, remote, offset, len, q, ah},
              [&](Operation& op) { return add_piece(op, buf, len, mh); });
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_fetch_add(int fd, exs_rhandle_t remote, uint64_t offset, uint64_t add, uint64_t* before,
                  exs_qhandle_t q, exs_ahandle_t ah) try {
  const auto got = post({fd, EXS_EVT_FETCHADD, remote, offset, sizeof add, q, ah},
                        [&](Operation& op) { return fill_atomic(op, add, 0, before); });
  return got < 0 ? -1 : 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_cmp_swap(int fd, exs_rhandle_t remote, uint64_t offset, uint64_t compare, uint64_t swap,
                 uint64_t* before, exs_qhandle_t q, exs_ahandle_t ah) try {
  const auto got = post({fd, EXS_EVT_CMPSWAP, remote, offset, sizeof swap, q, ah},
                        [&](Operation& op) { return fill_atomic(op, compare, swap, before); });
  return got < 0 ? -1 : 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

}  // extern "C"
