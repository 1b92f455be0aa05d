#include "ibverbs/dead_context.h"

#include <cerrno>

#include "ibverbs/errors.h"
#include "ibverbs/observed.h"
#include "ibverbs/wr_builder.h"

namespace weft::ibverbs {
namespace {

int dead_poll(ibv_cq* cq, int, ibv_wc*) {
  observe_dead("ibv_poll_cq", cq);
  return fail_minus(EINVAL);
}
int dead_notify(ibv_cq* cq, int) {
  observe_dead("ibv_req_notify_cq", cq);
  return fail_number(EINVAL);
}
int dead_post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  observe_dead("ibv_post_send", qp);
  if (bad != nullptr) *bad = wr;
  return fail_number(EINVAL);
}
int dead_post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  observe_dead("ibv_post_recv", qp);
  if (bad != nullptr) *bad = wr;
  return fail_number(EINVAL);
}
int dead_post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  observe_dead("ibv_post_srq_recv", srq);
  if (bad != nullptr) *bad = wr;
  return fail_number(EINVAL);
}
ibv_mw* dead_alloc_mw(ibv_pd* pd, ibv_mw_type) {
  observe_dead("ibv_alloc_mw", pd);
  return fail_null(EINVAL);
}
int dead_bind_mw(ibv_qp* qp, ibv_mw*, ibv_mw_bind*) {
  observe_dead("ibv_bind_mw", qp);
  return fail_number(EINVAL);
}
int dead_dealloc_mw(ibv_mw* mw) {
  observe_dead("ibv_dealloc_mw", mw);
  return fail_number(EINVAL);
}
int dead_start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr*) {
  observe_dead("ibv_start_poll", cq);
  return EINVAL;
}
int dead_next_poll(ibv_cq_ex* cq) {
  observe_dead("ibv_next_poll", cq);
  return EINVAL;
}

struct DeadContext {
  ibv_device device{};
  char zeros[1024] = {};  // as behind the live device: provider libraries look there
  verbs_context verbs{};

  DeadContext() {
    ibv_context& context = verbs.context;
    context.device = &device;
    context.cmd_fd = -1;
    context.async_fd = -1;
    context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    verbs.sz = sizeof verbs;
    context.ops.poll_cq = dead_poll;
    context.ops.req_notify_cq = dead_notify;
    context.ops.post_send = dead_post_send;
    context.ops.post_recv = dead_post_recv;
    context.ops.post_srq_recv = dead_post_srq_recv;
    context.ops.alloc_mw = dead_alloc_mw;
    context.ops.bind_mw = dead_bind_mw;
    context.ops.dealloc_mw = dead_dealloc_mw;
  }
};

}  // namespace

ibv_context* dead_context() {
  static auto* dead = new DeadContext;
  return &dead->verbs.context;
}

void disable(Context& context) { context.verbs.context.ops = dead_context()->ops; }
void disable(Pd& pd) { pd.pub.context = dead_context(); }
void disable(ThreadDomain& domain) { domain.pub.context = dead_context(); }
void disable(Mr& mr) { mr.pub.context = dead_context(); }
void disable(Mw& mw) { mw.pub.context = dead_context(); }
void disable(Channel& channel) { channel.pub.context = dead_context(); }
void disable(Cq& cq) {
  cq.pub.context = dead_context();
  cq.pub.start_poll = dead_start_poll;
  cq.pub.next_poll = dead_next_poll;
}
void disable(Qp& qp) {
  qp.pub.qp_base.context = dead_context();
  if (qp.send_ops != 0) refuse_batches(qp);
}
void disable(Ah& ah) { ah.pub.context = dead_context(); }
void disable(Dm& dm) { dm.pub.context = dead_context(); }
void disable(Srq& srq) { srq.pub.context = dead_context(); }

}  // namespace weft::ibverbs
