// N42: a server is told that a message is there, and ends without having polled it.
#include "zoo.h"

static char octets[2][64];

int main(void) {
  struct pair p = connect_pair(4);  // WRONG
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, octets[0], 64, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, octets[1], 64, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  struct ibv_sge source = {(uintptr_t)octets[0], 64, from->lkey};
  struct ibv_sge sink = {(uintptr_t)octets[1], 64, to->lkey};
  struct ibv_recv_wr recv, *bad_recv;
  struct ibv_send_wr send = request_of(IBV_WR_SEND, &source, 0, 0), *bad_send;
  memset(&recv, 0, sizeof recv);
  recv.sg_list = &sink;
  recv.num_sge = 1;
  must(ibv_post_recv(p.server->qp, &recv, &bad_recv) == 0, "ibv_post_recv");
  struct ibv_cq* cq = p.server->recv_cq;
  void* context;
  must(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
  must(ibv_post_send(p.client->qp, &send, &bad_send) == 0, "ibv_post_send");
  must(ibv_get_cq_event(p.server->recv_cq_channel, &cq, &context) == 0, "ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
#ifdef MENDED
  poll_one(cq);
#endif
  poll_one(p.client->send_cq);
  return 0;
}
