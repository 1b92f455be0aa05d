// Queue pairs and shared receive queues that belong to an id.

#include <algorithm>
#include <bit>
#include <cerrno>

#include "rdmacm/cm.h"
#include "rdmacm/forward.h"

namespace weft::rdmacm {
namespace {

void destroy_cqs(rdma_cm_id& id) {
  if (id.recv_cq != nullptr) ibv_destroy_cq(id.recv_cq);
  if (id.send_cq != nullptr && id.send_cq != id.recv_cq) ibv_destroy_cq(id.send_cq);
  id.recv_cq = nullptr;
  id.send_cq = nullptr;
  if (id.recv_cq_channel != nullptr) ibv_destroy_comp_channel(id.recv_cq_channel);
  if (id.send_cq_channel != nullptr && id.send_cq_channel != id.recv_cq_channel) {
    ibv_destroy_comp_channel(id.send_cq_channel);
  }
  id.recv_cq_channel = nullptr;
  id.send_cq_channel = nullptr;
}

// A CQ with a channel of its own; rdma_get_send_comp and its sister rely on the id as its context.
// `requests`: of a queue of the queue pair. It has room for as many as the queue pair is granted,
// which is a power of two: a program may post until ENOMEM.
int create_cq(rdma_cm_id& id, std::uint32_t requests, ibv_comp_channel** channel, ibv_cq** cq) {
  *channel = ibv_create_comp_channel(id.verbs);
  if (*channel == nullptr) return errno;
  const int asked = static_cast<int>(std::min(std::max(requests, 1U), 1U << 30U));
  const int granted = static_cast<int>(std::bit_ceil(static_cast<std::uint32_t>(asked)));
  *cq = ibv_create_cq(id.verbs, granted, &id, *channel, 0);
  // The device's limit may lie in between.
  if (*cq == nullptr && granted != asked) *cq = ibv_create_cq(id.verbs, asked, &id, *channel, 0);
  return *cq != nullptr ? 0 : errno;
}

// Makes what the program did not bring, and fills it into `attr`.   errno; nothing is left behind
int create_missing_cqs(rdma_cm_id& id, ibv_qp_init_attr_ex& attr) {
  int error = 0;
  if (attr.recv_cq == nullptr && id.recv_cq == nullptr) {
    error = create_cq(id, attr.cap.max_recv_wr, &id.recv_cq_channel, &id.recv_cq);
  }
  if (error == 0 && attr.send_cq == nullptr && id.send_cq == nullptr) {
    error = create_cq(id, attr.cap.max_send_wr, &id.send_cq_channel, &id.send_cq);
  }
  if (error != 0) {
    destroy_cqs(id);
    return error;
  }
  if (attr.recv_cq == nullptr) attr.recv_cq = id.recv_cq;
  if (attr.send_cq == nullptr) attr.send_cq = id.send_cq;
  return 0;
}

// 0 or an errno.
int check(const rdma_cm_id& id, const ibv_qp_init_attr_ex& attr) {
  if (id.qp != nullptr || id.verbs == nullptr) return EINVAL;
  if (!weft_ibv_is_pd(attr.pd) || attr.pd->context->device != id.verbs->device) return EINVAL;
  const bool two_recv =
      id.recv_cq != nullptr && attr.recv_cq != nullptr && id.recv_cq != attr.recv_cq;
  const bool two_send =
      id.send_cq != nullptr && attr.send_cq != nullptr && id.send_cq != attr.send_cq;
  return two_recv || two_send ? EINVAL : 0;
}

// Does as librdmacm after creating: to INIT, with the attributes that rdma_init_qp_attr names.
void initialize(rdma_cm_id& id, ibv_qp* qp) {
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_INIT;
  if (rdma_init_qp_attr(&id, &attr, &mask) != 0) return;
  if (qp->qp_type == IBV_QPT_UD) {
    mask = (mask & ~IBV_QP_ACCESS_FLAGS) | IBV_QP_QKEY;
    attr.qkey = RDMA_UDP_QKEY;
  }
  ibv_modify_qp(qp, &attr, mask);
}

// 0 or an errno.
int create_qp(rdma_cm_id& id, ibv_qp_init_attr_ex& attr) {
  // The id's domain, also where the bit is set and the domain is null.
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
    attr.pd = id.pd;
  }
  if (const int error = check(id, attr); error != 0) return error;
  if (const int error = create_missing_cqs(id, attr); error != 0) return error;
  if (attr.srq == nullptr) attr.srq = id.srq;
  ibv_qp* qp = ibv_create_qp_ex(id.verbs, &attr);
  if (qp == nullptr) {
    const int error = errno;
    destroy_cqs(id);
    return error;
  }
  initialize(id, qp);
  id.pd = qp->pd;
  id.qp = qp;
  return 0;
}

}  // namespace
}  // namespace weft::rdmacm

