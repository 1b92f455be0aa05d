// W22: a Read to memory that an iWARP peer may not write to.
#include "zoo.h"

static char here[64], there[64];

int main(void) {
  struct pair p = connect_pair(4);
#ifdef MENDED
  enum { kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
#else
  enum { kRights = IBV_ACCESS_LOCAL_WRITE };
#endif
  struct ibv_mr* to = ibv_reg_mr(p.client->pd, here, sizeof here, kRights);  // MADE
  struct ibv_mr* from = ibv_reg_mr(p.server->pd, there, sizeof there, IBV_ACCESS_REMOTE_READ);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)here, sizeof here, to->lkey};
  struct ibv_send_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = (uintptr_t)there;
  wr.wr.rdma.rkey = from->rkey;
  must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");  // WRONG
  must(poll_one(p.client->send_cq).status == IBV_WC_SUCCESS, "the Read");
  ibv_dereg_mr(to);
  ibv_dereg_mr(from);
  end_pair(&p);
  return 0;
}
