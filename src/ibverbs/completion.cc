#include "ibverbs/completion.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "ibverbs/errors.h"
#include "ibverbs/objects.h"

namespace weft::ibverbs {
namespace {

constexpr std::size_t kBatch = 16;

void convert(const WorkCompletion& from, ibv_wc& to) {
  to.wr_id = from.wr_id;
  to.status = wc_status(from.status);
  to.opcode = wc_opcode(from.op);
  to.vendor_err = from.vendor_error;
  to.byte_len = from.byte_len;
  to.imm_data = wc_immediate(from);
  to.qp_num = from.qp_num;
  to.src_qp = from.source_qp;
  to.wc_flags = wc_flags(from.flags);
  to.pkey_index = 0;
  to.slid = 0;
  to.sl = from.service_level;
  to.dlid_path_bits = 0;
}

template <class Told>
int poll_each(ibv_cq* handle, int count, ibv_wc* out, Told told) {
  CompletionQueue& engine = *cq_of(handle)->engine;
  // Raw storage: constructing a batch would cost more than an empty poll.
  alignas(WorkCompletion) std::byte storage[kBatch * sizeof(WorkCompletion)];
  auto* batch = reinterpret_cast<WorkCompletion*>(storage);
  int done = 0;
  while (done < count) {
    const std::size_t want = std::min(kBatch, static_cast<std::size_t>(count - done));
    const std::size_t got = engine.poll(std::span(batch, want));
    for (std::size_t i = 0; i < got; ++i) {
      convert(batch[i], out[done]);
      told(batch[i], out[done++]);
    }
    if (got < want) break;
  }
  return done;
}

}  // namespace

ibv_wc_status wc_status(WcStatus status) {
  switch (status) {
    case WcStatus::kSuccess: return IBV_WC_SUCCESS;
    case WcStatus::kLocalLength: return IBV_WC_LOC_LEN_ERR;
    case WcStatus::kLocalQpOperation: return IBV_WC_LOC_QP_OP_ERR;
    case WcStatus::kLocalProtection: return IBV_WC_LOC_PROT_ERR;
    case WcStatus::kFlushed: return IBV_WC_WR_FLUSH_ERR;
    case WcStatus::kWindowBind: return IBV_WC_MW_BIND_ERR;
    case WcStatus::kBadResponse: return IBV_WC_BAD_RESP_ERR;
    case WcStatus::kLocalAccess: return IBV_WC_LOC_ACCESS_ERR;
    case WcStatus::kRemoteInvalidRequest: return IBV_WC_REM_INV_REQ_ERR;
    case WcStatus::kRemoteAccess: return IBV_WC_REM_ACCESS_ERR;
    case WcStatus::kRemoteOperation: return IBV_WC_REM_OP_ERR;
    case WcStatus::kRetryExceeded: return IBV_WC_RETRY_EXC_ERR;
    case WcStatus::kRnrRetryExceeded: return IBV_WC_RNR_RETRY_EXC_ERR;
    case WcStatus::kFatal: return IBV_WC_FATAL_ERR;
    case WcStatus::kGeneral: break;
  }
  return IBV_WC_GENERAL_ERR;
}

ibv_wc_opcode wc_opcode(WcOp op) {
  switch (op) {
    case WcOp::kSend: return IBV_WC_SEND;
    case WcOp::kWrite: return IBV_WC_RDMA_WRITE;
    case WcOp::kRead: return IBV_WC_RDMA_READ;
    case WcOp::kFetchAdd: return IBV_WC_FETCH_ADD;
    case WcOp::kCmpSwap: return IBV_WC_COMP_SWAP;
    case WcOp::kBindWindow: return IBV_WC_BIND_MW;
    case WcOp::kLocalInvalidate: return IBV_WC_LOCAL_INV;
    case WcOp::kRecv: break;
    case WcOp::kRecvWithImm: return IBV_WC_RECV_RDMA_WITH_IMM;
  }
  return IBV_WC_RECV;
}

unsigned wc_flags(WcFlags flags) {
  unsigned out = 0;
  if (has(flags, WcFlags::kWithImm)) out |= IBV_WC_WITH_IMM;
  if (has(flags, WcFlags::kWithInvalidate)) out |= IBV_WC_WITH_INV;
  if (has(flags, WcFlags::kGrh)) out |= IBV_WC_GRH;
  return out;
}

std::uint32_t wc_immediate(const WorkCompletion& completion) {
  if (has(completion.flags, WcFlags::kWithInvalidate)) return completion.invalidated_rkey;
  // Verbs' 32 bits are the first four of the eight octets on the wire.
  return htobe32(static_cast<std::uint32_t>(completion.imm_data >> 32U));
}

int poll_cq(ibv_cq* handle, int count, ibv_wc* out) {
  return poll_each(handle, count, out, [](const WorkCompletion&, ibv_wc&) {});
}

int poll_cq_told(ibv_cq* handle, int count, ibv_wc* out,
                 void (*told)(const WorkCompletion& from, ibv_wc& to)) {
  return poll_each(handle, count, out, told);
}

int req_notify_cq(ibv_cq* handle, int solicited_only) {
  using Arm = CompletionQueue::Arm;
  Cq* cq = cq_of(handle);
  // Without a channel there is nothing to signal. Real devices accept the call all the same.
  if (!cq->channel) return 0;
  return fail_number(errno_of(cq->engine->arm(solicited_only != 0 ? Arm::kSolicited : Arm::kNext)));
}

}  // namespace weft::ibverbs
