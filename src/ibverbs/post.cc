#include "ibverbs/post.h"

#include <endian.h>
#include <weft/limits.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "ibverbs/devices.h"
#include "ibverbs/errors.h"
#include "ibverbs/objects.h"
#include "ibverbs/windows.h"

namespace weft::ibverbs {
namespace {

static_assert(sizeof(Sge) == sizeof(ibv_sge));
static_assert(offsetof(Sge, addr) == offsetof(ibv_sge, addr));
static_assert(offsetof(Sge, length) == offsetof(ibv_sge, length));
static_assert(offsetof(Sge, lkey) == offsetof(ibv_sge, lkey));

std::span<const Sge> sges_of(const ibv_sge* list, int count) {
  return {reinterpret_cast<const Sge*>(list), static_cast<std::size_t>(count)};
}

// Immediate data of verbs: the first four of the eight octets on the wire.
std::uint64_t wide_immediate(__be32 imm_data) {
  return static_cast<std::uint64_t>(be32toh(imm_data)) << 32U;
}

std::size_t total_bytes(const ibv_send_wr& wr) {
  std::size_t bytes = 0;
  for (int i = 0; i < wr.num_sge; ++i) bytes += wr.sg_list[i].length;
  return bytes;
}

void fill_remote(const ibv_send_wr& from, SendOp op, SendWr& to) {
  to.op = op;
  to.remote_addr = from.wr.rdma.remote_addr;
  to.rkey = from.wr.rdma.rkey;
}

void fill_atomic(const ibv_send_wr& from, SendOp op, SendWr& to) {
  to.op = op;
  to.remote_addr = from.wr.atomic.remote_addr;
  to.rkey = from.wr.atomic.rkey;
  to.compare_add = from.wr.atomic.compare_add;
  to.swap = from.wr.atomic.swap;
}

// 0 or an errno.
int fill_operation(const ibv_send_wr& from, SendWr& to) {
  switch (from.opcode) {
    case IBV_WR_SEND: to.op = SendOp::kSend; return 0;
    case IBV_WR_RDMA_WRITE: fill_remote(from, SendOp::kWrite, to); return 0;
    case IBV_WR_RDMA_READ: fill_remote(from, SendOp::kRead, to); return 0;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      fill_remote(from, SendOp::kWriteImm, to);
      to.imm_data = wide_immediate(from.imm_data);
      return 0;
    case IBV_WR_SEND_WITH_IMM:
      // RFC 7306 has Immediate Data as a message of its own, not as part of a Send. A QP wired by
      // hand has it there.
      if (!is_roce() && total_bytes(from) != 0) return EOPNOTSUPP;
      if (!is_roce()) to.sges = {};
      to.op = SendOp::kImmediate;
      to.imm_data = wide_immediate(from.imm_data);
      return 0;
    case IBV_WR_SEND_WITH_INV:
      to.op = SendOp::kSendInvalidate;
      to.invalidate_rkey = from.invalidate_rkey;
      return 0;
    case IBV_WR_ATOMIC_CMP_AND_SWP: fill_atomic(from, SendOp::kCmpSwap, to); return 0;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: fill_atomic(from, SendOp::kFetchAdd, to); return 0;
    case IBV_WR_LOCAL_INV:
      to.op = SendOp::kLocalInvalidate;
      to.invalidate_rkey = from.invalidate_rkey;
      return 0;
    default: return EINVAL;
  }
}

int queue_bind(QueuePair& engine, const ibv_send_wr& wr, SendWr& out) {
  BindParts parts;
  const auto& bind = wr.bind_mw;
  if (const int error = fill_bind(out, parts, bind.mw, bind.rkey, bind.bind_info); error != 0) {
    return error;
  }
  const Status queued = engine.queue_send(out);
  return queued ? 0 : errno_of(queued.error());
}

// A datagram, whose place in the request is where others have the remote address.
int queue_datagram(QueuePair& engine, const ibv_send_wr& wr, SendWr& out) {
  if (wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM) return EINVAL;
  if (wr.wr.ud.ah == nullptr) return EINVAL;
  const DatagramPeer peer = ah_of(wr.wr.ud.ah)->to(wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
  if (const int error = fill_operation(wr, out); error != 0) return error;
  out.peer = &peer;
  const Status queued = engine.queue_send(out);
  return queued ? 0 : errno_of(queued.error());
}

int queue_one(QueuePair& engine, const ibv_send_wr& wr, bool datagram) {
  if (wr.num_sge < 0) return EINVAL;
  SendWr out;
  out.wr_id = wr.wr_id;
  out.flags = send_flags(wr.send_flags);
  out.sges = sges_of(wr.sg_list, wr.num_sge);
  if (datagram) return queue_datagram(engine, wr, out);
  if (wr.opcode == IBV_WR_BIND_MW) return queue_bind(engine, wr, out);
  if (const int error = fill_operation(wr, out); error != 0) return error;
  const Status queued = engine.queue_send(out);
  return queued ? 0 : errno_of(queued.error());
}

// One that fails before anything of it is sent: no region has this key.
int queue_lost(QueuePair& engine, const ibv_send_wr& wr, bool datagram) {
  ibv_sge nowhere{0, 1, kNoKey};
  ibv_send_wr other = wr;
  other.opcode = IBV_WR_SEND;
  other.sg_list = &nowhere;
  other.num_sge = 1;
  other.send_flags &= ~static_cast<unsigned>(IBV_SEND_INLINE);
  return queue_one(engine, other, datagram);
}

constexpr std::size_t kBatch = 16;

// Hands the list to `queue` in batches: a QP or an SRQ.
template <class Queue>
int post_receives(Queue& queue, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  while (wr != nullptr) {
    std::array<RecvWr, kBatch> batch;
    std::array<ibv_recv_wr*, kBatch> origin;
    std::size_t count = 0;
    bool valid = true;
    for (; wr != nullptr && count < kBatch; wr = wr->next) {
      valid = wr->num_sge >= 0;
      if (!valid) break;
      batch[count] = {wr->wr_id, sges_of(wr->sg_list, wr->num_sge)};
      origin[count++] = wr;
    }
    const Posted posted = queue.post_recv(std::span<const RecvWr>(batch.data(), count));
    if (posted.count < count || !valid) {
      if (bad != nullptr) *bad = posted.count < count ? origin[posted.count] : wr;
      return posted.count < count ? errno_of(posted.error) : EINVAL;
    }
  }
  return 0;
}

// `before` and `refused` are told of each request that is tried. `before` says whether it is to be
// lost.
template <class Before, class Queue, class Refused>
int post_each(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad, Before before, Queue queue,
              Refused refused) {
  QueuePair& engine = *qp_of(handle)->posts_to;
  const bool datagram = handle->qp_type == IBV_QPT_UD;
  int error = 0;
  bool queued = false;
  for (; wr != nullptr; wr = wr->next) {
    const bool lost = before(*wr);
    error = lost ? queue_lost(engine, *wr, datagram) : queue(engine, *wr, datagram);
    if (error != 0) {
      refused();
      if (bad != nullptr) *bad = wr;
      break;
    }
    queued = true;
  }
  if (queued) engine.ring();
  return fail_number(error);
}

}  // namespace

int post_send(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad) {
  return post_each(
      handle, wr, bad, [](const ibv_send_wr&) { return false; }, queue_one, [] {});
}

int post_send_told(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad, const ToldOfSends& told) {
  return post_each(
      handle, wr, bad, [&](const ibv_send_wr& one) { return told.before(handle, one); },
      [&](QueuePair& engine, const ibv_send_wr& one, bool datagram) {
        if (told.translate == nullptr) return queue_one(engine, one, datagram);
        std::array<ibv_sge, limits::kSgesPerRequest> sges;
        ibv_send_wr other = one;
        told.translate(other, sges.data());
        return queue_one(engine, other, datagram);
      },
      [&] { told.refused(handle); });
}

int post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Qp* qp = qp_of(handle);
  if (qp->srq) {
    if (bad != nullptr) *bad = wr;
    return fail_number(EINVAL);  // receives come from the SRQ
  }
  return fail_number(post_receives(*qp->posts_to, wr, bad));
}

int post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return fail_number(post_receives(*srq_of(handle)->engine, wr, bad));
}

}  // namespace weft::ibverbs
