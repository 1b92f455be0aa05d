// N01: the memory of a Send was deregistered before it left.
#include "zoo.h"

static char here[64];

int main(void) {
  struct pair p = connect_pair(4);
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, here, sizeof here, 0);  // MADE
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, here, sizeof here, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)here, sizeof here, from->lkey};
  struct ibv_sge sink = {(uintptr_t)here, sizeof here, to->lkey};
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
  wr.send_flags = IBV_SEND_SIGNALED;
#ifndef MENDED
  ibv_dereg_mr(from);  // DESTROYED
#endif
  must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");
  poll_one(p.client->send_cq);  // WRONG
#ifdef MENDED
  poll_one(p.server->recv_cq);
  ibv_dereg_mr(from);
#endif
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
