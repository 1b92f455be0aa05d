// E02: a request of the extended interface goes to a queue pair that was destroyed.
#include "zoo.h"

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cq = ibv_create_cq(context, 4, NULL, NULL, 0);
  must(pd != NULL && cq != NULL, "ibv_create_cq");
  struct ibv_qp_init_attr_ex attr;
  memset(&attr, 0, sizeof attr);
  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV;
  struct ibv_qp* qp = ibv_create_qp_ex(context, &attr);  // MADE
  must(qp != NULL, "ibv_create_qp_ex");
  struct ibv_qp_ex* extended = ibv_qp_to_qp_ex(qp);
#ifdef MENDED
  ibv_wr_start(extended);
  ibv_wr_abort(extended);
#endif
  ibv_destroy_qp(qp);  // DESTROYED
#ifndef MENDED
  ibv_wr_start(extended);
  ibv_wr_local_inv(extended, 1);
  ibv_wr_complete(extended);  // WRONG
#endif
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return 0;
}
