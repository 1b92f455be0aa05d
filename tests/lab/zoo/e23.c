// E23: as many signaled Sends as the send queue holds, and a completion queue with less room.
#include "zoo.h"

enum { kSends = 4 };
static char octets[2][64];

int main(void) {
#ifdef MENDED
  struct pair p = connect_pair_on(kSends, kSends);
#else
  struct pair p = connect_pair_on(kSends, kSends - 1);  // MADE
#endif
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, octets[0], 64, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, octets[1], 64, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  for (int i = 0; i < kSends; ++i) {
    struct ibv_sge source = {(uintptr_t)octets[0], 64, from->lkey};
    struct ibv_sge sink = {(uintptr_t)octets[1], 64, to->lkey};
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
    must(ibv_post_send(p.client->qp, &send, &bad_send) == 0, "ibv_post_send");
    poll_one(p.server->recv_cq);
  }
  struct ibv_wc wc[kSends];
  for (int got = 0; got < kSends;) {
    got += ibv_poll_cq(p.client->qp->send_cq, kSends, wc);  // WRONG
  }
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  struct ibv_cq* cq = p.client->qp->send_cq;
  rdma_destroy_qp(p.client);
  must(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
  rdma_destroy_qp(p.server);
  rdma_destroy_id(p.client);
  rdma_destroy_id(p.server);
  rdma_destroy_id(p.listener);
  rdma_destroy_event_channel(p.channel);
  return 0;
}
