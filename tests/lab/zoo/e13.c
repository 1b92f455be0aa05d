// E13: the peer writes to a buffer that the program has taken back for itself.
#include <weft/check.h>

#include "zoo.h"

static char here[64] = "written", there[64];

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, here, sizeof here, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, there, sizeof there,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  weft_own(there, sizeof there);  // WRONG
#ifdef MENDED
  weft_release(there, sizeof there);
#endif
  struct ibv_sge sge = {(uintptr_t)here, sizeof here, from->lkey};
  struct ibv_send_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = (uintptr_t)there;
  wr.wr.rdma.rkey = to->rkey;
  must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");
  poll_one(p.client->send_cq);
  volatile char* written = there;
  struct ibv_wc wc;
  while (*written == 0) ibv_poll_cq(p.server->recv_cq, 1, &wc);
  weft_own(there, sizeof there);  // nobody writes any more
  weft_release(there, sizeof there);
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
