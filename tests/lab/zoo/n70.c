// N70: two messages and one receive. The second message is not answered, and both ends wait, until
// a signal ends it.
#include <unistd.h>

#include "zoo.h"

static char octets[2][64];

static struct ibv_mr* reg(struct rdma_cm_id* id, int i) {
  struct ibv_mr* mr = ibv_reg_mr(id->pd, octets[i], sizeof octets[i], IBV_ACCESS_LOCAL_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  return mr;
}

static void post_receive(struct rdma_cm_id* id, struct ibv_mr* mr) {
  struct ibv_sge sge = {(uintptr_t)mr->addr, 64, mr->lkey};
  struct ibv_recv_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  must(ibv_post_recv(id->qp, &wr, &bad) == 0, "ibv_post_recv");  // WRONG
}

static void post_send(struct rdma_cm_id* id, struct ibv_mr* mr) {
  struct ibv_sge sge = {(uintptr_t)mr->addr, 64, mr->lkey};
  struct ibv_send_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  must(ibv_post_send(id->qp, &wr, &bad) == 0, "ibv_post_send");
}

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  struct ibv_mr* ask = reg(p.client, 0);
  struct ibv_mr* answer = reg(p.server, 1);
#ifdef MENDED
  enum { kReceives = 2 };
#else
  enum { kReceives = 1 };
  alarm(30);
#endif
  for (int i = 0; i < kReceives; i++) post_receive(p.server, answer);
  for (int i = 0; i < 2; i++) {
    post_receive(p.client, ask);
    post_send(p.client, ask);
    poll_one(p.client->send_cq);
    poll_one(p.server->recv_cq);
    post_send(p.server, answer);
    poll_one(p.server->send_cq);
    poll_one(p.client->recv_cq);
  }
  ibv_dereg_mr(ask);
  ibv_dereg_mr(answer);
  end_pair(&p);
  return 0;
}
