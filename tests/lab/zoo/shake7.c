// Shake 7: takes it that a Send has completed when its answer is there, in another queue.
#include "zoo.h"

enum { kRounds = 20 };
static char octets[2][64];

static void post_receive(struct ibv_qp* qp, struct ibv_mr* mr) {
  struct ibv_sge sge = {(uintptr_t)mr->addr, 64, mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  must(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void post_send(struct ibv_qp* qp, struct ibv_mr* mr) {
  struct ibv_sge sge = {(uintptr_t)mr->addr, 64, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
  wr.send_flags = IBV_SEND_SIGNALED;
  must(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
}

int main(void) {
  struct pair p = connect_pair(4);
  struct ibv_mr* here = ibv_reg_mr(p.client->pd, octets[0], 64, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_mr* there = ibv_reg_mr(p.server->pd, octets[1], 64, IBV_ACCESS_LOCAL_WRITE);
  must(here != NULL && there != NULL, "ibv_reg_mr");
  for (int i = 0; i < kRounds; ++i) {
    post_receive(p.client->qp, here);
    post_receive(p.server->qp, there);
    post_send(p.client->qp, here);
    poll_one(p.server->recv_cq);
    post_send(p.server->qp, there);
    poll_one(p.client->recv_cq);
#ifdef MENDED
    poll_one(p.client->send_cq);
#else
    struct ibv_wc wc;
    if (ibv_poll_cq(p.client->send_cq, 1, &wc) != 1) {  // WRONG
      fprintf(stderr, "round %d: the Send is not complete\n", i);
      return 1;
    }
#endif
    poll_one(p.server->send_cq);
  }
  ibv_dereg_mr(here);
  ibv_dereg_mr(there);
  end_pair(&p);
  return 0;
}
