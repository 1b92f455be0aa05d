// N24: a completion queue for the Sends of a queue pair, and not for its receives.
#include "zoo.h"

enum { kDepth = 4 };

int main(void) {
  struct ibv_context* context = open_first();
#ifdef MENDED
  struct ibv_cq* cq = ibv_create_cq(context, 2 * kDepth, NULL, NULL, 0);
#else
  struct ibv_cq* cq = ibv_create_cq(context, kDepth, NULL, NULL, 0);  // MADE
#endif
  struct ibv_pd* pd = ibv_alloc_pd(context);
  must(pd != NULL && cq != NULL, "ibv_create_cq");
  struct ibv_qp_init_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = kDepth;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  struct ibv_qp* qp = ibv_create_qp(pd, &attr);  // WRONG
  must(qp != NULL, "ibv_create_qp");
  ibv_destroy_qp(qp);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return 0;
}
