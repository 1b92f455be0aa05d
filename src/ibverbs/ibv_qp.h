// Queue pairs: what is shared between their files and with librdmacm.
#pragma once

#include <infiniband/verbs.h>
#include <weft/types.h>

#include "ibverbs/objects.h"

namespace weft::ibverbs {

ibv_qp* create_qp_ex(ibv_context* handle, ibv_qp_init_attr_ex* attr);

[[nodiscard]] inline ibv_qp_state qp_state(QpState state) {
  switch (state) {
    case QpState::kReset: return IBV_QPS_RESET;
    case QpState::kInit: return IBV_QPS_INIT;
    case QpState::kRtr: return IBV_QPS_RTR;
    case QpState::kRts: return IBV_QPS_RTS;
    case QpState::kSqd: return IBV_QPS_SQD;
    case QpState::kSqe: return IBV_QPS_SQE;
    case QpState::kError: break;
  }
  return IBV_QPS_ERR;
}

// Moves a queue pair to the error state, if it is alive.
void break_qp(const void* handle);
// Breaks its connection.
void disconnect_qp(const void* handle);
[[nodiscard]] ibv_qp_cap qp_caps(const QpCaps& caps);

// Personality roce: programs and rdma_cm connect the QP by ibv_modify_qp, not by a connection.
[[nodiscard]] bool is_wired_by_hand(const Qp& qp);
// ibv_modify_qp of such a QP. 0 or an errno.
[[nodiscard]] int modify_wired(Qp& qp, const ibv_qp_attr& attr, int mask);
// Fills in the attributes that such a QP was given, over what `out` says of connections. Does
// nothing for other QPs.
void fill_wired(Qp& qp, ibv_qp_attr& out);

}  // namespace weft::ibverbs
