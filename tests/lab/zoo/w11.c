// W11: reuses the memory of a request when the peer has answered, and polls its completion later.
#include "zoo.h"

static char octets[3][64];

static void post_receive(struct ibv_qp* qp, struct ibv_mr* mr, char* to) {
  struct ibv_sge sge = {(uintptr_t)to, 64, mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  must(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv");
}

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  struct ibv_mr* here = ibv_reg_mr(p.client->pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_mr* there = ibv_reg_mr(p.server->pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  must(here != NULL && there != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)octets[0], 64, here->lkey};
  struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
  send.send_flags = IBV_SEND_SIGNALED;
  post_receive(p.client->qp, here, octets[1]);
  post_receive(p.server->qp, there, octets[2]);
  must(ibv_post_send(p.client->qp, &send, &bad) == 0, "ibv_post_send");  // WRONG
  poll_one(p.server->recv_cq);
  sge.addr = (uintptr_t)octets[2];
  sge.lkey = there->lkey;
  must(ibv_post_send(p.server->qp, &send, &bad) == 0, "ibv_post_send");
  poll_one(p.client->recv_cq);
#ifdef MENDED
  poll_one(p.client->send_cq);
#endif
  octets[0][0] = 'x';
#ifndef MENDED
  poll_one(p.client->send_cq);
#endif
  poll_one(p.server->send_cq);
  ibv_dereg_mr(here);
  ibv_dereg_mr(there);
  end_pair(&p);
  return 0;
}
