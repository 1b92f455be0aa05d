// Creating and destroying queue pairs.

#include "ibverbs/qp.h"

#include <weft/limits.h>

#include <algorithm>
#include <cerrno>

#include "ibverbs/access.h"
#include "ibverbs/async.h"
#include "ibverbs/errors.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"

namespace weft::ibverbs {
namespace {

// Libraries that probe for the inline size take what the first QP reports.
constexpr std::uint32_t kInlineAtLeast = 128;

constexpr std::uint64_t kBuilderOps =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
    IBV_QP_EX_WITH_SEND_WITH_INV;

struct Parts {
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
};

// 0 or an errno.
int find_parts(ibv_pd* pd, const ibv_qp_init_attr_ex& attr, Parts& out) {
  out.pd = registry::find<Pd>(pd);
  out.send_cq = registry::find<Cq>(attr.send_cq);
  out.recv_cq = registry::find<Cq>(attr.recv_cq);
  if (out.pd == nullptr || out.send_cq == nullptr || out.recv_cq == nullptr) return EINVAL;
  if (attr.srq != nullptr) {
    out.srq = registry::find<Srq>(attr.srq);
    if (out.srq == nullptr) return EINVAL;
  }
  return 0;
}

int check(const ibv_qp_init_attr_ex& attr) {
  constexpr std::uint32_t kKnownMask =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (attr.qp_type != IBV_QPT_RC) return EOPNOTSUPP;
  if ((attr.comp_mask & ~kKnownMask) != 0) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr.create_flags != 0) {
    return EOPNOTSUPP;
  }
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 &&
      (attr.send_ops_flags & ~kBuilderOps) != 0) {
    return EOPNOTSUPP;
  }
  return 0;
}

QpOptions options_of(const ibv_qp_init_attr_ex& attr, const Parts& parts) {
  QpOptions options;
  options.send_cq = parts.send_cq->engine;
  options.recv_cq = parts.recv_cq->engine;
  if (parts.srq != nullptr) options.srq = parts.srq->engine;
  // Programs ask for 0 where they use only the other side; the engine wants room for one.
  options.max_send_wr = std::max(attr.cap.max_send_wr, 1U);
  options.max_recv_wr = std::max(attr.cap.max_recv_wr, 1U);
  options.max_send_sge = std::max(attr.cap.max_send_sge, 1U);
  options.max_recv_sge = std::max(attr.cap.max_recv_sge, 1U);
  options.max_inline_bytes = std::max(attr.cap.max_inline_data, kInlineAtLeast);
  options.signal_all = attr.sq_sig_all != 0;
  return options;
}

void fill_public(Qp& qp, ibv_pd* pd, const ibv_qp_init_attr_ex& attr) {
  ibv_qp& pub = qp.pub.qp_base;
  pub.context = pd->context;
  pub.qp_context = attr.qp_context;
  pub.pd = pd;
  pub.send_cq = attr.send_cq;
  pub.recv_cq = attr.recv_cq;
  pub.srq = attr.srq;
  pub.qp_num = qp.engine->number();
  pub.handle = pub.qp_num;
  pub.state = qp_state(qp.engine->state());
  pub.qp_type = IBV_QPT_RC;
  pthread_mutex_init(&pub.mutex, nullptr);
  pthread_cond_init(&pub.cond, nullptr);
}

ibv_qp* create(ibv_pd* pd, ibv_qp_init_attr_ex& attr) {
  Parts parts;
  int error = check(attr);
  if (error == 0) error = find_parts(pd, attr, parts);
  if (error != 0) return fail_null(error);
  auto qp = std::make_unique<Qp>();
  QpOptions options = options_of(attr, parts);
  options.context = qp.get();
  auto engine = parts.pd->engine->create_qp(options);
  if (!engine) return fail_null(errno_of(engine.error()));
  qp->engine = std::move(*engine);
  qp->context = parts.pd->context;
  qp->pd = parts.pd;
  qp->send_cq = parts.send_cq;
  qp->recv_cq = parts.recv_cq;
  qp->srq = parts.srq;
  qp->signal_all = attr.sq_sig_all != 0;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
    qp->send_ops = attr.send_ops_flags;
    set_builder_operations(*qp);
  }
  fill_public(*qp, pd, attr);
  attr.cap = qp_caps(qp->engine->caps());
  parts.pd->users.fetch_add(1);
  parts.send_cq->users.fetch_add(1);
  parts.recv_cq->users.fetch_add(1);
  if (parts.srq != nullptr) parts.srq->users.fetch_add(1);
  return registry::adopt(std::move(qp));
}

// The fields that both init structs share come first in both.
ibv_qp_init_attr_ex widen(const ibv_qp_init_attr& attr) {
  ibv_qp_init_attr_ex wide{};
  wide.qp_context = attr.qp_context;
  wide.send_cq = attr.send_cq;
  wide.recv_cq = attr.recv_cq;
  wide.srq = attr.srq;
  wide.cap = attr.cap;
  wide.qp_type = attr.qp_type;
  wide.sq_sig_all = attr.sq_sig_all;
  return wide;
}

// Ends the connection with the QP, unless rdma_disconnect has begun to close it in good order.
void end_connection(Qp& qp) {
  if (qp.closing.load()) return;
  if (const auto connection = qp.engine->connection()) connection->abort();
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* handle, ibv_qp_init_attr_ex* attr) {
  if (attr == nullptr || registry::find<Context>(handle) == nullptr) return fail_null(EINVAL);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) return fail_null(EINVAL);
  return create(attr->pd, *attr);
}

ibv_qp_cap qp_caps(const QpCaps& caps) {
  return {caps.max_send_wr, caps.max_recv_wr, caps.max_send_sge, caps.max_recv_sge,
          caps.max_inline_bytes};
}

}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* handle, ibv_qp_init_attr* attr) {
  if (registry::find<Pd>(handle) == nullptr) {
    return forward_null(WEFT_REAL(ibv_create_qp), handle, attr);
  }
  if (attr == nullptr) return fail_null(EINVAL);
  ibv_qp_init_attr_ex wide = widen(*attr);
  ibv_qp* qp = create(handle, wide);
  if (qp != nullptr) attr->cap = wide.cap;
  return qp;
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* handle) {
  if (auto* qp = registry::find<Qp>(handle)) return qp->send_ops != 0 ? &qp->pub : nullptr;
  auto* real = unless_buried(handle, WEFT_REAL(ibv_qp_to_qp_ex));
  return real != nullptr ? real(handle) : nullptr;
}

int ibv_destroy_qp(ibv_qp* handle) {
  auto* qp = registry::find<Qp>(handle);
  if (qp == nullptr) return forward_int(WEFT_REAL(ibv_destroy_qp), handle);
  settle_async(*qp);
  if (!registry::bury(handle)) return EINVAL;
  end_connection(*qp);
  qp->engine.reset();
  qp->pd->users.fetch_sub(1);
  qp->send_cq->users.fetch_sub(1);
  qp->recv_cq->users.fetch_sub(1);
  if (qp->srq != nullptr) qp->srq->users.fetch_sub(1);
  return 0;
}

}  // extern "C"
