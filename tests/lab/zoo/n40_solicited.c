// N40: arms the queue for any completion when one is there, and waits in poll. The twin wants an
// event for solicited ones alone, as the one that is there is not.
#include <poll.h>

#include "zoo.h"

static char octets[2][64];

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  struct ibv_mr* there =
      ibv_reg_mr(p.client->pd, octets[0], 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  struct ibv_mr* here =
      ibv_reg_mr(p.server->pd, octets[1], 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(there != NULL && here != NULL, "ibv_reg_mr");
  struct ibv_sge sink = {(uintptr_t)octets[0], 64, there->lkey};
  struct ibv_sge own = {(uintptr_t)octets[1], 64, here->lkey};
  struct ibv_recv_wr recv, *bad_recv;
  struct ibv_send_wr send = request_of(IBV_WR_SEND, &own, 0, 0), *bad_send;
  struct ibv_send_wr read = request_of(IBV_WR_RDMA_READ, &own, (uintptr_t)octets[0], there->rkey);
  memset(&recv, 0, sizeof recv);
  recv.sg_list = &sink;
  recv.num_sge = 1;
  for (int i = 0; i < 2; ++i)
    must(ibv_post_recv(p.client->qp, &recv, &bad_recv) == 0, "ibv_post_recv");
  // The message is there when the Read behind it is answered.
  must(ibv_post_send(p.server->qp, &send, &bad_send) == 0, "ibv_post_send");
  poll_one(p.server->send_cq);
  must(ibv_post_send(p.server->qp, &read, &bad_send) == 0, "ibv_post_send");
  poll_one(p.server->send_cq);
  struct ibv_cq* cq = p.client->recv_cq;
#ifdef MENDED
  must(ibv_req_notify_cq(cq, 1) == 0, "ibv_req_notify_cq");
#else
  must(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");  // ARMED
#endif
  send.send_flags |= IBV_SEND_SOLICITED;
  must(ibv_post_send(p.server->qp, &send, &bad_send) == 0, "ibv_post_send");
  poll_one(p.server->send_cq);
  struct pollfd ready = {p.client->recv_cq_channel->fd, POLLIN, 0};
  must(poll(&ready, 1, -1) == 1, "poll");
  void* context;
  must(ibv_get_cq_event(p.client->recv_cq_channel, &cq, &context) == 0, "get event");  // WRONG
  ibv_ack_cq_events(cq, 1);
  for (int i = 0; i < 2; ++i) poll_one(cq);
  ibv_dereg_mr(there);
  ibv_dereg_mr(here);
  end_pair(&p);
  return 0;
}
