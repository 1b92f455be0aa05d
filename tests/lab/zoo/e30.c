// E30: the opcode of a flushed receive is looked at before its status.
#include "zoo.h"

static char octets[64];

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq_init_attr_ex cq_attr;
  memset(&cq_attr, 0, sizeof cq_attr);
  cq_attr.cqe = 4;
  cq_attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
  struct ibv_cq_ex* cq = ibv_create_cq_ex(context, &cq_attr);  // MADE
  must(pd != NULL && cq != NULL, "ibv_create_cq_ex");
  struct ibv_qp_init_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  struct ibv_qp* qp = ibv_create_qp(pd, &attr);
  struct ibv_mr* mr = ibv_reg_mr(pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  must(qp != NULL && mr != NULL, "ibv_create_qp");
  to_init(qp);
  struct ibv_sge sge = {(uintptr_t)octets, sizeof octets, mr->lkey};
  struct ibv_recv_wr recv, *bad;
  memset(&recv, 0, sizeof recv);
  recv.sg_list = &sge;
  recv.num_sge = 1;
  must(ibv_post_recv(qp, &recv, &bad) == 0, "ibv_post_recv");
  to_error(qp);
  struct ibv_poll_cq_attr none;
  memset(&none, 0, sizeof none);
  while (ibv_start_poll(cq, &none) != 0) {
  }
#ifdef MENDED
  const int received = cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_RECV;
#else
  const int received = ibv_wc_read_opcode(cq) == IBV_WC_RECV;  // WRONG
#endif
  must(received == 0 || received == 1, "ibv_wc_read_opcode");
  ibv_end_poll(cq);
  ibv_destroy_qp(qp);
  ibv_dereg_mr(mr);
  ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return 0;
}