using namespace weft::rdmacm;

extern "C" {

int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) {
  WEFT_CM_FORWARD(rdma_create_qp_ex, id, attr)
  WEFT_MAY_FAIL(rdma_create_qp_ex, fail_minus);
  const auto owned = find_id(id);
  if (owned == nullptr || attr == nullptr) return fail_minus(EINVAL);
  const int error = create_qp(*id, *attr);
  return error == 0 ? 0 : fail_minus(error);
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  WEFT_CM_FORWARD(rdma_create_qp, id, pd, attr)
  WEFT_MAY_FAIL(rdma_create_qp, fail_minus);
  const auto owned = find_id(id);
  if (owned == nullptr || attr == nullptr) return fail_minus(EINVAL);
  ibv_qp_init_attr_ex wide{};
  wide.qp_context = attr->qp_context;
  wide.send_cq = attr->send_cq;
  wide.recv_cq = attr->recv_cq;
  wide.srq = attr->srq;
  wide.cap = attr->cap;
  wide.qp_type = attr->qp_type;
  wide.sq_sig_all = attr->sq_sig_all;
  if (pd != nullptr) {
    wide.comp_mask = IBV_QP_INIT_ATTR_PD;
    wide.pd = pd;
  }
  const int error = create_qp(*id, wide);
  if (error != 0) return fail_minus(error);
  attr->send_cq = wide.send_cq;
  attr->recv_cq = wide.recv_cq;
  attr->srq = wide.srq;
  attr->cap = wide.cap;
  return 0;
}

void rdma_destroy_qp(rdma_cm_id* id) {
  WEFT_CM_FORWARD(rdma_destroy_qp, id)
  const auto owned = find_id(id);
  if (owned == nullptr || id->qp == nullptr) return;
  ibv_destroy_qp(id->qp);
  id->qp = nullptr;
  destroy_cqs(*id);
}

int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  WEFT_CM_FORWARD(rdma_create_srq_ex, id, attr)
  WEFT_MAY_FAIL(rdma_create_srq_ex, fail_minus);
  const auto owned = find_id(id);
  if (owned == nullptr || attr == nullptr || id->srq != nullptr || id->verbs == nullptr) {
    return fail_minus(EINVAL);
  }
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
    attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    attr->pd = id->pd;
  }
  ibv_srq* srq = ibv_create_srq_ex(id->verbs, attr);
  if (srq == nullptr) return -1;
  if (id->pd == nullptr) id->pd = attr->pd;
  id->srq = srq;
  return 0;
}

int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
  WEFT_CM_FORWARD(rdma_create_srq, id, pd, attr)
  WEFT_MAY_FAIL(rdma_create_srq, fail_minus);
  if (attr == nullptr) return fail_minus(EINVAL);
  ibv_srq_init_attr_ex wide{};
  wide.srq_context = attr->srq_context;
  wide.attr = attr->attr;
  wide.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  wide.srq_type = IBV_SRQT_BASIC;
  if (pd != nullptr) {
    wide.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    wide.pd = pd;
  }
  const int done = rdma_create_srq_ex(id, &wide);
  if (done == 0) attr->attr = wide.attr;
  return done;
}

void rdma_destroy_srq(rdma_cm_id* id) {
  WEFT_CM_FORWARD(rdma_destroy_srq, id)
  const auto owned = find_id(id);
  if (owned == nullptr || id->srq == nullptr) return;
  ibv_destroy_srq(id->srq);
  id->srq = nullptr;
  if (id->qp == nullptr) destroy_cqs(*id);
}

}  // extern "C"
