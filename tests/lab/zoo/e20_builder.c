// E20: as e20_polled, by the extended interface.
#include "zoo.h"

#include <errno.h>

enum { kDepth = 3, kReads = 20, kSize = 1 << 16 };
static char here[kSize], there[kSize];

static int post_read(struct ibv_qp_ex* qp, const struct ibv_mr* into, const struct ibv_mr* from) {
  ibv_wr_start(qp);
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_read(qp, from->rkey, (uintptr_t)there);
  ibv_wr_set_sge(qp, into->lkey, (uintptr_t)here, kSize);
  return ibv_wr_complete(qp);  // WRONG
}

int main(void) {
  struct pair p;
  struct sockaddr_in at = begin_pair(&p);
  struct rdma_conn_param param;
  struct ibv_qp_init_attr_ex attr;
  memset(&attr, 0, sizeof attr);
  attr.cap.max_send_wr = attr.cap.max_recv_wr = kDepth;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
  must(rdma_create_id(p.channel, &p.client, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_resolve_addr(p.client, NULL, (struct sockaddr*)&at, 5000) == 0, "rdma_resolve_addr");
  expect(p.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  must(rdma_resolve_route(p.client, 5000) == 0, "rdma_resolve_route");
  expect(p.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  must(rdma_create_qp_ex(p.client, &attr) == 0, "rdma_create_qp_ex");  // MADE
  memset(&param, 0, sizeof param);
  param.initiator_depth = param.responder_resources = 1;
  must(rdma_connect(p.client, &param) == 0, "rdma_connect");
  struct rdma_cm_event* request = take(p.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  p.server = request->id;
  rdma_ack_cm_event(request);
  give_qp(p.server, kDepth);
  must(rdma_accept(p.server, &param) == 0, "rdma_accept");
  for (int i = 0; i < 2; ++i) expect(p.channel, RDMA_CM_EVENT_ESTABLISHED);
  struct ibv_qp_ex* qp = ibv_qp_to_qp_ex(p.client->qp);
  must(qp != NULL, "ibv_qp_to_qp_ex");
  struct ibv_mr* into =
      ibv_reg_mr(p.client->pd, here, kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_mr* from = ibv_reg_mr(p.server->pd, there, kSize, IBV_ACCESS_REMOTE_READ);
  must(into != NULL && from != NULL, "ibv_reg_mr");
#ifdef MENDED
  int posted = 0;
  for (int polled = 0; polled < kReads; ++polled) {
    while (posted < kReads) {
      const int error = post_read(qp, into, from);
      if (error == ENOMEM) break;
      must(error == 0, "ibv_wr_complete");
      ++posted;
    }
    must(poll_one(p.client->send_cq).status == IBV_WC_SUCCESS, "ibv_poll_cq");
  }
#else
  for (int i = 0; i < kDepth + 1; ++i) must(post_read(qp, into, from) == 0, "ibv_wr_complete");
  for (int i = 0; i < kDepth + 1; ++i) poll_one(p.client->send_cq);
#endif
  ibv_dereg_mr(from);
  ibv_dereg_mr(into);
  end_pair(&p);
  return 0;
}
