// W21: more receives than the queue pair was made for.
#include "zoo.h"

enum { kAsked = 3 };
static char octets[2][64];

int main(void) {
  struct pair p = connect_pair(kAsked);  // MADE
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, octets[0], 64, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, octets[1], 64, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
#ifdef MENDED
  enum { kReceives = kAsked };
#else
  enum { kReceives = kAsked + 1 };
#endif
  struct ibv_sge source = {(uintptr_t)octets[0], 64, from->lkey};
  struct ibv_sge sink = {(uintptr_t)octets[1], 64, to->lkey};
  struct ibv_recv_wr recv, *bad_recv;
  struct ibv_send_wr send, *bad_send;
  memset(&recv, 0, sizeof recv);
  recv.sg_list = &sink;
  recv.num_sge = 1;
  for (int i = 0; i < kReceives; ++i) {
    must(ibv_post_recv(p.server->qp, &recv, &bad_recv) == 0, "ibv_post_recv");  // WRONG
  }
  memset(&send, 0, sizeof send);
  send.sg_list = &source;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  must(ibv_post_send(p.client->qp, &send, &bad_send) == 0, "ibv_post_send");
  poll_one(p.server->recv_cq);
  poll_one(p.client->send_cq);
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
