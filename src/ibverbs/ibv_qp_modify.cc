// ibv_modify_qp and ibv_query_qp.
//
// The connection moves a QP to RTR and RTS. Programs that bring their own QP to rdma_cm ask for
// these moves with the attributes that rdma_init_qp_attr names, which is accepted and changes
// nothing; the attributes of InfiniBand addressing are refused, as an RNIC does. With personality
// roce, QPs follow ibv_qp_wired.cc instead.

#include <weft/limits.h>

#include <cerrno>

#include "check/observer.h"
#include "ibverbs/access.h"
#include "ibverbs/errors.h"
#include "ibverbs/ibv_qp.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "ibverbs/shaken.h"

namespace weft::ibverbs {
namespace {

// Attributes with a meaning here, and those that say nothing an RNIC would mind.
constexpr int kAccepted =
    IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_ACCESS_FLAGS |
    IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
    IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;

int check(const Qp& qp, const ibv_qp_attr& attr, int mask) {
  if ((mask & ~kAccepted) != 0) return EINVAL;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0 && !is_access(attr.qp_access_flags)) return EINVAL;
  if ((mask & IBV_QP_PORT) != 0 && attr.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr.max_rd_atomic > limits::kOrd) return EINVAL;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attr.max_dest_rd_atomic > limits::kIrd) {
    return EINVAL;
  }
  // A program may name the present state as the engine knows it, or as it reads it in the struct.
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != qp_state(qp.engine->state()) &&
      attr.cur_qp_state != qp.pub.qp_base.state) {
    return EINVAL;
  }
  return 0;
}

// 0 or an errno.
int move(Qp& qp, ibv_qp_state to) {
  // rdma_cm's active side asks for INIT, RTR and RTS once its connection is up; as with an RNIC's
  // driver, what the connection has passed already is no mistake.
  const QpState now = qp.engine->state();
  const bool towards_rts = to == IBV_QPS_INIT || to == IBV_QPS_RTR;
  if (towards_rts && now == QpState::kRts) return 0;
  if (to == IBV_QPS_RTR && now == QpState::kInit) return 0;
  // There is no connection that could bring it there.
  const bool before_rts = now == QpState::kInit || now == QpState::kRtr;
  if (to == IBV_QPS_RTS && before_rts && qp.engine->connection() == nullptr) return EINVAL;
  switch (to) {
    case IBV_QPS_RESET: return errno_of(qp.engine->modify(QpState::kReset));
    case IBV_QPS_INIT: return errno_of(qp.engine->modify(QpState::kInit));
    case IBV_QPS_RTR: return errno_of(qp.engine->modify(QpState::kRtr));
    case IBV_QPS_RTS: return errno_of(qp.engine->modify(QpState::kRts));
    case IBV_QPS_SQD: return errno_of(qp.engine->modify(QpState::kSqd));
    case IBV_QPS_ERR: return errno_of(qp.engine->modify(QpState::kError));
    default: return EINVAL;
  }
}

void fill_attributes(const Qp& qp, const QpAttributes& now, ibv_qp_attr& out) {
  out.qp_state = qp_state(now.state);
  out.cur_qp_state = out.qp_state;
  out.path_mtu = IBV_MTU_4096;
  out.path_mig_state = IBV_MIG_MIGRATED;
  out.qkey = 0;
  out.rq_psn = 0;
  out.sq_psn = 0;
  out.dest_qp_num = 0;
  out.qp_access_flags = qp.remote_access;
  out.cap = qp.granted;
  out.ah_attr = {};
  out.alt_ah_attr = {};
  out.pkey_index = 0;
  out.alt_pkey_index = 0;
  out.en_sqd_async_notify = 0;
  out.sq_draining = now.state == QpState::kSqd && now.sq_outstanding > 0 ? 1 : 0;
  out.max_rd_atomic = static_cast<std::uint8_t>(now.ord);
  out.max_dest_rd_atomic = static_cast<std::uint8_t>(now.ird);
  out.min_rnr_timer = 0;
  out.port_num = 1;
  out.timeout = 0;
  out.retry_cnt = 0;
  out.rnr_retry = 0;
  out.alt_port_num = 0;
  out.alt_timeout = 0;
}

void fill_init(const Qp& qp, ibv_qp_init_attr& out) {
  const ibv_qp& pub = qp.pub.qp_base;
  out.qp_context = pub.qp_context;
  out.send_cq = pub.send_cq;
  out.recv_cq = pub.recv_cq;
  out.srq = pub.srq;
  out.cap = qp.granted;
  out.qp_type = pub.qp_type;
  out.sq_sig_all = qp.signal_all ? 1 : 0;
}

// 0 or an errno.
int modify_connected(Qp& qp, const ibv_qp_attr& attr, int mask) {
  int error = check(qp, attr, mask);
  if (error == 0 && (mask & IBV_QP_STATE) != 0) error = move(qp, attr.qp_state);
  if (error != 0) return error;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
    qp.remote_access = attr.qp_access_flags;
    qp.engine->set_remote_access(qp_access(attr.qp_access_flags));
  }
  if ((mask & IBV_QP_STATE) != 0) qp.pub.qp_base.state = qp_state(qp.engine->state());
  return 0;
}

}  // namespace
}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

int ibv_modify_qp(ibv_qp* handle, ibv_qp_attr* attr, int mask) {
  const auto qp = registry::find<Qp>(handle);
  if (!qp) return forward_int(WEFT_REAL(ibv_modify_qp), handle, attr, mask);
  const MayFail may_fail("ibv_modify_qp", handle);
  if (may_fail.error() != 0) return fail_number(may_fail.error());
  if (attr == nullptr) return fail_number(EINVAL);
  const int error =
      is_wired_by_hand(*qp) ? modify_wired(*qp, *attr, mask) : modify_connected(*qp, *attr, mask);
  if (error != 0) return fail_number(error);
  const bool reset = (mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RESET;
  if (reset && observer != nullptr) observer->emptied(handle);
  if (reset && shaking != nullptr) shake_emptied(*qp);
  return 0;
}

// As with rdma-core, the struct shows the state that the program set or asked for last. UCX reads
// it before each post, and stops at an error that it has not been told of.
int ibv_query_qp(ibv_qp* handle, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  const auto qp = registry::find<Qp>(handle);
  if (!qp) return forward_int(WEFT_REAL(ibv_query_qp), handle, attr, mask, init);
  const MayFail may_fail("ibv_query_qp", handle);
  if (may_fail.error() != 0) return fail_number(may_fail.error());
  if (attr == nullptr || init == nullptr) return fail_number(EINVAL);
  const weft::QpAttributes now = qp->posts_to->query();
  fill_attributes(*qp, now, *attr);
  fill_wired(*qp, *attr);
  fill_init(*qp, *init);
  if ((mask & IBV_QP_STATE) != 0) handle->state = attr->qp_state;
  return 0;
}

// No: messages are placed in the order of the stream, but within one a copy may store its first
// octets last, and the kernel's copies promise as little.
int ibv_query_qp_data_in_order(ibv_qp* handle, ibv_wr_opcode op, std::uint32_t flags) {
  if (registry::find<Qp>(handle)) return 0;
  auto* real = unless_quarantined(handle, WEFT_REAL(ibv_query_qp_data_in_order));
  return real != nullptr ? real(handle, op, flags) : 0;
}

}  // extern "C"
