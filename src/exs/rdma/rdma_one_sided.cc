// One-sided work: Writes, Reads and atomics on memory that the peer has named.
#include <cassert>
#include <cerrno>

#include "exs/rdma/rdma_socket.h"

namespace weft::exs {

void RdmaSocket::one_sided_posted() { flush(); }

void RdmaSocket::pump_one_sided() {
  for (Operation& op : s_.ops.one_sided) {
    if (op.handed != 0) continue;
    if (!port_.can_post(op.pieces.size() + 1)) return;
    if (!post_one_sided(op)) return broke(ECONNRESET, "one-sided work cannot be posted");
  }
  finish_one_sided();  // what has found no memory
}

bool RdmaSocket::post_one_sided(Operation& op) {
  assert(op.handed == 0 && op.pieces.size() == 1);
  const NamedMemory::Remote* to = names_.remote(op.remote.memory);
  if (to == nullptr) return false;
  std::uint32_t lkey = 0;
  const Piece& piece = op.pieces.front();
  const bool has_key = fills_memory(op.type) ? port_.sink_key(op, piece, 0, piece.length, lkey)
                                             : port_.local_key(op, piece, lkey);
  if (!has_key) {
    // Its end comes in its turn.
    op.error = errno != 0 ? errno : ENOMEM;
    op.handed = 1;
    return true;
  }
  const std::uint64_t addr = to->addr + op.remote.offset;
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(piece.base),
              static_cast<std::uint32_t>(piece.length), lkey};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  if (op.type == EXS_EVT_WRITE || op.type == EXS_EVT_READ) {
    wr.opcode = op.type == EXS_EVT_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    wr.wr.rdma = {addr, to->rkey};
  } else {
    wr.opcode =
        op.type == EXS_EVT_FETCHADD ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic = {addr, op.remote.operand, op.remote.swap, to->rkey};
  }
  if (!port_.post_requests(&wr, 1, SendQueue::kNoSlot, true)) return false;
  op.handed = 1;
  op.serial = port_.last();
  return true;
}

void RdmaSocket::finish_one_sided() {
  while (!s_.ops.one_sided.empty()) {
    Operation& op = s_.ops.one_sided.front();
    if (op.handed == 0 || !port_.done(op.serial)) return;
    const bool done = op.error == 0;
    if (done && op.remote.before != nullptr) *op.remote.before = op.remote.value;
    s_.finish_front(s_.ops.one_sided, op.error, done ? op.total : 0);
  }
}

}  // namespace weft::exs
