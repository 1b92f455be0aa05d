#include "ibverbs/dead_context.h"

#include <cerrno>

#include "ibverbs/errors.h"

namespace weft::ibverbs {
namespace {

int dead_poll(ibv_cq*, int, ibv_wc*) { return fail_minus(EINVAL); }
int dead_notify(ibv_cq*, int) { return fail_number(EINVAL); }
int dead_post_send(ibv_qp*, ibv_send_wr* wr, ibv_send_wr** bad) {
  if (bad != nullptr) *bad = wr;
  return fail_number(EINVAL);
}
int dead_post_recv(ibv_qp*, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  if (bad != nullptr) *bad = wr;
  return fail_number(EINVAL);
}
int dead_post_srq_recv(ibv_srq*, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  if (bad != nullptr) *bad = wr;
  return fail_number(EINVAL);
}
ibv_mw* dead_alloc_mw(ibv_pd*, ibv_mw_type) { return fail_null(EINVAL); }
int dead_bind_mw(ibv_qp*, ibv_mw*, ibv_mw_bind*) { return fail_number(EINVAL); }
int dead_dealloc_mw(ibv_mw*) { return fail_number(EINVAL); }

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

}  // namespace weft::ibverbs
