// W21: sends inline, and asked for no room for inline data (give_qp() of zoo.h).
#include "zoo.h"

static char octets[2][64];

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, octets[0], 64, 0);
  struct ibv_mr* to =
      ibv_reg_mr(p.server->pd, octets[1], 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  memset(octets[0], 'x', 16);
  struct ibv_sge source = {(uintptr_t)octets[0], 16, from->lkey};
  struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
  send.send_flags = IBV_SEND_SIGNALED;
#ifndef MENDED
  send.send_flags |= IBV_SEND_INLINE;
#endif
  send.wr.rdma.remote_addr = (uintptr_t)octets[1];
  send.wr.rdma.rkey = to->rkey;
  must(ibv_post_send(p.client->qp, &send, &bad) == 0, "ibv_post_send");  // WRONG
  must(poll_one(p.client->send_cq).status == IBV_WC_SUCCESS, "ibv_poll_cq");
  // The completion is local: the Write may still be on its way to the region.
  while (((volatile char*)octets[1])[15] != 'x') {
    struct ibv_wc wc;
    ibv_poll_cq(p.server->recv_cq, 1, &wc);
  }
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
