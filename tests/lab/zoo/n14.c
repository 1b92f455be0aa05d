// N14: two receives, into the same memory.
#include "zoo.h"

static char octets[128];

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  struct ibv_mr* mr = ibv_reg_mr(p.server->pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)octets, 64, mr->lkey};
  struct ibv_recv_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr_id = 1;
  must(ibv_post_recv(p.server->qp, &wr, &bad) == 0, "ibv_post_recv");
#ifdef MENDED
  sge.addr += 64;
#else
  sge.addr += 60;
#endif
  wr.wr_id = 2;
  must(ibv_post_recv(p.server->qp, &wr, &bad) == 0, "ibv_post_recv");  // WRONG
  end_pair(&p);
  ibv_dereg_mr(mr);
  return 0;
}
