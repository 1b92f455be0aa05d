// Shake 2: reuses the memory of a Send when the call that posted it is back.
#include "zoo.h"

enum { kRounds = 10 };
static int number[2];

static int receive(struct pair* p) { return poll_one(p->server->recv_cq).status == IBV_WC_SUCCESS; }

int main(void) {
  struct pair p = connect_pair(kRounds);
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, &number[0], sizeof(int), 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, &number[1], sizeof(int), IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  for (int i = 0; i < kRounds; ++i) {
    struct ibv_sge source = {(uintptr_t)&number[0], sizeof(int), from->lkey};
    struct ibv_sge sink = {(uintptr_t)&number[1], sizeof(int), to->lkey};
    struct ibv_recv_wr recv, *bad_recv;
    struct ibv_send_wr send, *bad_send;
    memset(&recv, 0, sizeof recv);
    recv.sg_list = &sink;
    recv.num_sge = 1;
    must(ibv_post_recv(p.server->qp, &recv, &bad_recv) == 0, "ibv_post_recv");
    memset(&send, 0, sizeof send);
    send.sg_list = &source;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    number[0] = i;
    must(ibv_post_send(p.client->qp, &send, &bad_send) == 0, "ibv_post_send");
#ifdef MENDED
    poll_one(p.client->send_cq);
#endif
    number[0] = -1;  // WRONG
    must(receive(&p), "ibv_poll_cq");
    if (number[1] != i) {
      fprintf(stderr, "message %d says %d\n", i, number[1]);
      return 1;
    }
#ifndef MENDED
    poll_one(p.client->send_cq);
#endif
  }
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
