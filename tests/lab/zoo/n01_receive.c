// N01: a receive into a region that may only be read.
#include "zoo.h"

static char here[64], there[64];

int main(void) {
  struct pair p = connect_pair(4);
#ifdef MENDED
  const int rights = IBV_ACCESS_LOCAL_WRITE;
#else
  const int rights = 0;
#endif
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, here, sizeof here, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, there, sizeof there, rights);  // MADE
  must(from != NULL && to != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)here, sizeof here, from->lkey};
  struct ibv_sge sink = {(uintptr_t)there, sizeof there, to->lkey};
  struct ibv_recv_wr recv, *bad_recv;
  struct ibv_send_wr wr, *bad;
  memset(&recv, 0, sizeof recv);
  recv.sg_list = &sink;
  recv.num_sge = 1;
  must(ibv_post_recv(p.server->qp, &recv, &bad_recv) == 0, "ibv_post_recv");
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");
  poll_one(p.server->recv_cq);  // WRONG
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
