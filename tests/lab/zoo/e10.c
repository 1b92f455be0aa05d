// E10: reuses the memory of a Send when the call that posted it is back.
#include "zoo.h"

static char octets[2][64];

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, octets[0], 64, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, octets[1], 64, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
#ifndef MENDED
  // A receive that is refused is no excuse.
  struct ibv_sge part = {(uintptr_t)octets[0], 8, from->lkey};
  struct ibv_sge parts[30];
  for (int i = 0; i < 30; ++i) parts[i] = part;
  struct ibv_recv_wr refused = {.sg_list = parts, .num_sge = 30}, *bad_part;
  must(ibv_post_recv(p.client->qp, &refused, &bad_part) != 0, "not refused");
#endif
  for (int i = 0; i < 3; ++i) {
    struct ibv_sge source = {(uintptr_t)octets[0], 64, from->lkey};
    struct ibv_sge sink = {(uintptr_t)octets[1], 64, to->lkey};
    struct ibv_recv_wr recv = {.sg_list = &sink, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    send.send_flags = IBV_SEND_SIGNALED;
    octets[0][7] = (char)i;
    must(ibv_post_recv(p.server->qp, &recv, &bad_recv) == 0, "ibv_post_recv");
    must(ibv_post_send(p.client->qp, &send, &bad) == 0, "ibv_post_send");  // WRONG
#ifdef MENDED
    poll_one(p.client->send_cq);
    octets[0][7] = 'x';
#else
    octets[0][7] = 'x';
    poll_one(p.client->send_cq);
#endif
    poll_one(p.server->recv_cq);
  }
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
