// The operation tables of a context: what the inline functions of the header call.

#include <cerrno>

#include "ibverbs/completion.h"
#include "ibverbs/context.h"
#include "ibverbs/domains.h"
#include "ibverbs/errors.h"
#include "ibverbs/ibv_device_memory.h"
#include "ibverbs/ibv_qp.h"
#include "ibverbs/ibv_srq.h"
#include "ibverbs/likeness.h"
#include "ibverbs/observed.h"
#include "ibverbs/post.h"
#include "ibverbs/query.h"
#include "ibverbs/windows.h"

namespace weft::ibverbs {
namespace {

// Very old binaries reach queries through the table.
int compat_query_port(ibv_context* handle, std::uint8_t port, _compat_ibv_port_attr* out) {
  return query_port(handle, port, reinterpret_cast<ibv_port_attr*>(out),
                    offsetof(ibv_port_attr, link_layer));
}

// ibv_close_xrcd is the one inline function that does not check for null.
int close_xrcd(ibv_xrcd*) { return fail_number(EOPNOTSUPP); }

}  // namespace

// A member that stays null makes its inline function answer EOPNOTSUPP: XRC, flows, counters, work
// queues, tag matching, rate limits, on-demand paging, moderation.
void set_operations(verbs_context& verbs) {
  verbs.query_port = query_port;
  verbs.query_device_ex = query_device_ex;
  verbs.create_cq_ex = create_cq_ex;
  verbs.create_qp_ex = create_qp_ex;
  verbs.create_srq_ex = create_srq_ex;
  verbs.alloc_td = alloc_td;
  verbs.dealloc_td = dealloc_td;
  verbs.alloc_parent_domain = alloc_parent_domain;
  verbs.close_xrcd = close_xrcd;
  verbs.alloc_dm = alloc_dm;
  verbs.free_dm = free_dm;
  verbs.reg_dm_mr = reg_dm_mr;

  ibv_context_ops& ops = verbs.context.ops;
  ops._compat_query_device = query_device;
  ops._compat_query_port = compat_query_port;
  ops.alloc_mw = alloc_mw;
  ops.bind_mw = bind_mw;
  ops.dealloc_mw = dealloc_mw;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.post_srq_recv = post_srq_recv;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  if (observer != nullptr) observe_operations(ops);
  imitate(ops);
}

}  // namespace weft::ibverbs
