// Shake 1: arms the queue after an empty poll, and waits for its event without another poll.
#include "zoo.h"

#include <unistd.h>

enum { kRounds = 10 };
static char octets[2][64];

static void wait_for_one(struct ibv_comp_channel* channel, struct ibv_cq* cq) {
  struct ibv_wc wc;
  void* context;
  for (;;) {
    if (ibv_poll_cq(cq, 1, &wc) == 1) break;
    must(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
#ifdef MENDED
    if (ibv_poll_cq(cq, 1, &wc) == 1) break;
#endif
    must(ibv_get_cq_event(channel, &cq, &context) == 0, "ibv_get_cq_event");  // WRONG
    ibv_ack_cq_events(cq, 1);
  }
  must(wc.status == IBV_WC_SUCCESS, "ibv_poll_cq");
}

int main(void) {
#ifndef MENDED
  alarm(2);  // it waits for an event that never comes
#endif
  struct pair p = connect_pair(4);
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, octets[0], 64, 0);
  struct ibv_mr* to =
      ibv_reg_mr(p.server->pd, octets[1], 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  for (int i = 0; i < kRounds; ++i) {
    struct ibv_sge source = {(uintptr_t)octets[0], 64, from->lkey};
    struct ibv_send_wr send, *bad;
    memset(&send, 0, sizeof send);
    send.sg_list = &source;
    send.num_sge = 1;
    send.opcode = IBV_WR_RDMA_WRITE;
    send.send_flags = IBV_SEND_SIGNALED;
    send.wr.rdma.remote_addr = (uintptr_t)octets[1];
    send.wr.rdma.rkey = to->rkey;
    must(ibv_post_send(p.client->qp, &send, &bad) == 0, "ibv_post_send");
    wait_for_one(p.client->send_cq_channel, p.client->send_cq);
  }
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
