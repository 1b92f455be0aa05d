// N60: the receive is posted when the Send has come.
#include <time.h>

#include "zoo.h"

static char here[64], there[64];

static void post_receive(struct pair* p, struct ibv_mr* mr) {
  struct ibv_sge sge = {(uintptr_t)there, sizeof there, mr->lkey};
  struct ibv_recv_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  must(ibv_post_recv(p->server->qp, &wr, &bad) == 0, "ibv_post_recv");  // WRONG
}

static void post_send(struct pair* p, struct ibv_mr* mr) {
  struct ibv_sge sge = {(uintptr_t)here, sizeof here, mr->lkey};
  struct ibv_send_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  must(ibv_post_send(p->client->qp, &wr, &bad) == 0, "ibv_post_send");
}

// Polls without a result for 0.2 s: the Send comes meanwhile.
static inline void look(struct ibv_cq* cq) {
  struct timespec start, now;
  struct ibv_wc wc;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    must(ibv_poll_cq(cq, 1, &wc) == 0, "no completion");
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < 200);
}

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, here, sizeof here, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, there, sizeof there, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
#ifdef MENDED
  post_receive(&p, to);
  post_send(&p, from);
#else
  post_send(&p, from);
  look(p.server->recv_cq);
  post_receive(&p, to);
#endif
  poll_one(p.client->send_cq);
  poll_one(p.server->recv_cq);
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
