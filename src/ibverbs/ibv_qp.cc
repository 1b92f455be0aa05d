// Creating and destroying queue pairs.

#include "ibverbs/ibv_qp.h"

#include <weft/limits.h>

#include <algorithm>
#include <cerrno>

#include "ibverbs/access.h"
#include "ibverbs/async.h"
#include "ibverbs/devices.h"
#include "ibverbs/errors.h"
#include "ibverbs/likeness.h"
#include "ibverbs/observed.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "ibverbs/shaken.h"
#include "ibverbs/wr_builder.h"

namespace weft::ibverbs {
namespace {

// Libraries that probe for the inline size take what the first QP reports.
constexpr std::uint32_t kInlineAtLeast = 128;

constexpr std::uint64_t kBuilderOps =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
    IBV_QP_EX_WITH_SEND_WITH_INV;
constexpr std::uint64_t kReliableOps = IBV_QP_EX_WITH_RDMA_READ |
                                       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

struct Parts {
  Pin<Pd> pd;
  Pin<Cq> send_cq;
  Pin<Cq> recv_cq;
  Pin<Srq> srq;
};

// 0 or an errno.
int find_parts(ibv_pd* pd, const ibv_qp_init_attr_ex& attr, Parts& out) {
  out.pd = registry::find<Pd>(pd);
  out.send_cq = registry::find<Cq>(attr.send_cq);
  out.recv_cq = registry::find<Cq>(attr.recv_cq);
  out.srq = registry::find<Srq>(attr.srq);
  if (!out.pd || !out.send_cq || !out.recv_cq) return EINVAL;
  if (attr.srq != nullptr && !out.srq) return EINVAL;
  // The engine would take parts of several devices, an adapter would not.
  const ibv_device* device = out.pd->pub.context->device;
  const bool same = attr.send_cq->context->device == device &&
                    attr.recv_cq->context->device == device &&
                    (attr.srq == nullptr || attr.srq->context->device == device);
  return same ? 0 : EINVAL;
}

// False: one of them is being destroyed.
bool take(const Parts& parts, Qp& qp) {
  return qp.pd.take(parts.pd.object()) && qp.send_cq.take(parts.send_cq.object()) &&
         qp.recv_cq.take(parts.recv_cq.object()) && (!parts.srq || qp.srq.take(parts.srq.object()));
}

constexpr std::uint64_t kDatagramOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

bool type_exists(ibv_qp_type type) {
  return type == IBV_QPT_RC || ((type == IBV_QPT_UC || type == IBV_QPT_UD) && is_roce());
}

std::uint64_t operations_of(ibv_qp_type type) {
  if (type == IBV_QPT_UD) return kDatagramOps;
  return type == IBV_QPT_UC ? kBuilderOps & ~kReliableOps : kBuilderOps;
}

QpType type_of(ibv_qp_type type) {
  if (type == IBV_QPT_UD) return QpType::kUd;
  return type == IBV_QPT_UC ? QpType::kUc : QpType::kRc;
}

int check(const ibv_qp_init_attr_ex& attr) {
  constexpr std::uint32_t kKnownMask =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (!type_exists(attr.qp_type)) return EOPNOTSUPP;
  if ((attr.comp_mask & ~kKnownMask) != 0) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr.create_flags != 0) {
    return EOPNOTSUPP;
  }
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 &&
      (attr.send_ops_flags & ~operations_of(attr.qp_type)) != 0) {
    return EOPNOTSUPP;
  }
  return 0;
}

QpOptions options_of(const ibv_qp_init_attr_ex& attr, const Parts& parts) {
  QpOptions options;
  options.type = type_of(attr.qp_type);
  options.send_cq = parts.send_cq->delivers_to;
  options.recv_cq = parts.recv_cq->delivers_to;
  if (parts.srq) options.srq = parts.srq->takes_from;
  // Programs ask for 0 where they use only the other side; the engine wants room for one.
  options.max_send_wr = std::max(attr.cap.max_send_wr, 1U);
  options.max_recv_wr = std::max(attr.cap.max_recv_wr, 1U);
  options.max_send_sge = std::max(attr.cap.max_send_sge, 1U);
  options.max_recv_sge = std::max(attr.cap.max_recv_sge, 1U);
  options.max_inline_bytes = std::max(attr.cap.max_inline_data, kInlineAtLeast);
  options.signal_all = attr.sq_sig_all != 0;
  const ibv_device* device = parts.pd->pub.context->device;
  options.has_gid = [device](const Gid& gid) {
    return std::ranges::find(info_of(device)->gids, gid) != info_of(device)->gids.end();
  };
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
  // As a new QP of any device, though an RNIC's answers INIT when it is asked (ibv_query_qp).
  pub.state = IBV_QPS_RESET;
  pub.qp_type = attr.qp_type;
  init_async(qp.async, pub, pub.events_completed);
}

