// N01 at the responder: the peer writes behind the end of a region.
#include "zoo.h"

static char here[64], there[64];

int main(void) {
  struct pair p = connect_pair(4);
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, here, sizeof here, 0);
#ifdef MENDED
  const size_t size = sizeof there;
#else
  const size_t size = sizeof there - 8;
#endif
  const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, there, size, rights);  // WRONG
  must(from != NULL && to != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)here, sizeof here, from->lkey};
  struct ibv_send_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = (uintptr_t)there;
  wr.wr.rdma.rkey = to->rkey;
  must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");
  // A Write completes when it has left; a Read behind it, when the peer has answered.
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.num_sge = 0;
  must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");
  poll_one(p.client->send_cq);
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
