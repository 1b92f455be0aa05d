// N40: arms the queue when a completion is there, and waits in poll until another one comes.
#include <poll.h>

#include "zoo.h"

static char octets[2][64];

int main(void) {
  struct pair p = connect_pair(4);  // MADE
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
  struct ibv_cq* cq = p.client->send_cq;
  must(ibv_post_recv(p.server->qp, &recv, &bad_recv) == 0, "ibv_post_recv");
  must(ibv_post_send(p.client->qp, &send, &bad_send) == 0, "ibv_post_send");
  poll_one(p.server->recv_cq);
  must(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");  // ARMED
#ifdef MENDED
  poll_one(cq);
#endif
  must(ibv_post_recv(p.server->qp, &recv, &bad_recv) == 0, "ibv_post_recv");
  must(ibv_post_send(p.client->qp, &send, &bad_send) == 0, "ibv_post_send");
  poll_one(p.server->recv_cq);
  struct pollfd ready = {p.client->send_cq_channel->fd, POLLIN, 0};
  must(poll(&ready, 1, -1) == 1, "poll");
  void* context;
  must(ibv_get_cq_event(p.client->send_cq_channel, &cq, &context) == 0, "get event");  // WRONG
  ibv_ack_cq_events(cq, 1);
  poll_one(cq);
#ifndef MENDED
  poll_one(cq);
#endif
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