ibv_qp* create(ibv_pd* pd, ibv_qp_init_attr_ex& attr) {
  return or_null([&]() -> ibv_qp* {
    Parts parts;
    int error = check(attr);
    if (error == 0) error = refused_qp(attr);
    if (error == 0) error = refused_one_more(like::Number::kMaxQp, registry::count(Kind::kQp));
    if (error == 0) error = find_parts(pd, attr, parts);
    if (error != 0) return fail_null(error);
    auto qp = std::make_unique<Qp>();
    qp->asked_send_depth = attr.cap.max_send_wr;
    QpOptions options = options_of(attr, parts);
    options.context = qp.get();
    if (observer != nullptr) observe_engine(options, *qp);
    if (shaking != nullptr) shake(options);
    auto engine = parts.pd->engine->create_qp(options);
    if (!engine) return fail_null(errno_of(engine.error()));
    qp->engine = std::move(*engine);
    qp->context = parts.pd->context;
    if (!take(parts, *qp)) return fail_null(EINVAL);
    qp->signal_all = attr.sq_sig_all != 0;
    qp->one_sends.promised = qp->one_receives.promised = static_cast<bool>(parts.pd->thread);
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
      qp->send_ops = attr.send_ops_flags;
      set_builder_operations(*qp);
    }
    fill_public(*qp, pd, attr);
    const ibv_qp_cap asked = attr.cap;
    attr.cap = qp_caps(qp->engine->caps());
    imitate(attr.cap, asked);
    qp->posts_to = qp->engine;
    if (shaking != nullptr) shake(*qp, asked, attr.cap);
    // A program that counts by what it was granted has no more than is checked.
    if (observer != nullptr && checked) {
      attr.cap.max_send_wr = std::max(asked.max_send_wr, 1U);
      attr.cap.max_send_sge = std::max(asked.max_send_sge, 1U);
      attr.cap.max_inline_data = asked.max_inline_data;
      if (!qp->srq) {
        attr.cap.max_recv_wr = std::max(asked.max_recv_wr, 1U);
        attr.cap.max_recv_sge = std::max(asked.max_recv_sge, 1U);
      }
    }
    qp->granted = attr.cap;
    return registry::adopt(std::move(qp));
  });
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
  WEFT_MAY_FAIL(ibv_create_qp_ex, fail_null);
  if (attr == nullptr || !registry::find<Context>(handle)) return fail_null(EINVAL);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) return fail_null(EINVAL);
  return create(attr->pd, *attr);
}

void break_qp(const void* handle) {
  if (const auto qp = registry::find<Qp>(handle))
    static_cast<void>(qp->engine->modify(QpState::kError));
}

void disconnect_qp(const void* handle) {
  const auto qp = registry::find<Qp>(handle);
  if (!qp) return;
  if (const auto connection = qp->engine->connection()) connection->abort();
}

ibv_qp_cap qp_caps(const QpCaps& caps) {
  return {caps.max_send_wr, caps.max_recv_wr, caps.max_send_sge, caps.max_recv_sge,
          caps.max_inline_bytes};
}

}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* handle, ibv_qp_init_attr* attr) {
  if (!registry::find<Pd>(handle)) {
    return forward_null(WEFT_REAL(ibv_create_qp), handle, attr);
  }
  WEFT_MAY_FAIL(ibv_create_qp, fail_null);
  if (attr == nullptr) return fail_null(EINVAL);
  ibv_qp_init_attr_ex wide = widen(*attr);
  ibv_qp* qp = create(handle, wide);
  if (qp != nullptr) attr->cap = wide.cap;
  return qp;
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* handle) {
  if (const auto qp = registry::find<Qp>(handle)) return qp->send_ops != 0 ? &qp->pub : nullptr;
  auto* real = unless_quarantined(handle, WEFT_REAL(ibv_qp_to_qp_ex));
  return real != nullptr ? real(handle) : nullptr;
}

int ibv_destroy_qp(ibv_qp* handle) {
  const auto qp = registry::find<Qp>(handle);
  if (!qp) return forward_int(WEFT_REAL(ibv_destroy_qp), handle);
  settle_async(*qp->context, qp->async, handle);
  if (!registry::quarantine(handle, qp)) return fail_number(EINVAL);
  end_connection(*qp);
  if (shaking != nullptr) shake_destroyed(*qp);
  qp->posts_to.reset();
  qp->engine.reset();
  qp->pd.reset();
  qp->send_cq.reset();
  qp->recv_cq.reset();
  qp->srq.reset();
  return 0;
}

}  // extern "C"
